"""Calls of compiled code that a graph break cut into several, and the host time that goes with it.

torch.compile marks each call of compiled code as `Torch-Compiled Region: FRAME/VERSION`. Where
Dynamo had to leave its graph, the compiled code calls the rest of the function as a frame of its
own, so the region of the rest lies *inside* the first one. That nesting is a graph break; two
compiled functions called one after the other do not nest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.idle import SILENT_NS
from tracekit.analysis.intervals import Intervals, complement, subtract, union
from tracekit.trace.table import Bools, Ints, Table

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

REGION = "Torch-Compiled Region"
CALL = "## Call CompiledFxGraph"
FUNCTION, BACKWARD = "CompiledFunction", "CompiledFunctionBackward"

# What compiled code's own machinery records around its kernels.
_MACHINERY = re.compile(
    rf"^({REGION}|TorchDynamo |Pregraph bytecode|AOTDispatcher |{FUNCTION}|autograd::engine|{CALL})"
)
_LONGEST_NS = 50_000_000
"""no call of a compiled graph takes longer on the host"""
_DOES_WORK = ("kernel", "graph", "memcpy", "memset")


@dataclass(frozen=True)
class Broken:
    """One call of a compiled function that is cut into several regions."""

    regions: Ints
    """rows of `ops`, in order: the outer region, then those inside it"""
    spans: Ints
    """[n, 3] (tid, start, end): host time between the kernels of one part and those of the next,
    forward and backward, without what eager ops that launch work take in between"""
    outside: Ints
    """[n, 3] the part of `spans` that is outside Inductor's own code"""
    everything: Ints
    """[n, 3] `spans` with the eager ops in between"""
    fused: tuple[Ints, ...]
    """rows of `gpu` that would be one kernel without the break, each in order of launch"""
    fused_spans: Ints
    """[n, 3] host time that launches all but the first of each of them"""

    @property
    def breaks(self) -> int:
        """Graph breaks in the call."""
        return len(self.regions) - 1


@dataclass(frozen=True)
class _Part:
    """One call of a compiled graph, and the kernels in it."""

    tid: int
    start: int
    end: int
    begin: Ints
    """start of each of its ops that launch work"""
    finish: Ints
    """their ends"""

    @property
    def first(self) -> int:
        """Start of its first op that launches work."""
        return int(self.begin[0])

    @property
    def last(self) -> int:
        """End of its last one."""
        return int(self.finish[-1])


class _Threads:
    """The rows of each thread that are looked at, in order of start; found once a trace."""

    def __init__(self, analysis: Analysis) -> None:
        trace = analysis.trace
        self.ops, self.launches = trace.table("ops"), trace.table("launches")
        self.links = analysis.links
        notes, names = trace.table("annotations"), self.ops.text("name")
        self.machinery = names.where(lambda n: bool(_MACHINERY.match(n)))
        self.region = names.where(lambda n: n.startswith(REGION))
        called = notes.text("name").where(lambda n: n.startswith(CALL))
        called &= notes.text("where").where(lambda w: w == "cpu")
        works = self.launches.text("kind").where(lambda k: k in _DOES_WORK or k.startswith("sync_"))
        self._functions = _by_thread(self.ops, names.where(lambda n: n == FUNCTION))
        self._calls = _by_thread(notes, called)
        self._works = _by_thread(self.launches, works)
        self._busy_ops = _by_thread(self.ops, ~self.region)
        self._notes = notes
        self.gpu, self.triton = trace.table("gpu"), analysis.classes.triton
        self._of = np.argsort(self.links.gpu_launch, kind="stable")
        self._launch = self.links.gpu_launch[self._of]

    def calls(self, tid: int, lo: int, hi: int) -> Intervals:
        """When the thread was in Inductor's code; in older recordings, in a compiled function."""
        for table, rows in ((self._notes, self._calls), (self.ops, self._functions)):
            mine = _begun(table, rows.get(tid), lo, hi)
            if len(mine):
                return union(table.ts[mine], table.end[mine])
        return union(np.empty(0, np.int64), np.empty(0, np.int64))

    def launching(self, tid: int, lo: int, hi: int) -> Intervals:
        """Outermost ops that launch work or wait in this time, beneath the machinery; the call
        itself where it has none."""
        spans = []
        for call in _begun(self.launches, self._works.get(tid), lo, hi).tolist():
            chain = self.links.chain(int(self.links.launch_op[call]))
            around = [r for r in chain if self.ops.ts[r] >= lo and not self.machinery[r]]
            table, row = (self.ops, around[0]) if around else (self.launches, call)
            spans.append((table.ts[row], table.end[row]))
        found = np.array(spans, np.int64).reshape(-1, 2)
        return union(found[:, 0], found[:, 1])

    def silence(self, tid: int, lo: int, hi: int) -> Intervals:
        """Stretches in which nothing but a region was recorded, too long to be a call: the user's
        own Python, which no compiler takes away."""
        mine = _begun(self.ops, self._busy_ops.get(tid), lo - _LONGEST_NS, hi)
        start, end = complement(union(self.ops.ts[mine], self.ops.end[mine]), lo, hi)
        long = end - start >= SILENT_NS
        return start[long], end[long]

    def part(self, tid: int, start: int, end: int) -> _Part | None:
        """A call of a compiled graph; None where it launched nothing."""
        begin, finish = self.launching(tid, start, end)
        if not len(begin):
            return None
        return _Part(tid, start, end, begin, finish)

    def work(self, tid: int, lo: int, hi: int) -> Ints:
        """Rows of `gpu` that the thread launched in this time."""
        calls = _begun(self.launches, self._works.get(tid), lo, hi)
        lo_hi = (np.searchsorted(self._launch, calls, side) for side in ("left", "right"))
        return np.concatenate(
            [np.empty(0, np.int64), *(self._of[a:b] for a, b in zip(*lo_hi, strict=True))]
        )

    def shape(self, row: int) -> tuple[str, str] | None:
        """Grid and block of a Triton kernel; None for other work."""
        if not self.triton[row]:
            return None
        return self.gpu.text("grid")[row] or "", self.gpu.text("block")[row] or ""


def _by_thread(table: Table, wanted: Bools) -> dict[int, Ints]:
    rows = np.flatnonzero(wanted)
    tid = table.ints("tid")[rows]
    return {int(t): rows[tid == t] for t in np.unique(tid).tolist()}


def _begun(table: Table, rows: Ints | None, lo: int, hi: int) -> Ints:
    """Those of the rows (in order of start) that begin in [lo, hi)."""
    if rows is None:
        return np.empty(0, np.int64)
    first, last = np.searchsorted(table.ts[rows], (lo, hi), "left")
    return rows[first:last]


def broken_calls(analysis: Analysis) -> list[Broken]:
    """Every call in the steps of a compiled function with graph breaks."""
    ops, links, steps = analysis.trace.table("ops"), analysis.links, analysis.steps
    threads = _Threads(analysis)
    lo, hi = int(steps.mark_start[0]), max(int(steps.mark_end[-1]), int(steps.end[-1]))
    groups: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(threads.region & (ops.ts >= lo) & (ops.ts < hi)).tolist():
        around = [r for r in links.chain(row) if threads.region[r]]
        groups[around[0]].append(row)
    return [
        _broken(threads, root, np.array(regions, np.int64))
        for root, regions in sorted(groups.items())
        if len(regions) > 1
    ]


def _broken(threads: _Threads, root: int, regions: Ints) -> Broken:
    ops = threads.ops
    tid = int(ops.ints("tid")[root])
    calls = zip(*threads.calls(tid, int(ops.ts[root]), int(ops.end[root])), strict=True)
    parts = [p for a, b in calls if (p := threads.part(tid, int(a), int(b))) is not None]
    between = [(tid, a.last, b.first) for a, b in pairwise(parts)]
    nodes = _backward(threads, root)
    for a, b in pairwise(nodes):
        # Other nodes of the backward pass may run between the two: their time is not the break's.
        between += [(a.tid, a.last, a.end), (b.tid, b.start, b.first)]
    spans, outside, everything = [], [], []
    for thread, start, end in between:
        if end <= start:
            continue
        whole = np.array([start], np.int64), np.array([end], np.int64)
        whole = subtract(whole, threads.silence(thread, start, end))
        mine = subtract(whole, threads.launching(thread, start, end))
        everything.append(_rows(thread, whole))
        spans.append(_rows(thread, mine))
        # The call that ends here began before it.
        inside = threads.calls(thread, start - _LONGEST_NS, end)
        outside.append(_rows(thread, subtract(mine, inside)))
    fused, launching = [], []
    for run in (parts, nodes):
        groups, away = _fusing(threads, run)
        fused += groups
        launching.append(away)
    return Broken(
        regions,
        _joined(spans),
        _joined(outside),
        _joined(everything),
        tuple(fused),
        _joined(launching),
    )


def _fusing(threads: _Threads, parts: list[_Part]) -> tuple[list[Ints], Ints]:
    """Triton kernels of different parts that go over the same grid with nothing else in between:
    Inductor fuses such kernels of one graph. Returns them in groups, and the host time of all but
    each group's first."""
    groups: list[list[int]] = []
    open_: dict[tuple[str, str], tuple[int, list[int]]] = {}
    away: list[tuple[int, int, int]] = []
    before: _Part | None = None
    for number, part in enumerate(parts):
        if before is not None and before.tid == part.tid:
            between = threads.work(part.tid, before.end, part.start)
            if len(between):  # an eager op cuts here as well
                open_.clear()
        before = part
        until = np.append(part.begin[1:], part.last)
        for begin, end, following in zip(part.begin, part.finish, until, strict=True):
            rows = threads.work(part.tid, int(begin), int(end))
            key = threads.shape(int(rows[0])) if len(rows) == 1 else None
            if key is None:
                open_.clear()
                continue
            row = int(rows[0])
            of, group = open_.get(key, (number, []))
            if not group or of == number:
                open_[key] = number, [row]
                groups.append(open_[key][1])
                continue
            group.append(row)
            open_[key] = number, group
            away.append((part.tid, int(begin), int(following)))
    found = [np.array(g, np.int64) for g in groups if len(g) > 1]
    return found, np.array(away, np.int64).reshape(-1, 3)


def _rows(tid: int, found: Intervals) -> Ints:
    start, end = found
    return np.stack([np.full(len(start), tid, np.int64), start, end], axis=1)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.empty((0, 3), np.int64), *parts])


def _backward(threads: _Threads, root: int) -> list[_Part]:
    """The backward nodes of the compiled functions that ran inside a region, in order."""
    ops, names, seq = threads.ops, threads.ops.text("name"), threads.ops.ints("seq")
    inside = (ops.ts >= ops.ts[root]) & (ops.end <= ops.end[root]) & (seq >= 0)
    inside &= ops.ints("tid") == ops.ints("tid")[root]
    wanted = seq[inside & names.where(lambda n: n == FUNCTION)]
    hit = names.where(lambda n: n == BACKWARD) & np.isin(seq, wanted) & (ops.ts >= ops.end[root])
    found = []
    for row in np.flatnonzero(hit).tolist():
        node = threads.links.chain(row)[0]
        tid, start, end = int(ops.ints("tid")[node]), int(ops.ts[node]), int(ops.end[node])
        call = threads.calls(tid, start, end)
        inner = (int(call[0][0]), int(call[1][-1])) if len(call[0]) else (start, end)
        part = threads.part(tid, *inner)
        if part is not None:
            found.append(_Part(tid, start, end, part.begin, part.finish))
    return found
