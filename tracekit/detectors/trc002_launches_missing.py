"""TRC002 launches-missing: GPU work without its launch, or GPU work that was not recorded at all.

## What it detects
GPU events inside the steps whose launch is not in the file, beyond those that a recording always
begins with; and steps with much GPU idle that nothing recorded explains, as graph replays leave
that were recorded only in part.

## Why it matters
Work without a launch belongs to no step and no op. Idle that is no idle makes a busy GPU look
starved: every idle share, and every finding about the host, is then too large.

## How it is measured
Launch and work are joined by correlation id, never by guess. Work launched before the recording
began (it runs before any step's own work) is normal and not counted. Idle of unknown cause is a gap
that ends with work whose launch is not in the file, or in which queued work waited longer than
any device leaves it waiting.

## Example
    868 of 7,747 GPU events in the steps have no launch; 58 % of the step is idle without a reason

## Fix
Record without gaps: a larger CUPTI buffer, one profiler at a time, fewer steps; for CUDA graphs a
driver and a torch that record every replayed kernel.

## False positives
A real pause of the device with work queued (a stream that waits for another machine) counts as
unknown when the recording shows no reason.

## References
pytorch/kineto (correlation of graph replays), AMD-AGI/TraceLens issues 728, 827
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.detectors.finding import Detection, Evidence
from tracekit.detectors.health import health_draft, record_again
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "TRC002"
NAME = "launches-missing"


@dataclass(frozen=True)
class Config:
    """Thresholds of TRC002."""

    min_orphan_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the GPU events in the steps",
            "source": "below it no phase's account moves by more than its own rounding",
        },
    )
    min_unknown_percent: float = field(
        default=10.0,
        metadata={
            "unit": "% of the step that is GPU idle of unknown cause",
            "source": "healthy recordings have none; damaged graph replays 25 % and more",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding, for both ways of missing."""
    steps, gpu = analysis.steps, analysis.trace.table("gpu")
    wall = int(steps.wall_ns.sum())
    if not len(gpu) or wall <= 0:
        return Detection()
    inside = _inside(analysis)
    orphans = inside[analysis.links.gpu_launch[inside] < 0]
    gaps = analysis.gaps
    mine = np.flatnonzero(gaps.of("unknown"))
    idle = (gaps.end - gaps.start)[mine]
    orphan_percent = 100 * len(orphans) / max(len(inside), 1)
    unknown_percent = 100 * int(idle.sum()) / wall
    said = []
    if orphan_percent >= config.min_orphan_percent:
        said.append(
            f"{len(orphans):,} of {len(inside):,} GPU events in the steps have no recorded launch "
            "and count for no step or op"
        )
    if unknown_percent >= config.min_unknown_percent:
        said.append(
            f"{unknown_percent:.0f} % of the step is GPU idle that nothing recorded explains, as "
            "when kernels or graph replays are missing from the recording"
        )
    if not said:
        return Detection()
    longest = mine[np.argsort(-idle, kind="stable")]
    after = gaps.next_gpu[longest]
    ids = [*gpu.ints("id")[after[after >= 0]][:10], *gpu.ints("id")[orphans][:10]]
    draft = health_draft(
        CODE,
        NAME,
        title="GPU work or its launches are missing from the recording",
        insight="; ".join(said) + ".",
        action="Record again so that no kernel or launch is lost; until then distrust idle times.",
        impact="Idle time and its causes become true, and all GPU work finds its op.",
        where="the steps",
        evidence=Evidence(
            event_ids=tuple(dict.fromkeys(int(i) for i in ids)),
            counts={
                "GPU events without launch in the steps": len(orphans),
                "GPU events in the steps": len(inside),
                "idle of unknown cause, ms a step": round(float(idle.sum()) / 1e6 / len(steps), 3),
            },
        ),
        fix=record_again(
            "a recording without gaps",
            (
                "schedule = torch.profiler.schedule(wait=1, warmup=2, active=3)   # short, warmed\n"
                "# ROCm, or CUDA graphs cut short: a newer torch and driver record every replay"
            ),
            "the program can run again",
        ),
    )
    return Detection((draft,))


def _inside(analysis: Analysis) -> Ints:
    """Plausible `gpu` rows of the steps' windows, from the first that a step launched."""
    steps, gpu = analysis.steps, analysis.trace.table("gpu")
    own = gpu.ts[steps.gpu_step >= 0]
    first = max(int(steps.start[0]), int(own.min())) if len(own) else int(steps.start[0])
    rows = analysis.device_rows
    return rows[(gpu.ts[rows] >= first) & (gpu.ts[rows] < int(steps.end[-1]))]
