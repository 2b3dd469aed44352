"""`tracekit.diagnose(path)`: read, analyse, detect, price; what reports are made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from tracekit.analysis.analysis import Analysis, AnalysisOptions
from tracekit.analysis.steps import Steps
from tracekit.detectors.finding import Finding, Saving, Undetermined
from tracekit.trace.model import Trace

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Diagnosis:
    """The answer on one trace. `findings` are ordered by what their fix saves."""

    trace: Trace
    analysis: Analysis
    findings: tuple[Finding, ...]
    combined_saving: Saving | None
    """applying the top fixes together; None when no finding saves anything"""
    combined_codes: tuple[str, ...]
    """the codes that combined_saving applies, in order"""
    undetermined: tuple[Undetermined, ...]
    notes: tuple[str, ...]
    """sentences about how far the numbers can be trusted"""

    @property
    def steps(self) -> Steps:
        """The steps the trace was cut into."""
        return self.analysis.steps

    @property
    def degraded(self) -> bool:
        """True when part of the trace was not read or is not to be trusted."""
        health = self.trace.health
        return bool(health.events_skipped or health.damage)


def diagnose(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    steps: tuple[int, int] | None = None,
    unprofiled_ms: float | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose one trace file.

    Args:
        source: path of a trace (.json, .json.gz, .json.zst), or an open binary stream.
        select: only detectors whose code starts with one of these ("LAY", "LCH001").
        ignore: no detectors whose code starts with one of these.
        steps: first and one past the last step to look at, counted from 0.
        unprofiled_ms: a step time measured without the profiler, ms.
        progress: called with (bytes read, bytes in the file).

    Raises:
        TraceError: if the source holds no readable trace.
        ValueError: if `select` or `ignore` names no detector, or `steps` holds no step.
    """
    from tracekit.detectors.pricing import price
    from tracekit.detectors.registry import run
    from tracekit.trace.read import read

    trace = read(source, progress=progress)
    analysis = Analysis(trace, AnalysisOptions(steps, unprofiled_ms))
    priced = price(analysis, run(analysis, select=select, ignore=ignore))
    return Diagnosis(
        trace,
        analysis,
        priced.findings,
        priced.combined,
        priced.combined_codes,
        priced.undetermined,
        analysis.steps.notes + priced.notes,
    )
