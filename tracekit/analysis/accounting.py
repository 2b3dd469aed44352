"""Accounting: stub being written (interface below is fixed)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

BREAKDOWN_KEYS = (
    "computing",
    "communication",
    "copies",
    "idle_host_sync",
    "idle_launch",
    "idle_input",
    "idle_allocator",
    "idle_compilation",
    "idle_other_host",
    "idle_device",
    "idle_unknown",
)


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
    """(device, stream) to its busy union in each window"""


def account(analysis: Analysis) -> Accounting:
    raise NotImplementedError
