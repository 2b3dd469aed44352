"""TRC003 no-gpu-events: the trace shows no work on a GPU.

## What it detects
A trace without kernels, copies and fills: either the program launched GPU work and the recording
lost all of it, or only the CPU was recorded, or the program ran on the CPU.

## Why it matters
Without GPU events nothing can be said about what the GPU did: no busy time, no idle, no kernel.
The steps are then the CPU's marks, and almost no detector can judge.

## How it is measured
The table of GPU work is empty. Runtime calls that launch work, or a device in the file's
header, say that there was a GPU.

## Example
    212 launches are recorded and no GPU event

## Fix
Record with ProfilerActivity.CUDA, with no other profiler (nsys, ncu, DCGM profiling) attached, in
a container that may read GPU counters.

## False positives
A program that is meant to run on the CPU, or a rank of a job that has no GPU.

## References
https://pytorch.org/docs/stable/profiler.html (activities)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.detectors.finding import Detection, Evidence
from tracekit.detectors.health import health_draft, record_again

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "TRC003"
NAME = "no-gpu-events"

_LAUNCHES = ("kernel", "graph", "memcpy", "memset")


@dataclass(frozen=True)
class Config:
    """Thresholds of TRC003."""

    min_gpu_events: int = field(
        default=1,
        metadata={"unit": "GPU events", "source": "one kernel shows that the GPU was recorded"},
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    trace = analysis.trace
    if len(trace.table("gpu")) >= config.min_gpu_events:
        return Detection()
    launches = trace.table("launches")
    rows = np.flatnonzero(launches.text("kind").where(lambda k: k in _LAUNCHES))
    names = ", ".join(sorted(set(trace.device_names.values())))
    if len(rows):
        insight = (
            f"{len(rows):,} calls that launch GPU work are recorded and not one GPU event: the "
            "profiler was kept from reading the GPU."
        )
        action = "Detach other profilers (nsys, ncu, DCGM) and allow access to GPU counters."
    elif names:
        insight = (
            f"The file names a GPU ({names}), but no GPU work and no launch are in it: the "
            "recording asked only for the CPU, or this process gave the GPU nothing to do."
        )
        action = "Record with ProfilerActivity.CUDA."
    else:
        insight = "No GPU, no launch and no GPU work are in the file: only the CPU was recorded."
        action = "Record with ProfilerActivity.CUDA, if the program uses a GPU."
    draft = health_draft(
        CODE,
        NAME,
        title="No GPU work is in the trace",
        insight=insight,
        action=action,
        impact="GPU busy time, idle causes and kernels can then be judged; now they cannot.",
        where="the recording",
        evidence=Evidence(
            event_ids=tuple(int(i) for i in launches.ints("id")[rows[:20]]),
            counts={"launching calls": len(rows), "GPU events": len(trace.table("gpu"))},
        ),
        fix=record_again(
            "ask for the GPU's activity",
            (
                "from torch.profiler import ProfilerActivity, profile\n"
                "with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:\n"
                "    train_steps()\n"
                "    torch.cuda.synchronize()                # let the last kernels be recorded"
            ),
            "the program uses a GPU",
        ),
    )
    return Detection((draft,))
