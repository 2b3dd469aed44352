"""Numbers read from the GPU one by one where one read would do.

`[float(p.grad.norm()) for p in parameters]` computes a small result and waits for it, again and
again. Its cost is only partly the waiting: each turn also dispatches the ops, launches their
kernels and calls `.item()` for one number. A run is such a loop as recorded: consecutive reads of
one thread and one step with the same few reducing ops before each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.links import roots, thread_rows
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

MAX_OPS = 4
"""ops of one turn before its read: more is a computation, not a statistic"""

_READS = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")


def _ops(text: str) -> frozenset[str]:
    return frozenset(f"aten::{n}" for n in text.split())


_REDUCING = _ops("norm linalg_vector_norm linalg_norm sum mean max min amax amin any all var std")
# Ops that may stand around the reduction: they read the tensor and change nothing.
_AROUND = _ops(
    "abs square pow sqrt isnan isinf isfinite ne eq logical_not detach alias view reshape flatten "
    "to div mul"
)


@dataclass(frozen=True)
class Run:
    """One loop of reads."""

    ops: tuple[str, ...]
    """the ops of a turn, without the read"""
    spans: Ints
    """[turns, 2] start of a turn's first op and end of its read, ns"""
    tid: int
    calls: Ints
    """rows of `launches`: the waits"""
    work: Ints
    """rows of `gpu`: what the ops launched, in order"""
    turn: Ints
    """[work] the turn that launched it"""
    copies: Ints
    """rows of `gpu`: the copies of the reads"""

    def __len__(self) -> int:
        return len(self.spans)


def find_runs(analysis: Analysis, calls: Ints, min_turns: int) -> list[Run]:
    """Runs of at least `min_turns` reads among some waiting calls (rows of `launches`)."""
    ops, links = analysis.trace.table("ops"), analysis.links
    if not len(ops) or not len(calls):
        return []
    root = roots(links.op_parent)
    inner = links.launch_op[calls]
    read = np.unique(root[inner[inner >= 0]])
    read = read[ops.text("name").where(lambda n: n in _READS)[read]]
    step = np.searchsorted(analysis.steps.mark_start, ops.ts, "right")
    runs: list[Run] = []
    for rows in thread_rows(ops):
        top = rows[links.op_parent[rows] < 0]
        position = np.flatnonzero(np.isin(top, read))
        if len(position) < min_turns:
            continue
        names = [ops.text("name")[r] or "" for r in top.tolist()]
        turns: list[tuple[int, int]] = []
        last: tuple[tuple[str, ...], int] | None = None
        for at in position.tolist():
            first = at
            while first > 0 and at - first < MAX_OPS and _part_of_turn(names[first - 1]):
                first -= 1
            key = (tuple(names[first:at]), int(step[top[at]]))
            statistic = any(n in _REDUCING for n in key[0])
            joined = bool(turns) and key == last and turns[-1][1] + 1 == first
            if not (statistic and joined):
                _close(analysis, top, turns, names, min_turns, root, calls, runs)
                turns = []
            if statistic:
                turns.append((first, at))
            last = key
        _close(analysis, top, turns, names, min_turns, root, calls, runs)
    return runs


def _part_of_turn(name: str) -> bool:
    return name in _REDUCING or name in _AROUND


def _close(
    analysis: Analysis,
    top: Ints,
    turns: list[tuple[int, int]],
    names: list[str],
    min_turns: int,
    root: Ints,
    calls: Ints,
    runs: list[Run],
) -> None:
    """Keep the turns collected so far if they are enough to be a run."""
    if len(turns) < min_turns:
        return
    ops, links = analysis.trace.table("ops"), analysis.links
    turn_of = np.full(len(ops) + 1, -1, np.int64)
    is_read = np.zeros(len(ops) + 1, bool)
    for i, (first, at) in enumerate(turns):
        turn_of[top[first : at + 1]] = i
        is_read[top[at]] = True
    of_work = np.where(links.gpu_op >= 0, root[links.gpu_op], -1)
    mine = np.flatnonzero((turn_of[of_work] >= 0) & ~analysis.implausible)
    reading = is_read[of_work[mine]]
    own = np.where(links.launch_op[calls] >= 0, root[links.launch_op[calls]], -1)
    first_rows, read_rows = (top[[t[i] for t in turns]] for i in (0, 1))
    runs.append(
        Run(
            ops=tuple(names[turns[0][0] : turns[0][1]]),
            spans=np.stack([ops.ts[first_rows], ops.end[read_rows]], axis=1),
            tid=int(ops.ints("tid")[top[0]]),
            calls=calls[is_read[own]],
            work=mine[~reading],
            turn=turn_of[of_work[mine[~reading]]],
            copies=mine[reading],
        )
    )
