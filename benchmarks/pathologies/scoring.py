"""What a diagnosis said, held against what was measured. Pure numbers; reads no file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.pathologies.truths import Interval, Pair

POINTS = 10.0
"""A prediction is right within this many points of the step's percentage."""

WORTH_FINDING = 3.0
"""A fault that costs less, % of the step, need not be found."""

NEXT_TO_NOTHING = 1.0
"""A fault that costs less, % of the step, must be a note or low, if it is reported at all."""

LOUD = ("high", "medium")


class SavingLike(Protocol):
    """The part of `tracekit.detectors.finding.Saving` that is scored."""

    @property
    def percent_of_step(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def step_ms(self) -> float: ...


class FindingLike(Protocol):
    """The part of `tracekit.detectors.finding.Finding` that is scored."""

    @property
    def code(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def saving(self) -> SavingLike: ...


@dataclass(frozen=True)
class Said:
    """One finding as the report ranks it; `rank` counts from 1."""

    code: str
    severity: str
    rank: int
    percent: float
    low: float
    high: float

    @property
    def loud(self) -> bool:
        """Medium or higher."""
        return self.severity in LOUD


def said(findings: Iterable[FindingLike]) -> tuple[Said, ...]:
    """The findings in their order, savings in percent of the step."""
    result = []
    for rank, finding in enumerate(findings, 1):
        saving = finding.saving
        share = 100 / saving.step_ms if saving.step_ms else 0.0
        result.append(
            Said(
                finding.code,
                finding.severity,
                rank,
                saving.percent_of_step,
                saving.low * share,
                saving.high * share,
            )
        )
    return tuple(result)


@dataclass(frozen=True)
class Row:
    """One pair's score."""

    pair: Pair
    measured: Interval | None
    """percent of the first variant's step"""
    found: Said | None
    """the first finding with an expected code"""
    others: tuple[Said, ...] = ()
    """what else was said of the first variant, medium or higher"""
    false_alarms: tuple[str, ...] = ()
    """`variant: code percent` for what was said of a healthy program and is not so"""
    left: tuple[Said, ...] = ()
    """the expected codes, medium or higher, in the variant without the fault"""
    error: str | None = None
    points: float = POINTS

    @property
    def predicted(self) -> float:
        """Percent of the step; nothing found promises nothing."""
        return self.found.percent if self.found else 0.0

    @property
    def gain(self) -> float:
        """What removing the fault brings, percent; where it makes the step slower, nothing."""
        return max(0.0, self.measured.median) if self.measured else 0.0

    @property
    def difference(self) -> float:
        """Predicted less measured, points."""
        return self.predicted - self.gain

    @property
    def within(self) -> bool:
        """The prediction came true."""
        return self.error is None and abs(self.difference) <= self.points

    @property
    def must_find(self) -> bool:
        """The fault costs enough to be worth a finding."""
        return not self.pair.control and self.gain >= WORTH_FINDING

    @property
    def overstated(self) -> bool:
        """A fault that costs next to nothing is reported as medium or higher."""
        cheap = self.error is None and self.gain < NEXT_TO_NOTHING
        return cheap and self.found is not None and self.found.loud


def score(
    pair: Pair, first: Sequence[Said], second: Sequence[Said], *, points: float = POINTS
) -> Row:
    """Score one pair from what was said of its two variants."""
    measured = pair.saving_percent
    if measured is None:
        return Row(pair, None, None, error=pair.error or "not measured", points=points)
    if pair.control:
        gain = max(0.0, measured.median)
        alarms = [
            f"{variant}: {each.code} {each.percent:.0f} %"
            for variant, findings in zip(pair.variants, (first, second), strict=True)
            for each in findings
            if each.loud and not _came_true(pair, variant, each, gain, points)
        ]
        others = tuple(each for each in first if each.loud)
        return Row(pair, measured, None, others, tuple(alarms), points=points)
    found = next((each for each in first if each.code in pair.expected), None)
    others = tuple(each for each in first if each.loud and each.code not in pair.expected)
    left = tuple(each for each in second if each.loud and each.code in pair.expected)
    return Row(pair, measured, found, others, left=left, points=points)


def _came_true(pair: Pair, variant: str, each: Said, gain: float, points: float) -> bool:
    """The twin has the change that this finding advises, and gained what it promised."""
    if variant != pair.variants[0] or each.code not in pair.twin_tests:
        return False
    return gain >= WORTH_FINDING and abs(each.percent - gain) <= points


@dataclass(frozen=True)
class Limits:
    """What a corpus must reach."""

    within: float = 0.9
    """share of the faults whose prediction is within the points"""
    found: float = 0.9
    """share of the faults worth finding that are found"""
    false_alarms: int = 0
    overstated: int = 0
    left: int | None = None
    """None: reported, not judged"""


@dataclass(frozen=True)
class Total:
    """The corpus's score."""

    rows: tuple[Row, ...]
    limits: Limits = field(default_factory=Limits)

    @property
    def faults(self) -> list[Row]:
        """Pairs with a fault."""
        return [row for row in self.rows if not row.pair.control]

    @property
    def within(self) -> float:
        """Share of the faults whose prediction came true."""
        faults = self.faults
        return sum(row.within for row in faults) / len(faults) if faults else 1.0

    @property
    def found(self) -> float:
        """Share of the faults worth finding that were found."""
        worth = [row for row in self.faults if row.must_find]
        return sum(row.found is not None for row in worth) / len(worth) if worth else 1.0

    @property
    def false_alarms(self) -> int:
        """Findings of medium or higher on controls that their twin does not bear out."""
        return sum(len(row.false_alarms) for row in self.rows)

    @property
    def overstated(self) -> int:
        """Faults that cost next to nothing, reported as medium or higher."""
        return sum(row.overstated for row in self.faults)

    @property
    def left(self) -> int:
        """Variants without the fault that are still said to have it."""
        return sum(bool(row.left) for row in self.faults)

    @property
    def misses(self) -> list[str]:
        """What is below its limit, a sentence each."""
        limits = self.limits
        words = []
        if self.within < limits.within:
            words.append(
                f"{self.within:.0%} of the predictions came true, below {limits.within:.0%}"
            )
        if self.found < limits.found:
            words.append(f"{self.found:.0%} of the faults were found, below {limits.found:.0%}")
        if self.false_alarms > limits.false_alarms:
            words.append(f"{self.false_alarms} false alarms, above {limits.false_alarms}")
        if self.overstated > limits.overstated:
            words.append(f"{self.overstated} faults overstated, above {limits.overstated}")
        if limits.left is not None and self.left > limits.left:
            words.append(f"{self.left} healthy twins still blamed, above {limits.left}")
        failed = [row.pair.name for row in self.rows if row.error]
        if failed:
            words.append(f"not scored: {', '.join(failed)}")
        return words
