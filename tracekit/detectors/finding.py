"""What a detector says: a finding, its price, its evidence, its fix.

A detector drafts (`Draft`): what is wrong, where, and which edit of the recorded step stands for
the fix. The price is not the detector's to invent: `tracekit.detectors.pricing` replays the step
with the edit and turns drafts into findings.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from tracekit.replay.edits import Edits

SEVERITIES = ("high", "medium", "low", "note")

# Share of the step that the saving must reach, percent (design, section 4).
HIGH_PERCENT, MEDIUM_PERCENT, LOW_PERCENT = 10.0, 3.0, 1.0


def severity_of(percent_of_step: float) -> str:
    """The severity that a saving of this share of the step has."""
    if percent_of_step >= HIGH_PERCENT:
        return "high"
    if percent_of_step >= MEDIUM_PERCENT:
        return "medium"
    return "low" if percent_of_step >= LOW_PERCENT else "note"


@dataclass(frozen=True)
class Saving:
    """What a fix saves: the replayed step as it is, less the replayed step without the cause."""

    ms_per_step: float
    low: float
    high: float
    percent_of_step: float
    base: str
    """'unprofiled': of a step timed without the profiler; 'recorded': of the step as recorded"""
    step_ms: float
    """the step the percentage is of, ms"""

    @property
    def then_ms(self) -> float:
        """The step once fixed, ms."""
        return self.step_ms - self.ms_per_step


@dataclass(frozen=True)
class Evidence:
    """What anyone can check in the trace."""

    event_ids: tuple[int, ...] = ()
    """up to 20 events of the file (position among its events), the costliest first"""
    counts: dict[str, float | int | str] = field(default_factory=dict)
    """label to number, in reading order: {"kernels a step": 165, "GPU ms a step": 5.4}"""
    lines: tuple[str, ...] = ()
    """short lines for a person, the most telling first"""


@dataclass(frozen=True)
class Where:
    """Where in the user's program, as far as the recording says."""

    text: str
    """one short phrase: 'whole step, 2,188 launches' or 'aten::item in the main thread'"""
    ops: tuple[str, ...] = ()
    """op chain, outermost first"""
    module: str | None = None
    phase: str | None = None
    """forward, backward, optimizer, loader, step boundary"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Fix:
    """Something to paste."""

    title: str
    code: str
    applies_when: str
    numerics: str
    """what it changes numerically; 'nothing' where so"""


@dataclass(frozen=True)
class Draft:
    """A finding before its price.

    `edits` is the best estimate of what the fix does to the recorded step; `pessimistic` and
    `optimistic` bound it (default: the same edits, so that only the replay's own error makes the
    range). `unprofiled_only_upper` is set by pricing, not here.
    """

    code: str
    name: str
    title: str
    insight: str
    action: str
    impact: str
    edits: Edits
    evidence: Evidence
    where: Where
    fixes: tuple[Fix, ...]
    confidence: str
    """high, medium or low"""
    pessimistic: Edits | None = None
    optimistic: Edits | None = None


@dataclass(frozen=True)
class Finding:
    """A priced finding."""

    code: str
    name: str
    severity: str
    title: str
    insight: str
    action: str
    impact: str
    saving: Saving
    evidence: Evidence
    where: Where
    fixes: tuple[Fix, ...]
    confidence: str
    fingerprint: str
    edits: Edits


@dataclass(frozen=True)
class Undetermined:
    """A detector that could not judge, and why; never silence."""

    code: str
    name: str
    why: str


@dataclass(frozen=True)
class Detection:
    """A detector's whole answer on one trace."""

    drafts: tuple[Draft, ...] = ()
    undetermined: tuple[Undetermined, ...] = ()
    notes: tuple[str, ...] = ()
    """facts a reader of the trace will ask about and that are no fault"""


_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


def fingerprint(code: str, *names: str) -> str:
    """A name for the same fault in another recording: code + names with their numbers taken out.

    Never a time or an event id, so a rerun of the same program gives the same fingerprint.
    """
    text = "\0".join([code, *(_NUMBER.sub("#", n) for n in names)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
