"""Why the GPU was idle: every gap inside the steps gets exactly one cause.

A gap ends with some GPU work. If that work spent most of the gap in the queue, the device itself
was slow to start it (`device`: latency between queued kernels, waits on another stream). Where
that lasts beyond belief the recording is to blame, not the device: kernels are missing from it (a
graph replay recorded in part), and the cause is `unknown`. Otherwise the host was late, and the
cause is what it did between the moment the GPU ran dry and the launch that ended the gap:

- `host_sync`: it was blocked in a wait for the GPU when the GPU ran dry;
- `allocator`: most of the time went to cudaMalloc / cudaFree and their kin;
- `compilation`: most of it to torch.compile, autotuning or loading of modules;
- `input`: most of it to the data loader, or to nothing recorded before the input's own copy;
- `other_host`: most of it to nothing recorded at all, or it lasted longer than any launch takes;
- `launch`: none of these: it was launching, one op after another.

`unknown` is also the cause where the launch of the work that ended the gap is not in the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.compilation import compiling
from tracekit.analysis.intervals import Intervals, complement, covered, union
from tracekit.trace.model import Trace
from tracekit.trace.table import Bools, Codes, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CAUSES = (
    "host_sync",
    "launch",
    "input",
    "allocator",
    "compilation",
    "other_host",
    "device",
    "unknown",
)

QUEUED_NS = 20_000
"""work launched this long before it began, and before the gap, was waiting in the queue"""
DEVICE_NS = 1_000_000
"""no device leaves queued work waiting longer than this: something ran that was not recorded"""
MAJORITY = 0.5
"""share of the host's time in a gap that makes an activity its cause"""
LAUNCH_NS = 2_000_000
"""preparing one launch never takes longer than this: the host was at something else"""
SILENT_NS = 1_000_000
"""a stretch without recorded events shorter than this is Python between two ops"""

LOADER = r"enumerate\(DataLoader\)|DataLoader\w*\.__next__"
"""names under which torch's DataLoader is recorded while a batch is awaited"""
_LOADER = re.compile(rf"{LOADER}|_BaseDataLoaderIter|DataLoader.*__next__|\.__next__$")


@dataclass(frozen=True)
class Gaps:
    """GPU idle stretches in the steps' windows, in time order; each has exactly one cause."""

    start: Ints
    end: Ints
    step: Ints
    """position of the step whose window holds it"""
    cause: Codes
    """index into CAUSES"""
    next_gpu: Ints
    """`gpu` row that ended the gap; -1 at a window's end"""
    launch: Ints
    """`launches` row of that work; -1 where not recorded"""
    call: Ints
    """`launches` row of the call that explains the cause (the wait, the cudaMalloc); -1 if none"""

    def of(self, cause: str) -> Bools:
        """Mask of the gaps with this cause."""
        mask: Bools = self.cause == CAUSES.index(cause)
        return mask


def explain_gaps(analysis: Analysis) -> Gaps:
    """Find the gaps of the analysed device and their causes."""
    steps, trace = analysis.steps, analysis.trace
    start, end, step = _idle(analysis)
    gpu, launches = trace.table("gpu"), trace.table("launches")
    rows = analysis.device_rows
    if not len(rows) or not len(start):
        none = np.full(len(start), -1, np.int64)
        cause = np.full(len(start), CAUSES.index("other_host"), np.int32)
        return Gaps(start, end, step, cause, none, none, none)
    at = np.searchsorted(gpu.ts[rows], end, "left")
    after = rows[np.minimum(at, len(rows) - 1)]
    next_gpu = np.where((at < len(rows)) & (gpu.ts[after] == end), after, -1)
    launch = np.where(next_gpu >= 0, analysis.links.gpu_launch[np.maximum(next_gpu, 0)], -1)
    cause = np.full(len(start), CAUSES.index("unknown"), np.int32)
    call = np.full(len(start), -1, np.int64)
    if len(launches):
        launched = np.where(launch >= 0, launches.ts[np.maximum(launch, 0)], end)
        returned = np.where(launch >= 0, launches.end[np.maximum(launch, 0)], end)
        # The host's part of the gap: from the GPU running dry to the launch call's return.
        until = np.clip(returned, start + 1, end)
        late = (launch >= 0) | ((next_gpu < 0) & (len(steps) > 0))
        _host_causes(
            analysis, start, until, np.clip(launched, start, end), next_gpu, late, cause, call
        )
        # Long enough queued, and for most of the gap.
        waited = end - np.maximum(returned, start)
        queued = (launch >= 0) & (end - launched > QUEUED_NS) & (waited > MAJORITY * (end - start))
        cause[queued] = CAUSES.index("device")
        call[queued] = -1
    cause[_inside_graph(analysis, next_gpu)] = CAUSES.index("device")
    unrecorded = (cause == CAUSES.index("device")) & (end - start > DEVICE_NS)
    cause[unrecorded] = CAUSES.index("unknown")
    return Gaps(start, end, step, cause, next_gpu, launch, call)


def _idle(analysis: Analysis) -> tuple[Ints, Ints, Ints]:
    """Gaps cut at the windows' borders: start, end, step."""
    steps = analysis.steps
    if analysis.device < 0:  # no GPU: each step is one stretch of host time
        return steps.start, steps.end, np.arange(len(steps))
    start, end = complement(analysis.busy.busy, int(steps.start[0]), int(steps.end[-1]))
    # Windows touch, unless no step launched anything: what lies between CPU marks is no step's.
    borders = np.unique(np.concatenate([steps.end[:-1], steps.start[1:]]))
    cut = borders[(np.searchsorted(start, borders) > np.searchsorted(end, borders, "right"))]
    start, end = np.sort(np.append(start, cut)), np.sort(np.append(end, cut))
    step = np.minimum(np.searchsorted(steps.end, start, "right"), len(steps) - 1)
    inside = start >= steps.start[step]
    return start[inside], end[inside], step[inside]


def _inside_graph(analysis: Analysis, next_gpu: Ints) -> Bools:
    """Gaps between two pieces of work of one launch: a graph's own, whoever launched it."""
    gpu, rows = analysis.trace.table("gpu"), analysis.device_rows
    correlation = gpu.ints("correlation")
    position = np.searchsorted(rows, next_gpu)
    previous = rows[np.maximum(position - 1, 0)]
    inside: Bools = (
        (next_gpu >= 0)
        & (position > 0)
        & (correlation[next_gpu] > 0)
        & (correlation[previous] == correlation[next_gpu])
    )
    return inside


def _host_causes(
    analysis: Analysis,
    start: Ints,
    until: Ints,
    launched: Ints,
    next_gpu: Ints,
    late: Bools,
    cause: Codes,
    call: Ints,
) -> None:
    """Fill `cause` and `call` for the gaps in which the host was late; later rules win."""
    trace = analysis.trace
    length = until - start
    cause[late] = CAUSES.index("launch")

    silent = length - covered(_host_activity(trace), start, until)
    quiet = late & (silent > SILENT_NS) & (silent > MAJORITY * length)
    cause[quiet | (late & (length > LAUNCH_NS))] = CAUSES.index("other_host")

    gpu = trace.table("gpu")
    to_device = gpu.text("name").where(lambda n: "HtoD" in n)[np.maximum(next_gpu, 0)]
    cause[quiet & to_device & (next_gpu >= 0)] = CAUSES.index("input")
    for name, busy in (
        ("input", _named(trace, _LOADER)),
        ("compilation", compiling(trace)),
    ):
        cause[late & (covered(busy, start, until) > MAJORITY * length)] = CAUSES.index(name)

    launches = trace.table("launches")
    memory = launches.text("kind").where(lambda k: k in ("alloc", "free"))
    rows = np.flatnonzero(memory)
    allocating = union(launches.ts[rows], launches.end[rows])
    hit = late & (covered(allocating, start, until) > MAJORITY * length)
    cause[hit] = CAUSES.index("allocator")
    call[hit] = _last_ending_before(launches.end[rows], rows, until[hit])

    _blocked(analysis, start, launched, late, cause, call)


def _blocked(
    analysis: Analysis, start: Ints, launched: Ints, late: Bools, cause: Codes, call: Ints
) -> None:
    """Gaps that the GPU entered while the host was blocked in a wait for it."""
    launches, waits = analysis.trace.table("launches"), analysis.waits
    real = waits.call[waits.awaited >= 0]
    if not len(real):
        return
    order = np.argsort(launches.end[real], kind="stable")
    real = real[order]
    ends, begins = launches.end[real], launches.ts[real]
    last = np.searchsorted(ends, launched, "right") - 1
    row = np.maximum(last, 0)
    hit = late & (last >= 0) & (begins[row] < start) & (ends[row] >= start)
    cause[hit] = CAUSES.index("host_sync")
    call[hit] = real[row[hit]]


def _last_ending_before(ends: Ints, rows: Ints, at: Ints) -> Ints:
    order = np.argsort(ends, kind="stable")
    position = np.searchsorted(ends[order], at, "right") - 1
    out: Ints = rows[order[np.maximum(position, 0)]]
    return out


def _host_activity(trace: Trace) -> Intervals:
    """When any host thread was in a recorded op or runtime call."""
    ops, launches = trace.table("ops"), trace.table("launches")
    return union(np.concatenate([ops.ts, launches.ts]), np.concatenate([ops.end, launches.end]))


def _named(trace: Trace, pattern: re.Pattern[str]) -> Intervals:
    starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for kind in ("annotations", "ops", "python"):
        table = trace.table(kind)
        hit = table.text("name").where(lambda n: bool(pattern.search(n)))
        starts.append(table.ts[hit])
        ends.append(table.end[hit])
    return union(np.concatenate(starts), np.concatenate(ends))
