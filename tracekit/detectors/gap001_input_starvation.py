"""GAP001 input-starvation: the GPU waits for the next batch.

## What it detects
GPU idle during which the host was fetching its input: inside a DataLoader's `__next__`, or in a
stretch without any recorded event that ends in the copy of the input to the device.

## Why it matters
Reading, decoding and augmenting in the training process happen between two steps instead of beside
them. Public traces spend up to 88 % of the CPU in `__next__`, with the GPU idle for 70 to 92 %.

## How it is measured
The idle is the breakdown's `idle_input`. The price is the step replayed with the loader's host time
shortened to what is left when batches are prepared beside the step: with `workers` processes a
batch is ready every (loader time / workers), so what remains is that less the time of the rest of
the step; as long as the workers keep up, the batch is there when the step wants it. Both times are
taken without the profiler's share where an unprofiled step time is known. The range: one background
worker only, up to an input that is always there. Where the loader has workers already, twice as
many (range: half as many more) shorten the step's period likewise.

## Example
    enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ takes 4.0 ms a step; GPU idle 3.9 ms

## Fix
`num_workers`, `pin_memory`, `persistent_workers` and a `prefetch_factor`; a small data set belongs
on the GPU as a whole.

## False positives
A loader that is slow but hidden (the host runs ahead, the GPU never runs dry) is no finding. A
pause before the first step's copy only is the start of an epoch. A silent stretch is the loader's
by its place alone: evaluation, logging or a checkpoint between two steps look the same, so read
what the finding names, and record with `with_stack=True` to see what ran.

## References
https://docs.pytorch.org/docs/stable/data.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html (asynchronous data loading)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.inputs import (
    InputTime,
    eventful_ns,
    filled_by,
    loader_time,
    silent_time,
)
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined, Where
from tracekit.detectors.place import where_of
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "GAP001"
NAME = "input-starvation"


@dataclass(frozen=True)
class Config:
    """Thresholds of GAP001."""

    min_idle_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the step that the GPU idles for input",
            "source": "H200 recordings of a healthy loader have 0.6 % of silence between two steps",
        },
    )
    min_steps_percent: float = field(
        default=50.0,
        metadata={
            "unit": "% of the steps after the first in which the GPU idles for input",
            "source": "judgement: less often is an epoch's start, not every batch",
        },
    )
    workers: int = field(
        default=4,
        metadata={
            "unit": "loader processes",
            "source": "judgement: what a machine with one GPU can spare",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    steps, gaps = analysis.steps, analysis.gaps
    if not len(analysis.trace.table("gpu")):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    starving = gaps.of("input")
    idle = np.bincount(gaps.step[starving], (gaps.end - gaps.start)[starving], minlength=len(steps))
    wall = float(steps.wall_ns.sum())
    if wall <= 0 or 100 * idle.sum() < config.min_idle_percent * wall:
        return Detection()
    steady = idle[1:] if len(steps) > 1 else idle
    if 100 * (steady > 0).mean() < config.min_steps_percent:
        return Detection()
    found, kind = loader_time(analysis), "single"
    if not found.total_ns:
        found, kind = silent_time(analysis), "silent"
    elif any("MultiProcessing" in n for n in found.names):
        kind = "workers"
    if not found.total_ns:
        why = f"the GPU idles {100 * idle.sum() / wall:.0f} % for input, but not where was recorded"
        return Detection(undetermined=(Undetermined(CODE, NAME, why),))
    return Detection((_draft(analysis, config, found, kind, float(idle.sum())),))


def _left(analysis: Analysis, found: InputTime, kind: str, factor: float) -> float:
    """Share of the loader's host time that is still waited for when batches come `factor` times
    as fast as now, beside the step: until the batch is ready, less the host's other time."""
    loading, period = _unprofiled(analysis, found)
    # Workers produce one batch a period already; a loader in the process takes its own time.
    ready = (period if kind == "workers" else loading) / factor
    return min(max(ready - max(period - loading, 0.0), 0.0) / max(loading, 1.0), 1.0)


def _unprofiled(analysis: Analysis, found: InputTime) -> tuple[float, float]:
    """The loader's time and the step's, ns, without the profiler as far as that is known.

    The profiler lengthens the rest of the step, and of the loader's time only what consists of
    recorded events: a sleep, a read or a decoder in C takes as long as ever.
    """
    count = max(len(analysis.steps), 1)
    loading, period = found.total_ns / count, analysis.steps.median_ns
    if analysis.unprofiled_ms is None or period <= 0:
        return loading, period
    step = min(analysis.unprofiled_ms * 1e6, period)
    in_events = min(eventful_ns(analysis, found.spans) / count, loading)
    return min(loading - in_events * (1 - step / period), step), step


def _without(spans: Ints, left: float) -> Edits:
    """The host time is gone, but for this share of each stretch."""
    kept = ((spans[:, 2] - spans[:, 1]) * left).astype(np.int64)
    return Edits(remove_host=np.stack([spans[:, 0], spans[:, 1] + kept, spans[:, 2]], axis=1))


def _draft(analysis: Analysis, config: Config, found: InputTime, kind: str, idle: float) -> Draft:
    count = max(len(analysis.steps), 1)
    idle_ms, loading_ms = idle / 1e6 / count, found.total_ns / 1e6 / count
    best, least = (2.0, 1.5) if kind == "workers" else (float(config.workers), 1.0)
    filled = filled_by(analysis, found.spans)
    what = {
        "single": f"{found.names[0] if found.names else ''} runs in the training process",
        "workers": "the DataLoader's workers are slower than the step",
        "silent": "nothing was recorded on the thread that then copies the input",
    }[kind]
    lines = [what]
    if filled:
        lines.append(f"Python: {filled}")
    gaps, gpu = analysis.gaps, analysis.trace.table("gpu")
    starving = gaps.of("input")
    order = np.argsort(-(gaps.end - gaps.start)[starving], kind="stable")[:20]
    ended = gaps.next_gpu[starving][order]
    ended = ended[ended >= 0]
    return Draft(
        code=CODE,
        name=NAME,
        title=_TITLES[kind],
        insight=(
            f"The GPU idles {idle_ms:.2f} ms a step while the host waits for its next batch: "
            f"{what}, for {loading_ms:.2f} ms a step."
        ),
        action=(
            "Give the DataLoader more workers, or make its items cheaper."
            if kind == "workers"
            else "Prepare batches beside the step: DataLoader workers, or the data set on the GPU."
        ),
        impact="The step becomes as long as its GPU work and launches, as far as batches keep up.",
        edits=_without(found.spans, _left(analysis, found, kind, best)),
        pessimistic=_without(found.spans, _left(analysis, found, kind, least)),
        optimistic=_without(found.spans, 0.0),
        evidence=Evidence(
            event_ids=tuple(int(i) for i in gpu.ints("id")[ended]),
            counts={
                "GPU idle for input, ms a step": round(idle_ms, 3),
                "host waiting for input, ms a step": round(loading_ms, 3),
                "waits a step": round(len(found.spans) / count, 2),
            },
            lines=tuple(lines),
        ),
        where=_where(analysis, found, kind, loading_ms),
        fixes=_fixes(kind, config.workers),
        confidence="medium" if kind == "silent" else "high",
    )


def _where(analysis: Analysis, found: InputTime, kind: str, loading_ms: float) -> Where:
    if kind == "silent":
        return where_of(
            analysis, found.copies, f"before the input's copy, {loading_ms:.2f} ms a step"
        )
    name = found.names[0].split("#")[-1]
    return Where(text=name, ops=(found.names[0],), phase="loader")


_TITLES = {
    "single": "the GPU waits for a DataLoader without workers",
    "workers": "the GPU waits for the DataLoader's workers",
    "silent": "the GPU waits for the next batch",
}


def _fixes(kind: str, workers: int) -> tuple[Fix, ...]:
    number = "2 * workers" if kind == "workers" else str(workers)
    loader = Fix(
        title="more loader workers" if kind == "workers" else "loader workers",
        code=(
            f"loader = DataLoader(dataset, batch_size, num_workers={number}, pin_memory=True,\n"
            "                    persistent_workers=True, prefetch_factor=4)\n"
            "x = x.to('cuda', non_blocking=True)"
        ),
        applies_when="the machine has CPU cores to spare; the data set can be pickled",
        numerics="nothing, but random augmentation draws from each worker's own seed",
    )
    resident = Fix(
        title="the data set on the GPU",
        code=(
            "images = images_uint8.to('cuda')                          # once\n"
            "at = torch.randint(len(images), (batch,), device='cuda')\n"
            "x = images[at].float().div_(127.5).sub_(1)                # no copy, no sync"
        ),
        applies_when="the data set fits in GPU memory and its augmentation can run there",
        numerics="nothing; sampling order differs",
    )
    return loader, resident
