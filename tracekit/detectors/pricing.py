"""Turn drafts into findings: replay the step without each cause, then without several.

The price of a finding is `replay(step) - replay(step edited)`, never a sum of durations (accounting
law 6). Where a step time without the profiler is known, the profiler's overhead is first taken
off the host's recorded events until the unchanged replay meets it (law 7); where not, host-bound
savings are upper bounds and their range says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.detectors.finding import (
    Detection,
    Draft,
    Finding,
    Saving,
    Undetermined,
    fingerprint,
    severity_of,
)
from tracekit.replay.conditions import AS_RECORDED, Conditions
from tracekit.replay.edits import Edits
from tracekit.replay.engine import (
    Replayed,
    error,
    host_bound_after_all,
    lighter,
    run,
    without_profiler,
)
from tracekit.replay.model import StepModel

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

MISS_LIMIT = 0.10
"""a replay that misses the recorded step by more than this prices nothing"""
INFLATION = 1.9
"""most that recording was seen to lengthen a host-bound step (H200; 1.0 for a GPU-bound one). The
low end of a saving assumes it where no unprofiled step time is known"""
COMBINED = 5
"""findings that the combined saving applies at most"""
COMBINED_PERCENT = 1.0
"""a finding must save this share of the step to be among them"""


@dataclass(frozen=True)
class Priced:
    """Findings by falling saving, and the steps of applying the top ones one after the other."""

    findings: tuple[Finding, ...]
    combined: Saving | None
    combined_codes: tuple[str, ...]
    undetermined: tuple[Undetermined, ...]
    notes: tuple[str, ...]


class Pricer:
    """Replays edits of one analysis and scales them to the step that savings are quoted for."""

    def __init__(self, analysis: Analysis, model: StepModel) -> None:
        self.model = model
        recorded_ms = analysis.steps.median_ns / 1e6
        as_recorded = run(model)
        self.miss = error(model, as_recorded)
        self.notes = list(model.notes)
        unprofiled = analysis.unprofiled_ms
        self.conditions = AS_RECORDED
        self.otherwise: Conditions | None = None
        if unprofiled is None:
            self.base, self.step_ms, self.unchanged = "recorded", recorded_ms, as_recorded
            self.assumed, self.assumed_ms = lighter(model, as_recorded.step_ms / INFLATION)
        else:
            self.base, self.step_ms = "unprofiled", unprofiled
            self.conditions, reached = without_profiler(model, unprofiled)
            self.unchanged = self._run(Edits())
            self.otherwise = host_bound_after_all(model, self.conditions, unprofiled)
            if abs(reached / unprofiled - 1) > 0.05:
                self.notes.append(
                    f"the replay meets the unprofiled step time of {unprofiled:.2f} ms only to "
                    f"{reached:.2f} ms; savings are scaled to it"
                )

    def _run(self, edits: Edits, conditions: Conditions | None = None) -> Replayed:
        return run(self.model, edits, conditions or self.conditions)

    def saved_ms(self, edits: Edits) -> float:
        """What the edits save of the quoted step, ms; never more than the step, never negative."""
        return self._scaled(self.unchanged.step_ms, self._run(edits).step_ms)

    def _scaled(self, before: float, after: float) -> float:
        if before <= 0:
            return 0.0
        return min(max((before - after) * self.step_ms / before, 0.0), self.step_ms)

    def saving(self, draft: Draft) -> Saving:
        """The draft's price, with its range."""
        best = self.saved_ms(draft.edits)
        bounds = [best]
        for other in (draft.pessimistic, draft.optimistic):
            if other is not None:
                bounds.append(self.saved_ms(other))
        if self.base == "recorded" and not draft.edits.empty:
            after = self._run(draft.edits, self.assumed).step_ms
            bounds.append(min(max(self.assumed_ms - after, 0.0), best))
        if self.otherwise is not None:
            before = self._run(Edits(), self.otherwise).step_ms
            bounds.append(self._scaled(before, self._run(draft.edits, self.otherwise).step_ms))
        error = self.miss * best
        return self.quoted(best, min(bounds) - error, max(bounds) + error)

    def quoted(self, best: float, low: float, high: float) -> Saving:
        """A saving and its range, ms, as a share of the step that savings are quoted for."""
        percent = 100 * best / self.step_ms if self.step_ms else 0.0
        return Saving(
            best, max(low, 0.0), min(high, self.step_ms), percent, self.base, self.step_ms
        )


def price(analysis: Analysis, detection: Detection) -> Priced:
    """Price every draft; rank; combine."""
    model = analysis.replay
    if model is None:
        free = tuple(
            _finding(d, Saving(0, 0, 0, 0, "recorded", analysis.steps.median_ns / 1e6))
            for d in detection.drafts
        )
        return Priced(free, None, (), detection.undetermined, detection.notes)
    pricer = Pricer(analysis, model)
    undetermined = list(detection.undetermined)
    drafts = list(detection.drafts)
    if pricer.miss > MISS_LIMIT:
        why = (
            f"the replay gives {run(model).step_ms:.1f} ms for a step recorded as "
            f"{model.recorded_ms:.1f} ms, so no saving can be trusted"
        )
        undetermined += [Undetermined(d.code, d.name, why) for d in drafts if not d.edits.empty]
        drafts = [d for d in drafts if d.edits.empty]
    findings = [_finding(d, pricer.saving(d)) for d in drafts]
    findings.sort(key=lambda f: (-round(f.saving.ms_per_step, 3), f.code, f.fingerprint))
    combined, codes = _combine(pricer, findings)
    return Priced(
        tuple(findings), combined, codes, tuple(undetermined), detection.notes + tuple(pricer.notes)
    )


def _combine(pricer: Pricer, findings: list[Finding]) -> tuple[Saving | None, tuple[str, ...]]:
    top = [f for f in findings if f.saving.percent_of_step >= COMBINED_PERCENT][:COMBINED]
    if not top:
        return None, ()
    together = Edits()
    for finding in top:
        together = together | finding.edits
    best = pricer.saved_ms(together)
    low = min(best, max(f.saving.low for f in top))
    high = max(best, min(sum(f.saving.high for f in top), pricer.step_ms))
    return pricer.quoted(best, low, high), tuple(dict.fromkeys(f.code for f in top))


def _finding(draft: Draft, saving: Saving) -> Finding:
    severity = severity_of(saving.percent_of_step)
    return Finding(
        code=draft.code,
        name=draft.name,
        severity=severity,
        title=draft.title,
        insight=draft.insight,
        action=draft.action,
        impact=draft.impact,
        saving=saving,
        evidence=draft.evidence,
        where=draft.where,
        fixes=draft.fixes,
        confidence=draft.confidence,
        fingerprint=fingerprint(draft.code, draft.title, draft.where.text, *draft.where.ops),
        edits=draft.edits,
    )
