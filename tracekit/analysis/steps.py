"""Steps: stub being written (interface below is fixed)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis


@dataclass(frozen=True)
class Steps:
    """Steps of a trace. Arrays are one entry a step; times int64 ns.

    Step k's window is [start[k], end[k]): windows of consecutive steps touch.
    """

    source: str
    """'ProfilerStep#', 'annotation NAME', 'graph launches', 'optimizer steps', 'repetition',
    'whole trace'"""
    index: Ints
    """number of each step in the trace, from 0 (differs from position under --steps)"""
    mark_start: Ints
    """CPU mark of the step"""
    mark_end: Ints
    start: Ints
    """window: from the previous step's end"""
    end: Ints
    """window: to its own last GPU work"""
    gpu_step: Ints
    """per `gpu` row: position of the step that launched it; -1 carry-in, orphan or outside"""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.start)

    @property
    def wall_ns(self) -> Ints:
        """Period of each step, ns."""
        return self.end - self.start

    @property
    def median_ns(self) -> float:
        """The step time: median of the periods, ns."""
        raise NotImplementedError


def find_steps(analysis: Analysis) -> Steps:
    raise NotImplementedError
