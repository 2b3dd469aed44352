"""The replayable model of recorded steps, built once a trace.

Three things move in it:

- the **host time lines**: the calls that launch work or wait for it, each following another by the
  recorded time between them (`tracekit.replay.host`);
- the **streams**: each runs its work in launch order. A piece of work starts when its launch
  has reached the device, what stood before it on the stream has ended, and what it was seen to
  wait for on another stream has ended;
- the **waits**: the host stops until the awaited work has ended.

Only a contiguous run of typical steps is modelled (`MAX_ROWS`), repeated until the step time has
settled, so that what a fix does to a program in full flow is what is priced. The repetition also
closes the ring: the last modelled step is followed by the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.intervals import Intervals
from tracekit.analysis.steps import Steps
from tracekit.replay.device import device_times
from tracekit.replay.host import end_silence, host_activity, host_events, predecessors
from tracekit.trace.table import Bools, Floats, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

MAX_ROWS = 8_000
"""GPU rows modelled, unless one step alone has more"""
WAIT_CALL_NS = 4_000
"""host time of a wait call that has nothing to wait for"""


@dataclass(frozen=True)
class StepModel:
    """Arrays of one ring of modelled steps. Times int64 ns, rows in replay order.

    Calls (index c): one per launching or waiting host call. Work (index w): one per GPU row, in
    order of (call, recorded start).
    """

    steps: int
    """modelled steps"""
    first_step: int
    """position of the first of them in the analysis' steps"""
    recorded_ns: Ints
    """their recorded periods"""
    call_row: Ints
    """per call: row in `launches`; -1 for the pseudo call that carries orphans"""
    call_step: Ints
    call_pred: Ints
    """per call: index of the call that it follows on the host; -1 follows the round's beginning"""
    call_lead: Ints
    """host time before the call: from the anchor of the call it follows (that one's start, or its
    end if it waited) to this call's start"""
    call_anchor: Ints
    """recorded time of the anchor that `call_lead` counts from (for edits of host time)"""
    call_start: Ints
    call_dur: Ints
    wait_work: Ints
    """per call: index of the work it waits for; -1 none"""
    is_wait: Bools
    wait_tail: Ints
    """per waiting call: from the end of the awaited work to the call's return"""
    wait_idle: Ints
    """per waiting call: its duration when there is nothing to wait for"""
    tail_ns: int
    """host time from the last anchor to the end of the last step's mark"""
    work_row: Ints
    """per work: row in `gpu`"""
    work_call: Ints
    """per work: index of its call"""
    work_stream: Ints
    """per work: dense stream number"""
    work_dur: Ints
    work_offset: Ints
    """launch start to earliest start on the device"""
    work_gap: Ints
    """to the end of the work before it on the stream, at least; negative where they overlapped"""
    work_hold: Ints
    """delay on the device that nothing in the file explains; it blocks the stream"""
    work_after: Ints
    """per work: index of work on another stream that it waits for; -1 none"""
    work_delay: Ints
    """from the end of that work to the start of this"""
    host_events: Floats
    """per call: recorded CPU events in its lead, for the profiler's overhead"""
    end_silence: Ints
    """per call: silent host time in its lead before the mark of its step, ns; 0 within a step"""
    host_covered: Ints
    """per call: how much of its lead recorded CPU events cover, ns"""
    activity: Intervals
    """when any host thread was at a recorded event"""
    streams: int
    notes: tuple[str, ...] = ()

    @property
    def recorded_ms(self) -> float:
        """Median recorded period of the modelled steps, ms."""
        return float(np.median(self.recorded_ns)) / 1e6


def build(analysis: Analysis) -> StepModel | None:
    """The model of the analysis' steps; None when they launched no GPU work."""
    steps, trace = analysis.steps, analysis.trace
    step_of = steps.gpu_step
    counts = np.bincount(step_of[step_of >= 0], minlength=len(steps))
    if not counts.any():
        return None
    lo, hi = _typical_run(steps, counts)
    gpu, launches, links = trace.table("gpu"), trace.table("launches"), analysis.links

    rows = np.flatnonzero((step_of >= lo) & (step_of < hi))
    waits = analysis.waits
    begin, finish = int(steps.mark_start[lo]), int(steps.mark_end[hi - 1])
    if hi < len(steps):
        finish = int(steps.mark_start[hi])
    inside = (launches.ts[waits.call] >= begin) & (launches.ts[waits.call] < finish)
    call_row = np.union1d(links.gpu_launch[rows], waits.call[inside])
    call_row = call_row[np.argsort(launches.ts[call_row], kind="stable")]
    index_of = np.full(len(launches), -1, np.int64)
    index_of[call_row] = np.arange(len(call_row))

    rows, work_call = _with_orphans(analysis, rows, index_of)
    order = np.lexsort((gpu.ts[rows], work_call))
    rows, work_call = rows[order], work_call[order]
    work_of = np.full(len(gpu), -1, np.int64)
    work_of[rows] = np.arange(len(rows))

    start, dur = launches.ts[call_row], launches.ints("dur")[call_row]
    is_wait = np.zeros(len(call_row), bool)
    wait_work = np.full(len(call_row), -1, np.int64)
    where = index_of[waits.call[inside]]
    is_wait[where] = True
    awaited = waits.awaited[inside]
    wait_work[where] = np.where(awaited >= 0, work_of[np.maximum(awaited, 0)], -1)
    ended = gpu.end[rows[np.maximum(wait_work, 0)]] if len(rows) else start
    tail = np.where(wait_work >= 0, np.maximum(start + dur - ended, 0), 0)
    idle = np.minimum(dur, WAIT_CALL_NS)
    # A wait that did not have to wait may have to once the step has changed.
    unbound = is_wait & (wait_work < 0)
    wait_work[unbound] = _last_ended(
        gpu.end[rows], work_call, np.flatnonzero(unbound), start[unbound]
    )
    idle[unbound] = dur[unbound]

    anchor = np.where(is_wait, start + dur, start)
    pred = predecessors(analysis, call_row, anchor)
    previous = np.where(pred >= 0, anchor[np.maximum(pred, 0)], begin)
    lead = np.maximum(start - previous, 0)
    streams, stream = np.unique(
        np.stack([gpu.ints("device")[rows], gpu.ints("stream")[rows]]), axis=1, return_inverse=True
    )
    stream = stream.ravel()
    carried = _carried(analysis, rows, stream, streams)
    times = device_times(gpu.ts[rows], gpu.end[rows], stream, carried, work_call, start, dur)
    if len(rows) and gpu.ts[rows].min() == steps.start[lo]:
        # What the very first work waited for was before the modelled steps.
        times.hold[gpu.ts[rows].argmin()] = 0
    # A graph launch's own time is in the lead of the call that follows it.
    is_graph = launches.text("kind").where(lambda k: k == "graph")[call_row]
    held = np.bincount(work_call, minlength=len(call_row)) * is_graph
    nodes = np.where(pred >= 0, held[np.maximum(pred, 0)], 0)
    events, host_covered = host_events(analysis, previous, start, nodes)
    return StepModel(
        steps=hi - lo,
        first_step=lo,
        recorded_ns=steps.wall_ns[lo:hi],
        call_row=call_row,
        call_step=np.clip(
            np.searchsorted(steps.mark_start, start, "right") - 1 - lo, 0, hi - lo - 1
        ),
        call_pred=pred,
        call_lead=lead,
        call_anchor=previous,
        call_start=start,
        call_dur=dur,
        wait_work=wait_work,
        is_wait=is_wait,
        wait_tail=tail,
        wait_idle=idle,
        tail_ns=max(finish - int(anchor.max()), 0) if len(anchor) else 0,
        work_row=rows,
        work_call=work_call,
        work_stream=stream,
        work_dur=gpu.ints("dur")[rows],
        work_offset=times.offset,
        work_gap=times.gap,
        work_hold=times.hold,
        work_after=times.after,
        work_delay=times.delay,
        host_events=events,
        end_silence=end_silence(analysis, steps.mark_start[lo:hi], previous, start),
        host_covered=host_covered,
        activity=host_activity(analysis),
        streams=streams.shape[1],
        notes=(
            (f"savings are replayed on {hi - lo} of {len(steps)} steps",)
            if hi - lo < len(steps)
            else ()
        ),
    )


def _typical_run(steps: Steps, counts: Ints) -> tuple[int, int]:
    """The contiguous run of steps, within MAX_ROWS, whose median is nearest to the whole's.

    The first step of several is left out where the run allows: it begins with the recording.
    """
    total = len(steps)
    size = total
    while size > 1 and int(np.convolve(counts, np.ones(size, np.int64), "valid").min()) > MAX_ROWS:
        size -= 1
    if size == total:
        return 0, total
    walls = steps.wall_ns
    spread = [
        abs(float(np.median(walls[i : i + size])) - steps.median_ns)
        for i in range(total - size + 1)
    ]
    lo = int(np.argmin(spread))
    return lo, lo + size


def _carried(analysis: Analysis, rows: Ints, stream: Ints, streams: Ints) -> Ints:
    """[streams] when each stream was done with what ran on it before the modelled work."""
    gpu = analysis.trace.table("gpu")
    device, number = gpu.ints("device"), gpu.ints("stream")
    out = np.full(streams.shape[1], np.iinfo(np.int64).min // 2, np.int64)
    for s, (d, n) in enumerate(streams.T.tolist()):
        first = int(gpu.ts[rows[stream == s]].min())
        earlier = (device == d) & (number == n) & (gpu.ts < first) & ~analysis.implausible
        if earlier.any():
            out[s] = int(gpu.end[earlier].max())
    return out


def _with_orphans(analysis: Analysis, rows: Ints, index_of: Ints) -> tuple[Ints, Ints]:
    """Add unlaunched work between the modelled work: it occupies its stream, and goes along with
    the launched work before it there (for the replay alone; nothing is attributed to a step)."""
    gpu, launch = analysis.trace.table("gpu"), analysis.links.gpu_launch
    call = index_of[launch[rows]]
    lo, hi = int(gpu.ts[rows].min()), int(gpu.ts[rows].max())
    lost = np.flatnonzero((launch < 0) & ~analysis.implausible & (gpu.ts >= lo) & (gpu.ts <= hi))
    if not len(lost):
        return rows, call
    both = np.concatenate([rows, lost])
    calls = np.concatenate([call, np.full(len(lost), -1, np.int64)])
    order = np.lexsort((gpu.ts[both], gpu.ints("stream")[both], gpu.ints("device")[both]))
    both, calls = both[order], calls[order]
    key = np.stack([gpu.ints("device")[both], gpu.ints("stream")[both]])
    new = np.ones(len(both), bool)
    new[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    segment = np.cumsum(new) - 1
    # Carry the last known call forward within a stream.
    known = np.where(calls >= 0, np.arange(len(both)), -1)
    known = np.maximum.accumulate(known)
    same = (known >= 0) & (segment[np.maximum(known, 0)] == segment)
    calls = np.where(same, calls[np.maximum(known, 0)], -1)
    keep = calls >= 0
    return both[keep], calls[keep]


def _last_ended(ends: Ints, work_call: Ints, calls: Ints, starts: Ints) -> Ints:
    """Per unbound wait: the work launched before it that ended last, as long as it had ended."""
    out = np.full(len(calls), -1, np.int64)
    if not len(ends):
        return out
    before = np.searchsorted(work_call, calls, "left")
    latest = np.maximum.accumulate(ends)
    is_latest = np.flatnonzero(ends == latest)
    for i, (n, at) in enumerate(zip(before.tolist(), starts.tolist(), strict=True)):
        if n == 0:
            continue
        candidate = int(is_latest[np.searchsorted(is_latest, n) - 1])
        if ends[candidate] <= at:
            out[i] = candidate
    return out
