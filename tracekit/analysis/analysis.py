"""The analysis of one trace: everything detectors and reports read, each computed once.

`Analysis` only gathers; each part is computed in its own file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.accounting import Accounting, BusyTime, account, busy_time
from tracekit.analysis.classes import KernelClasses, classify
from tracekit.analysis.idle import Gaps, explain_gaps
from tracekit.analysis.links import Links, link
from tracekit.analysis.phases import phase_of_work
from tracekit.analysis.sanity import implausible
from tracekit.analysis.steps import Steps, find_steps
from tracekit.analysis.waits import Waits, find_waits
from tracekit.trace.model import Trace
from tracekit.trace.table import Bools, Codes, Ints

if TYPE_CHECKING:
    from tracekit.replay.model import StepModel


@dataclass(frozen=True)
class AnalysisOptions:
    """What the user may ask of an analysis."""

    steps: tuple[int, int] | None = None
    """only steps with first <= index < last, counted from 0 in the trace"""
    unprofiled_ms: float | None = None
    """step time measured without the profiler, ms; overrides the trace's manifest"""


class Analysis:
    """All that is known about one trace."""

    def __init__(self, trace: Trace, options: AnalysisOptions | None = None) -> None:
        self.trace = trace
        self.options = options or AnalysisOptions()

    @cached_property
    def device(self) -> int:
        """The device this analysis is about: the one with most GPU time; -1 without GPU work."""
        gpu = self.trace.table("gpu")
        if not len(gpu):
            return -1
        device = gpu.ints("device")
        values, inverse = np.unique(device, return_inverse=True)
        work = np.where(self.implausible, 0, gpu.ints("dur"))
        return int(values[np.bincount(inverse, weights=work).argmax()])

    @cached_property
    def device_rows(self) -> Ints:
        """Rows of `gpu` on `device` with plausible durations, in time order."""
        here = self.trace.table("gpu").ints("device") == self.device
        return np.flatnonzero(here & ~self.implausible)

    @cached_property
    def implausible(self) -> Bools:
        """Per `gpu` row: a duration beyond belief, left out of every sum."""
        return implausible(self.trace.table("gpu"))

    @cached_property
    def links(self) -> Links:
        """Launch and op of every GPU row."""
        return link(self.trace)

    @cached_property
    def steps(self) -> Steps:
        """The steps, their windows, and which step each GPU row belongs to."""
        return find_steps(self)

    @cached_property
    def classes(self) -> KernelClasses:
        """Kernel class of every GPU row, with the rule that gave it."""
        return classify(self.trace, self.links)

    @cached_property
    def busy(self) -> BusyTime:
        """The analysed device's work as disjoint intervals."""
        return busy_time(self)

    @cached_property
    def waits(self) -> Waits:
        """Host calls that block for the GPU."""
        return find_waits(self)

    @cached_property
    def accounting(self) -> Accounting:
        """Busy, idle and the breakdown of every step."""
        return account(self)

    @cached_property
    def gaps(self) -> Gaps:
        """Every stretch of GPU idle inside the steps, with its one cause."""
        return explain_gaps(self)

    @cached_property
    def phases(self) -> Codes:
        """Per `gpu` row: index into `tracekit.analysis.phases.PHASES`."""
        return phase_of_work(self)

    @cached_property
    def replay(self) -> StepModel | None:
        """The replayable model of the steps; None when they launched no GPU work."""
        from tracekit.replay.model import build

        return build(self)

    @property
    def unprofiled_ms(self) -> float | None:
        """Step time without the profiler: as given, else from the manifest, else unknown."""
        if self.options.unprofiled_ms is not None:
            return self.options.unprofiled_ms
        manifest = self.trace.manifest or {}
        timed = manifest.get("unprofiled")
        value = timed.get("ms_per_step") if isinstance(timed, dict) else None
        return float(value) if isinstance(value, int | float) and value > 0 else None
