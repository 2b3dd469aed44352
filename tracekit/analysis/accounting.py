"""Where each step's wall time goes (accounting laws 2 and 5).

The GPU time line of the analysed device inside a step's window is cut, in this order of
priority, into computing kernels, communication, copies (memcpy and memset), and idle; idle is cut
by cause in `tracekit.analysis.idle`. The parts sum to the window exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.idle import CAUSES
from tracekit.analysis.intervals import Intervals, covered, subtract, union
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

BREAKDOWN_KEYS = ("computing", "communication", "copies", *(f"idle_{cause}" for cause in CAUSES))


@dataclass(frozen=True)
class BusyTime:
    """Disjoint intervals of the analysed device's work, by priority; together they are its busy
    time."""

    computing: Intervals
    communication: Intervals
    """not under a computing kernel: exposed"""
    copies: Intervals
    """under neither: exposed"""
    busy: Intervals


@dataclass(frozen=True)
class Accounting:
    """Where each step's wall time goes. Arrays are one entry a step, ns."""

    wall_ns: Ints
    busy_ns: Ints
    """union of all GPU work inside the step's window"""
    idle_ns: Ints
    breakdown_ns: dict[str, Ints]
    """BREAKDOWN_KEYS; sums to wall_ns exactly"""
    class_ns: dict[str, Ints]
    """per kernel class, GPU time of the work the step launched (summed durations: attribution of
    busy time to classes, not wall)"""
    launches: Ints
    """GPU rows a step launched"""
    streams_ns: dict[tuple[int, int], Ints]
    """(device, stream) to its busy union in each window, for every device"""
    devices_ns: dict[int, Ints]
    """every device to the busy union of all its streams in each window"""


def busy_time(analysis: Analysis) -> BusyTime:
    """The analysed device's work as disjoint sets, over the whole trace."""
    gpu = analysis.trace.table("gpu")
    rows = analysis.device_rows
    start, end = gpu.ts[rows], gpu.end[rows]
    kernel = gpu.text("kind").where(lambda k: k == "kernel")[rows]
    talking = analysis.classes.rows("communication")[rows] & kernel
    computing = _of(start, end, kernel & ~talking)
    communication = subtract(_of(start, end, talking), computing)
    both = _of(start, end, kernel)
    copies = subtract(_of(start, end, ~kernel), both)
    return BusyTime(computing, communication, copies, union(start, end))


def _of(start: Ints, end: Ints, mask: Bools) -> Intervals:
    return union(start[mask], end[mask])


def account(analysis: Analysis) -> Accounting:
    """The breakdown of every step of the analysis."""
    steps, busy = analysis.steps, analysis.busy
    lo, hi = steps.start, steps.end
    breakdown = {
        "computing": covered(busy.computing, lo, hi),
        "communication": covered(busy.communication, lo, hi),
        "copies": covered(busy.copies, lo, hi),
    }
    gaps = analysis.gaps
    for code, cause in enumerate(CAUSES):
        spent = np.zeros(len(steps), np.int64)
        mine = gaps.cause == code
        np.add.at(spent, gaps.step[mine], (gaps.end - gaps.start)[mine])
        breakdown[f"idle_{cause}"] = spent
    busy_ns = covered(busy.busy, lo, hi)
    return Accounting(
        wall_ns=steps.wall_ns,
        busy_ns=busy_ns,
        idle_ns=steps.wall_ns - busy_ns,
        breakdown_ns=breakdown,
        class_ns=_class_time(analysis),
        launches=np.bincount(steps.gpu_step[steps.gpu_step >= 0], minlength=len(steps)),
        streams_ns=_streams(analysis),
        devices_ns=_devices(analysis),
    )


def _class_time(analysis: Analysis) -> dict[str, Ints]:
    gpu, step = analysis.trace.table("gpu"), analysis.steps.gpu_step
    rows = analysis.device_rows
    rows = rows[step[rows] >= 0]
    names = analysis.classes.names
    spent = np.zeros((len(names), len(analysis.steps)), np.int64)
    np.add.at(spent, (analysis.classes.code[rows], step[rows]), gpu.ints("dur")[rows])
    return {name: spent[code] for code, name in enumerate(names) if spent[code].any()}


def _streams(analysis: Analysis) -> dict[tuple[int, int], Ints]:
    gpu = analysis.trace.table("gpu")
    sane = ~analysis.implausible
    device, stream = gpu.ints("device"), gpu.ints("stream")
    pairs = np.unique(np.stack([device[sane], stream[sane]]), axis=1).T.tolist()
    return {(d, s): _busy(analysis, sane & (device == d) & (stream == s)) for d, s in pairs}


def _devices(analysis: Analysis) -> dict[int, Ints]:
    sane = ~analysis.implausible
    device = analysis.trace.table("gpu").ints("device")
    return {d: _busy(analysis, sane & (device == d)) for d in np.unique(device[sane]).tolist()}


def _busy(analysis: Analysis, rows: Bools) -> Ints:
    """[steps] union of the rows' intervals in each window."""
    gpu = analysis.trace.table("gpu")
    disjoint = union(gpu.ts[rows], gpu.end[rows])
    return covered(disjoint, analysis.steps.start, analysis.steps.end)
