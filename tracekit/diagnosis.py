"""`tracekit.diagnose(path)`: read, analyse, detect, price; what reports are made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from tracekit.analysis.analysis import Analysis, AnalysisOptions
from tracekit.analysis.steps import Steps
from tracekit.detectors.finding import Finding, Saving, Undetermined
from tracekit.replay.conditions import AS_RECORDED
from tracekit.replay.edits import Edits
from tracekit.replay.engine import Replayed, run, without_profiler
from tracekit.replay.model import StepModel
from tracekit.trace.model import Trace
from tracekit.trace.table import Ints

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

    def replay(self, edits: Edits | None = None, *, unprofiled: bool = True) -> Replay:
        """The steps replayed with `edits`: what would happen without a cause, or with a cure.

        Args:
            edits: what to change (`finding.edits`, several of them joined with `|`, or your own
                `tracekit.replay.edits.Edits`); none replays the step unchanged.
            unprofiled: under the conditions without the profiler, where the trace has a step time
                measured without it; False replays the recording as it is.

        Raises:
            ValueError: if the trace's steps launched no GPU work.
        """
        model = self.analysis.replay
        if model is None:
            raise ValueError(f"{self.trace.path}: its steps launched no GPU work to replay")
        conditions = AS_RECORDED
        if unprofiled and self.analysis.unprofiled_ms is not None:
            conditions, _ = without_profiler(model, self.analysis.unprofiled_ms)
        return Replay(self.trace, model, run(model, edits, conditions))


@dataclass(frozen=True)
class Replay:
    """Replayed steps: `step_ms`, `periods_ns`, and the time line, which `save` writes."""

    trace: Trace
    model: StepModel
    replayed: Replayed

    @property
    def step_ms(self) -> float:
        """Median period of the settled steps, ms."""
        return self.replayed.step_ms

    @property
    def periods_ns(self) -> Ints:
        """Every replayed period, ns, in order; the first ones fill the pipeline."""
        return self.replayed.periods_ns

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the last replayed round as a trace, to open beside the recorded one."""
        from tracekit.replay.timeline import save

        save(path, self.trace, self.model, self.replayed)


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
    from tracekit.detectors.registry import run as detect
    from tracekit.trace.read import read

    trace = read(source, progress=progress)
    analysis = Analysis(trace, AnalysisOptions(steps, unprofiled_ms))
    priced = price(analysis, detect(analysis, select=select, ignore=ignore))
    return Diagnosis(
        trace,
        analysis,
        priced.findings,
        priced.combined,
        priced.combined_codes,
        priced.undetermined,
        analysis.steps.notes + priced.notes,
    )
