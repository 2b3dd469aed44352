"""Where each training step begins and ends (accounting law 3).

Boundaries come from the best evidence the trace has (`tracekit.analysis.marks`), and `source`
says which. A step is what the host launched between two marks; its wall time is the period at
which steps *finish*, because the host runs ahead: the CPU mark of a graphed step lasts 2 ms
where the step takes 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.marks import Marks, find_marks
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

UNRECORDED_NS = 1_000_000
"""the first work of a recording, queued longer than this, waited behind work not in the file"""


@dataclass(frozen=True)
class Steps:
    """Steps of a trace. Arrays are one entry a step; times int64 ns.

    Step k's window is [start[k], end[k]): windows of consecutive steps touch.
    """

    source: str
    """'ProfilerStep#', 'annotation NAME', 'graph launches', 'optimizer steps', 'repetition',
    'whole trace'"""
    index: Ints
    """number of each step in the trace, from 0 (differs from position under --steps)"""
    mark_start: Ints
    """CPU mark of the step"""
    mark_end: Ints
    start: Ints
    """window: from the previous step's end"""
    end: Ints
    """window: to its own last GPU work"""
    gpu_step: Ints
    """per `gpu` row: position of the step that launched it; -1 carry-in, orphan or outside"""
    carry_in: int = 0
    """GPU rows launched before the first step, or unlaunched and running before its first work"""
    orphans: int = 0
    """GPU rows whose launch is not in the file (carry-in among them)"""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.start)

    @property
    def wall_ns(self) -> Ints:
        """Period of each step, ns."""
        wall: Ints = self.end - self.start
        return wall

    @property
    def median_ns(self) -> float:
        """The step time: median of the periods, ns."""
        return float(np.median(self.wall_ns)) if len(self) else 0.0


def find_steps(analysis: Analysis) -> Steps:
    """Steps of the analysed trace, cut down to `--steps` where asked.

    Raises:
        ValueError: if the wanted range holds no step.
    """
    trace, links = analysis.trace, analysis.links
    gpu = trace.table("gpu")
    marks = find_marks(trace, links)
    sane = ~analysis.implausible
    launch_ts = _launch_start(analysis)
    step = _step_of(launch_ts, marks)
    step[~sane] = -1
    carry = _carry_in(gpu.ts, launch_ts, step, marks, sane)
    start, end, notes = _windows(gpu.end, step, carry, marks)
    start, unseen = _after_unrecorded(analysis, start, end, step)
    notes += unseen
    steps = Steps(
        source=marks.source,
        index=np.arange(len(marks.start)),
        mark_start=marks.start,
        mark_end=marks.end,
        start=start,
        end=end,
        gpu_step=step,
        carry_in=int(carry.sum()),
        orphans=int((links.gpu_launch < 0).sum()),
        notes=marks.notes + notes,
    )
    wanted = analysis.options.steps
    return steps if wanted is None else _cut(steps, *wanted)


def _launch_start(analysis: Analysis) -> Ints:
    """When each GPU row was launched; -1 for orphans."""
    launch = analysis.links.gpu_launch
    starts = analysis.trace.table("launches").ts
    if not len(starts):
        return np.full(len(launch), -1, np.int64)
    out: Ints = np.where(launch >= 0, starts[np.maximum(launch, 0)], -1)
    return out


def _step_of(launch_ts: Ints, marks: Marks) -> Ints:
    """Position of the step whose mark a launch falls in; between two marks it is the earlier
    one's. -1 before the first, after the last, and for orphans."""
    at = np.searchsorted(marks.start, launch_ts, "right") - 1
    inside = (launch_ts >= 0) & (at >= 0) & (launch_ts <= marks.end[-1])
    step: Ints = np.where(inside, at, -1)
    return step


def _carry_in(gpu_ts: Ints, launch_ts: Ints, step: Ints, marks: Marks, sane: Bools) -> Bools:
    before = (launch_ts >= 0) & (launch_ts < marks.start[0])
    own = gpu_ts[step >= 0]
    first_own = int(own.min()) if len(own) else int(marks.end[-1])
    carry: Bools = sane & (before | ((launch_ts < 0) & (gpu_ts < first_own)))
    return carry


def _windows(
    gpu_end: Ints, step: Ints, carry: Bools, marks: Marks
) -> tuple[Ints, Ints, tuple[str, ...]]:
    count = len(marks.start)
    last_work = np.full(count, -1, np.int64)
    np.maximum.at(last_work, step[step >= 0], gpu_end[step >= 0])
    idle_steps = int((last_work < 0).sum())
    notes: tuple[str, ...] = ()
    if idle_steps == count:
        return marks.start, marks.end, notes
    if idle_steps:
        notes = (
            f"{idle_steps} of {count} steps launched no GPU work; they end with their CPU mark",
        )
    if count == 1:
        end = np.maximum(marks.end, last_work)
        return marks.start, end, notes
    end = np.where(last_work >= 0, last_work, marks.end)
    end = np.maximum.accumulate(end)
    carried = int(gpu_end[carry].max()) if carry.any() else 0
    # Carry-in that outlasts the whole first step leaves it an empty window, never a negative one.
    first = min(max(int(marks.start[0]), carried), int(end[0]))
    start = np.concatenate(([first], end[:-1]))
    return start, end, notes


def _after_unrecorded(
    analysis: Analysis, start: Ints, end: Ints, step: Ints
) -> tuple[Ints, tuple[str, ...]]:
    """Where the first work of all sat in the queue for long, the GPU was busy with work from before
    the recording that is not in the file: carry-in too, which ends when that first work begins."""
    gpu, launches = analysis.trace.table("gpu"), analysis.trace.table("launches")
    rows = np.flatnonzero(step >= 0)
    if not len(rows):
        return start, ()
    first = int(rows[gpu.ts[rows].argmin()])
    began = int(gpu.ts[first])
    launched = int(launches.end[analysis.links.gpu_launch[first]])
    if began - max(launched, int(start[0])) < UNRECORDED_NS or began >= int(end[0]):
        return start, ()
    queued = (began - launched) / 1e6
    start = np.concatenate(([began], start[1:]))
    return start, (
        f"the first step's work waited {queued:.1f} ms in the queue behind work that is not in the "
        "file; the step is counted from where its own work began",
    )


def _cut(steps: Steps, first: int, last: int) -> Steps:
    keep = (steps.index >= first) & (steps.index < last)
    if not keep.any():
        raise ValueError(
            f"--steps {first}:{last} holds none of the trace's {len(steps)} steps "
            f"(0:{len(steps)}, from {steps.source})"
        )
    position = np.full(len(steps) + 1, -1, np.int64)
    position[:-1][keep] = np.arange(int(keep.sum()))
    return Steps(
        steps.source,
        steps.index[keep],
        steps.mark_start[keep],
        steps.mark_end[keep],
        steps.start[keep],
        steps.end[keep],
        position[steps.gpu_step],
        steps.carry_in,
        steps.orphans,
        steps.notes,
    )
