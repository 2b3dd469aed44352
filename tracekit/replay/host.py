"""The host's time lines: which call each call follows, and what was recorded in between.

A call follows the one before it on its own thread as long as that thread was at recorded work when
any other thread last got somewhere. Otherwise its thread was waiting for the others (the main
thread for the autograd thread, the autograd thread for its next backward), and the call follows
the last call of any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.intervals import Intervals, contains, covered, union
from tracekit.trace.table import Floats, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

NODE_EVENTS = 0.3
"""recording a graph launch costs the host this much of an event for each kernel in it (H200: graph
launches of 63 to 1,290 kernels are recorded as 1.1 to 2.9 us a kernel)"""


def predecessors(analysis: Analysis, call_row: Ints, anchor: Ints) -> Ints:
    """Per call (in order of start): index of the call whose anchor it follows; -1 for the first.

    Args:
        call_row: rows of `launches`, in order of start.
        anchor: per call, the time from which the next host time counts: its start, or its end
            where it waits.
    """
    launches, ops = analysis.trace.table("launches"), analysis.trace.table("ops")
    tid, start = launches.ints("tid")[call_row], launches.ts[call_row]
    n = len(call_row)
    by_anchor = np.argsort(anchor, kind="stable")
    at = np.searchsorted(anchor[by_anchor], start, "left") - 1
    last = np.where(at >= 0, by_anchor[np.maximum(at, 0)], -1)
    threads = np.unique(tid)
    if len(threads) == 1:
        return np.arange(n) - 1
    pred = last.copy()
    op_start, op_end, call_start, call_end = ops.ts, ops.end, launches.ts, launches.end
    ops_of, calls_of = _rows_of(ops.ints("tid")), _rows_of(launches.ints("tid"))
    mine_of = _rows_of(tid)
    for thread in threads.tolist():
        mine = mine_of(thread)
        own = np.concatenate(([-1], mine[:-1]))
        busy_ops, busy_calls = ops_of(thread), calls_of(thread)
        busy = union(
            np.concatenate([op_start[busy_ops], call_start[busy_calls]]),
            np.concatenate([op_end[busy_ops], call_end[busy_calls]]),
        )
        other = last[mine]
        elsewhere = (other >= 0) & (tid[np.maximum(other, 0)] != thread)
        working = contains(busy, anchor[np.maximum(other, 0)])
        pred[mine] = np.where(elsewhere & ~working, other, own)
    # A call never follows itself or a later one (equal times).
    late = pred >= np.arange(n)
    pred[late] = np.arange(n)[late] - 1
    return pred


def _rows_of(tid: Ints) -> Callable[[int], Ints]:
    """A function that gives a thread's rows, in order: a trace may have a hundred thousand."""
    order = np.argsort(tid, kind="stable")
    ids = tid[order]

    def rows(thread: int) -> Ints:
        found: Ints = order[np.searchsorted(ids, thread) : np.searchsorted(ids, thread, "right")]
        return found

    return rows


def end_silence(analysis: Analysis, marks: Ints, lo: Ints, hi: Ints) -> Ints:
    """Silent time of each lead [lo, hi) before the first mark in it: the end of the step before."""
    at = np.searchsorted(marks, lo, "right")
    mark = marks[np.minimum(at, len(marks) - 1)]
    crosses = (at < len(marks)) & (mark <= hi)
    until = np.where(crosses, mark, lo)
    silence: Ints = until - lo - covered(host_activity(analysis), lo, until)
    return silence


def host_activity(analysis: Analysis) -> Intervals:
    """When any host thread was at a recorded op, call or Python frame."""
    tables = [analysis.trace.table(k) for k in ("ops", "launches", "python")]
    return union(np.concatenate([t.ts for t in tables]), np.concatenate([t.end for t in tables]))


def host_events(analysis: Analysis, lo: Ints, hi: Ints, nodes: Ints) -> tuple[Floats, Ints]:
    """Recorded CPU events that begin in each lead, and the time they cover of it."""
    trace = analysis.trace
    tables = [trace.table(k) for k in ("ops", "launches", "python")]
    starts = np.sort(np.concatenate([t.ts for t in tables]))
    count = np.searchsorted(starts, hi, "left") - np.searchsorted(starts, lo, "left")
    events = np.maximum(count, 0) + NODE_EVENTS * nodes
    return events.astype(np.float64), covered(host_activity(analysis), lo, np.maximum(hi, lo))
