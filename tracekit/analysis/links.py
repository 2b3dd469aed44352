"""Who launched what: GPU work -> launch -> innermost op -> its parents.

Launch and GPU work are joined by correlation id within a process (law 4), never by flow events
or by guess. Where the launch is not in the file (an orphan), the External id that the GPU event
itself recorded still names the op; without that it has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.trace.model import Trace
from tracekit.trace.table import Ints, Table

_DOES_WORK = ("kernel", "graph", "memcpy", "memset")


@dataclass(frozen=True)
class Links:
    """Row numbers; -1 where there is none."""

    gpu_launch: Ints
    """per `gpu` row: its row in `launches`"""
    gpu_op: Ints
    """per `gpu` row: the innermost op that was running at its launch, row in `ops`"""
    launch_op: Ints
    """per `launches` row: the innermost op on its thread around it, row in `ops`"""
    op_parent: Ints
    """per `ops` row: the enclosing op on its thread, row in `ops`"""

    def chain(self, op_row: int) -> list[int]:
        """Rows of the op and its enclosing ops, outermost first."""
        rows: list[int] = []
        while op_row >= 0:
            rows.append(op_row)
            op_row = int(self.op_parent[op_row])
        return rows[::-1]


def link(trace: Trace) -> Links:
    """Join the three tables."""
    ops, launches, gpu = trace.table("ops"), trace.table("launches"), trace.table("gpu")
    gpu_launch = _join_correlation(gpu, launches)
    op_parent = enclosing_self(ops)
    launch_op = enclosing(ops, launches)
    gpu_op = np.where(gpu_launch >= 0, _at(launch_op, gpu_launch), -1)
    lost = np.flatnonzero((gpu_launch < 0) & (gpu.ints("external_id") > 0))
    if len(lost):
        gpu_op[lost] = _lookup(ops.ints("external_id"), gpu.ints("external_id")[lost])
    return Links(gpu_launch, gpu_op, launch_op, op_parent)


def _at(values: Ints, index: Ints) -> Ints:
    if not len(values):
        return np.full(len(index), -1, np.int64)
    out: Ints = values[np.maximum(index, 0)]
    return out


def _lookup(keys: Ints, wanted: Ints) -> Ints:
    """Row of the first equal key; -1 where none."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted)
    row = order[np.minimum(at, len(keys) - 1)]
    out: Ints = np.where(keys[row] == wanted, row, -1)
    return out


def _join_correlation(gpu: Table, launches: Table) -> Ints:
    """One launch has many GPU events when it is a graph launch; two launches of one id (a merged
    file of several processes) are told apart by time: the last one that began before the work."""
    correlation = launches.ints("correlation")
    kind = launches.text("kind").map(
        lambda k: 2 if k in _DOES_WORK else (1 if k == "other" else 0), np.int8
    )
    usable = np.flatnonzero((correlation > 0) & (kind > 0))
    out = np.full(len(gpu), -1, np.int64)
    if not len(usable) or not len(gpu):
        return out
    # Sorted by (correlation, does work, start): the wanted row is the last one <= the GPU start.
    order = usable[np.lexsort((launches.ts[usable], kind[usable], correlation[usable]))]
    ids = correlation[order]
    wanted = gpu.ints("correlation")
    lo, hi = np.searchsorted(ids, wanted, "left"), np.searchsorted(ids, wanted, "right")
    found = (hi > lo) & (wanted > 0)
    out[found] = order[hi[found] - 1]
    for row in np.flatnonzero(found & (hi - lo > 1)):
        same = order[lo[row] : hi[row]]
        best = same[kind[same] == kind[same].max()]
        began = best[launches.ts[best] <= gpu.ts[row]]
        out[row] = began[-1] if len(began) else best[0]
    return out


def enclosing_self(table: Table) -> Ints:
    """Per row, the innermost other row of the same (pid, tid) that encloses its start; -1 if none.

    Rows must be sorted as in a `Trace`: parents before children.
    """
    out = np.full(len(table), -1, np.int64)
    start, end = table.ts, table.end
    for rows in thread_rows(table):
        out[rows] = _nest(start[rows], end[rows], rows)
    return out


def enclosing(outer: Table, inner: Table) -> Ints:
    """Per row of `inner`, the innermost row of `outer` on the same (pid, tid) that is running at
    its start; -1 if none."""
    out = np.full(len(inner), -1, np.int64)
    if not len(outer) or not len(inner):
        return out
    threads = {_thread(outer, rows): rows for rows in thread_rows(outer)}
    outer_start, outer_end = outer.ts, outer.end
    for rows in thread_rows(inner):
        around = threads.get(_thread(inner, rows))
        if around is None:
            continue
        start, end = outer_start[around], outer_end[around]
        parent = _nest(start, end, np.arange(len(around)))
        at = inner.ts[rows]
        candidate = np.searchsorted(start, at, "right") - 1
        # Climb from the last op that began before to the first that has not ended yet.
        for _ in range(512):
            over = (candidate >= 0) & (end[np.maximum(candidate, 0)] <= at)
            if not over.any():
                break
            candidate[over] = parent[candidate[over]]
        out[rows] = np.where(candidate >= 0, around[np.maximum(candidate, 0)], -1)
    return out


def roots(parent: Ints) -> Ints:
    """Per op, the outermost op around it (itself where nothing encloses it).

    Args:
        parent: [ops] row of the enclosing op, -1 where none.
    """
    root = np.arange(len(parent))
    up = parent.copy()
    while len(up) and (has := up >= 0).any():
        root[has] = root[up[has]]
        up[has] = up[up[has]]
    return root


def thread_rows(table: Table) -> list[npt.NDArray[np.int64]]:
    """Row numbers of each (pid, tid), in time order."""
    if not len(table):
        return []
    pid, tid = table.ints("pid"), table.ints("tid")
    order = np.lexsort((np.arange(len(table)), tid, pid))
    change = np.flatnonzero((np.diff(pid[order]) != 0) | (np.diff(tid[order]) != 0)) + 1
    return [np.asarray(r, np.int64) for r in np.split(order, change)]


def _thread(table: Table, rows: Ints) -> tuple[int, int]:
    return int(table.ints("pid")[rows[0]]), int(table.ints("tid")[rows[0]])


def _nest(start: Ints, end: Ints, names: Ints) -> Ints:
    """Parents among intervals sorted by (start, -end): for each, the nearest earlier one that has
    not ended at its start, by the name given to it; -1 where none.

    Depth = how many earlier ones are still open; the parent is the last earlier one a level up.
    """
    n = len(start)
    if n < 2:
        return np.full(n, -1, np.int64)
    end = np.maximum(end, start + 1)  # an event of length zero is open at its own start
    depth = np.arange(n) - np.searchsorted(np.sort(end), start, "right")
    parent = np.full(n, -1, np.int64)
    by_level = np.argsort(depth, kind="stable")
    levels = np.split(by_level, np.flatnonzero(np.diff(depth[by_level])) + 1)
    above: dict[int, npt.NDArray[np.int64]] = {int(depth[rows[0]]): rows for rows in levels}
    for level, rows in above.items():
        for up in range(level - 1, -1, -1):
            upper = above.get(up)
            if upper is None:
                continue
            at = np.searchsorted(upper, rows, "left") - 1
            candidate = upper[np.maximum(at, 0)]
            good = (parent[rows] < 0) & (at >= 0) & (end[candidate] > start[rows])
            parent[rows[good]] = names[candidate[good]]
            break
    return parent
