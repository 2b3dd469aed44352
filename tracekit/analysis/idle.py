"""Idle: stub being written (interface below is fixed)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.trace.table import Codes, Ints

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


def explain_gaps(analysis: Analysis) -> Gaps:
    raise NotImplementedError
