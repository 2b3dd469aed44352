"""MEM001 allocator-churn: every step asks the driver for memory, or gives it back.

## What it detects
`cudaMalloc` and `cudaFree` (`hipMalloc`, `hipFree`, and `cuMemCreate`, `cuMemMap`, `cuMemUnmap`,
`cuMemRelease` of expandable segments) in the steady state: in most steps after the first.

## Why it matters
PyTorch keeps freed memory and hands it out again without asking the driver. When the cache is
emptied, or does not fit, each step pays the driver again: a `cudaMalloc` takes up to milliseconds,
and `cudaFree` first waits until the GPU is idle.

## How it is measured
Calls of the driver's allocator by step; the first of several steps is left out. The price is the
step replayed without the host time of these calls, and without the waits that stand directly before
a free (`empty_cache` synchronises first).

## Example
    14 cudaMalloc and 14 cudaFree a step: 9.1 ms of host time a step

## Fix
Take `torch.cuda.empty_cache()` out of the loop; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`
for sizes that change; a smaller batch or activation checkpointing where memory runs out.

## False positives
The first step fills the cache: its cudaMalloc calls are no fault, and in a recording of one step
they cannot be told from churn (undetermined). Calls of the stream-ordered pool (cudaMallocAsync)
are cheap and are not counted; neither is pinned host memory.

## References
https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of_ops
from tracekit.replay.edits import Edits
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "MEM001"
NAME = "allocator-churn"

_DRIVER = re.compile(
    r"^(cuda|hip)(Malloc|Free)$|^(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess)(_v2)?$"
)
_FREE = re.compile(r"Free|Unmap|Release")


@dataclass(frozen=True)
class Config:
    """Thresholds of MEM001."""

    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, host time in the driver's allocator",
            "source": "below the 0.5 % that a step repeats to on an H200",
        },
    )
    min_single_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of a recording of one step, from where it is called undetermined",
            "source": "the severity 'low' begins there",
        },
    )
    min_steps_percent: float = field(
        default=50.0,
        metadata={
            "unit": "% of the steps after the first with such calls",
            "source": "judgement: less often is a cache that still grows, not churn",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    steps, launches = analysis.steps, analysis.trace.table("launches")
    if not len(launches):
        why = "the trace has no runtime calls, so allocations cannot be seen"
        return Detection(undetermined=(Undetermined(CODE, NAME, why),))
    calls = np.flatnonzero(launches.text("name").where(lambda n: bool(_DRIVER.match(n))))
    at = launches.ts[calls]
    step = np.searchsorted(steps.mark_start, at, "right") - 1
    # The last step ends with its mark; what follows is the recording's own end.
    inside = (step >= 0) & (at < max(int(steps.mark_end[-1]), int(steps.end[-1])))
    calls, step = calls[inside], step[inside]
    only, everywhere = len(steps) == 1, calls
    if not only:
        calls, step = calls[step > 0], step[step > 0]
    counted = 1 if only else len(steps) - 1
    wall = float(steps.wall_ns.sum() if only else steps.wall_ns[1:].sum())
    spent = float(launches.ints("dur")[calls].sum())
    if not len(calls) or 100 * spent < config.min_step_share_percent * wall:
        return Detection()
    if only:
        if 100 * spent < config.min_single_percent * wall:
            return Detection()
        why = (
            f"calls of the driver's allocator ({len(calls)}) take {spent / 1e6:.1f} ms, but a "
            "recording of one step cannot tell a cache being filled from churn"
        )
        return Detection(undetermined=(Undetermined(CODE, NAME, why),))
    if 100 * len(np.unique(step)) < config.min_steps_percent * counted:
        return Detection()
    return Detection((_draft(analysis, calls, everywhere, counted),))


def _draft(analysis: Analysis, calls: Ints, everywhere: Ints, counted: int) -> Draft:
    """`calls` are those after the first step; the fix also takes away the first step's."""
    launches = analysis.trace.table("launches")
    duration, names = launches.ints("dur")[calls], launches.text("name")
    frees = names.where(lambda n: bool(_FREE.search(n)))
    freeing = bool(frees[calls].any())
    waits = _before_frees(analysis, frees & np.isin(np.arange(len(launches)), everywhere))
    waited = float(launches.ints("dur")[waits].sum()) / 1e6 / counted
    spent = float(duration.sum()) / 1e6 / counted
    kinds = Counter(names[c] or "" for c in calls.tolist())
    listed = " and ".join(f"{n / counted:.3g} {name}" for name, n in kinds.most_common(2))
    gone = launches.take(everywhere)
    spans = np.stack([gone.ints("tid"), gone.ts, gone.end], axis=1)
    order = np.argsort(-duration, kind="stable")[:20]
    return Draft(
        code=CODE,
        name=NAME,
        title=(
            "every step gives memory back to the driver and asks for it again"
            if freeing
            else "every step asks the driver for more memory"
        ),
        insight=f"{listed} a step take {spent:.2f} ms of host time a step.",
        action=(
            "Take empty_cache() out of the loop; give the allocator room."
            if freeing
            else "Find what grows: sizes that change from step to step, or tensors that are kept."
        ),
        impact="The step no longer waits for the driver; a free also waits for the whole GPU.",
        edits=Edits(drop_waits=waits, remove_host=spans),
        pessimistic=Edits(remove_host=spans),
        evidence=Evidence(
            event_ids=tuple(int(i) for i in launches.ints("id")[calls[order]]),
            counts={
                **{f"{name} a step": round(n / counted, 2) for name, n in kinds.most_common(4)},
                "host time in them, ms a step": round(spent, 3),
                "waits directly before a free, ms a step": round(waited, 3),
            },
        ),
        where=where_of_ops(analysis, analysis.links.launch_op[calls[order]], f"{listed} a step"),
        fixes=(_NO_EMPTY_CACHE, _EXPANDABLE) if freeing else (_EXPANDABLE,),
        confidence="high" if freeing else "medium",
    )


def _before_frees(analysis: Analysis, frees: Bools) -> Ints:
    """Waits whose thread's next runtime call is one of these frees."""
    launches = analysis.trace.table("launches")
    order = np.lexsort((np.arange(len(launches)), launches.ints("tid"), launches.ints("pid")))
    same = launches.ints("tid")[order][1:] == launches.ints("tid")[order][:-1]
    before = order[:-1][same & frees[order[1:]]]
    return np.intersect1d(before, analysis.waits.call)


_NO_EMPTY_CACHE = Fix(
    title="no empty_cache in the loop",
    code=(
        "# torch.cuda.empty_cache()   <- remove; freed memory is reused without it\n"
        "torch.cuda.memory_summary()  # num_alloc_retries > 0: the memory really runs out"
    ),
    applies_when="no other process needs the memory between two steps",
    numerics="nothing",
)
_EXPANDABLE = Fix(
    title="expandable segments, or sizes that repeat",
    code=(
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n"
        "# and pad batches to a few lengths, so that freed blocks fit the next step"
    ),
    applies_when="sizes change from step to step, or memory is fragmented",
    numerics="nothing; padded positions must be masked",
)
