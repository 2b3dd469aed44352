"""Host time spent on getting the next batch: inside a data loader, or in silence before its copy.

A torch DataLoader records its `__next__` as an annotation. A loader of one's own (a generator, a
decoder, a sleep) records nothing: it shows only as a stretch in which its thread did nothing that
was recorded, between its last launch and the copy of the input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.idle import LOADER, SILENT_NS
from tracekit.analysis.intervals import Intervals, complement, covered, union
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

_LOADER = re.compile(LOADER)


@dataclass(frozen=True)
class InputTime:
    """Stretches of host time in the steps."""

    spans: Ints
    """[n, 3] (tid, start, end), ns"""
    names: tuple[str, ...]
    """distinct names of the loader's rows, commonest first; empty where it was silent"""
    copies: Ints
    """rows of `gpu`: the copies that silent stretches end in"""

    @property
    def total_ns(self) -> int:
        """All of it."""
        return int((self.spans[:, 2] - self.spans[:, 1]).sum())


def loader_time(analysis: Analysis) -> InputTime:
    """The recorded `__next__` calls of data loaders that begin inside the steps, outermost only."""
    trace, steps = analysis.trace, analysis.steps
    lo, hi = int(steps.mark_start[0]), int(steps.mark_end[-1])
    parts, names = [], []
    for kind in ("annotations", "ops"):
        table = trace.table(kind)
        hit = table.text("name").where(lambda n: bool(_LOADER.search(n)))
        if kind == "annotations":
            hit &= table.text("where").where(lambda w: w == "cpu")
        rows = np.flatnonzero(hit & (table.ts >= lo) & (table.ts < hi))
        parts.append(np.stack([table.ints("tid")[rows], table.ts[rows], table.end[rows]], axis=1))
        names += [table.text("name")[r] or "" for r in rows]
    spans = np.concatenate(parts).astype(np.int64)
    merged = [np.empty((0, 3), np.int64)]
    for tid in np.unique(spans[:, 0]).tolist():
        mine = spans[spans[:, 0] == tid]
        start, end = union(mine[:, 1], mine[:, 2])
        merged.append(np.stack([np.full(len(start), tid, np.int64), start, end], axis=1))
    by_count = sorted(set(names), key=lambda n: (-names.count(n), n))
    return InputTime(np.concatenate(merged), tuple(by_count), np.empty(0, np.int64))


def silent_time(analysis: Analysis) -> InputTime:
    """Silent stretches of the launching thread before the copies that end an `input` gap."""
    trace, gaps = analysis.trace, analysis.gaps
    launches, gpu = trace.table("launches"), trace.table("gpu")
    wanted = gaps.of("input") & (gaps.launch >= 0) & (gaps.next_gpu >= 0)
    wanted &= gpu.text("name").where(lambda n: "HtoD" in n)[np.maximum(gaps.next_gpu, 0)]
    spans: list[tuple[int, int, int]] = []
    ended = []
    threads = {int(t): _thread(analysis, int(t)) for t in np.unique(launches.ints("tid"))}
    for call, work, dry in zip(
        gaps.launch[wanted].tolist(),
        gaps.next_gpu[wanted].tolist(),
        gaps.start[wanted].tolist(),
        strict=True,
    ):
        tid, at = int(launches.ints("tid")[call]), int(launches.ts[call])
        mine, busy = threads[tid]
        before = int(np.searchsorted(launches.ts[mine], at)) - 1
        since = (
            int(launches.end[mine[before]]) if before >= 0 else int(analysis.steps.mark_start[0])
        )
        start, end = complement(busy, min(since, dry), at)
        quiet = end - start >= SILENT_NS
        spans += [(tid, a, b) for a, b in zip(start[quiet], end[quiet], strict=True)]
        if quiet.any():
            ended.append(work)
    found = np.array(sorted(set(spans)), np.int64).reshape(-1, 3)
    return InputTime(found, (), np.array(ended, np.int64))


def _thread(analysis: Analysis, tid: int) -> tuple[Ints, Intervals]:
    """Rows of `launches` of one thread, and when it was in a recorded op or call."""
    launches, ops = analysis.trace.table("launches"), analysis.trace.table("ops")
    mine, own = np.flatnonzero(launches.ints("tid") == tid), ops.ints("tid") == tid
    busy = union(
        np.concatenate([launches.ts[mine], ops.ts[own]]),
        np.concatenate([launches.end[mine], ops.end[own]]),
    )
    return mine, busy


def eventful_ns(analysis: Analysis, spans: Ints) -> int:
    """How much of the stretches (tid, start, end) their thread was in recorded ops and calls."""
    total = 0
    for tid in np.unique(spans[:, 0]).tolist():
        _, busy = _thread(analysis, tid)
        mine = spans[spans[:, 0] == tid]
        total += int(covered(busy, mine[:, 1], mine[:, 2]).sum())
    return total


def filled_by(analysis: Analysis, spans: Ints) -> str | None:
    """The innermost recorded Python frame that ran through most of the longest stretch."""
    python = analysis.trace.table("python")
    if not len(python) or not len(spans):
        return None
    _, start, end = spans[np.argmax(spans[:, 2] - spans[:, 1])].tolist()
    inside = np.minimum(python.end, end) - np.maximum(python.ts, start)
    rows = np.flatnonzero(inside > 0.5 * (end - start))
    if not len(rows):
        return None
    return python.text("name")[rows[np.argmin(python.ints("dur")[rows])]]
