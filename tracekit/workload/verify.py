"""Did the predictions come true? What the diagnosis of a rung promised, beside what was measured.

Each rung's trace was recorded before the next rung was run, with step times measured without the
profiler inside the file. The findings whose fix the next rung applies are replayed together; what
they save is the prediction. The ladder measured both rungs side by side; the median of each
round's difference is the truth. Neither number knows of the other.

A finding that is absent predicts that the change saves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.workload.errors import WorkloadError
from tracekit.workload.ladder_statistics import median_interval

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis
    from tracekit.detectors.finding import Finding
    from tracekit.diagnosis import Diagnosis
    from tracekit.replay.edits import Edits

__all__ = [
    "CHANGES",
    "POINTS",
    "Change",
    "Saved",
    "Verified",
    "load",
    "markdown",
    "text_table",
    "verify",
]

POINTS = 10.0
"""A prediction is right within this many points of the step's percentage."""


@dataclass(frozen=True)
class Change:
    """What rung ``after`` does to rung ``before``, in the words of the findings."""

    before: str
    after: str
    codes: tuple[str, ...]
    what: str
    fix: str | None = None
    """Only findings with a fix whose title begins so: others of the code ask for another change."""
    compiled_region: bool = False
    """Launches of forward and backward only; the rung leaves clipping and optimizer outside."""


CHANGES = (
    Change("eager", "0", ("FUS001",), "torch.compile the model: chains of pointwise ops fused"),
    Change("0", "1", ("LAY001",), "channels-last", fix="channels_last"),
    Change("1", "2", ("SYN001",), "no .item() of the loss every step"),
    Change("2", "3", ("FUS002",), "fused AdamW"),
    Change(
        "3", "4", ("LCH001",), "forward and backward as CUDA graphs", compiled_region=True
    ),
    Change("4", "5", ("LCH001",), "what launches are left: the whole step as one graph"),
    Change("3", "5", ("LCH001",), "both: from no graph to one graph of the whole step"),
)  # fmt: skip


@dataclass(frozen=True)
class Saved:
    """Time saved of a step: ms, and % of the step before the change, with its interval."""

    ms: float
    percent: float
    low: float
    high: float
    """low and high in %: the replay's range, or the 95 % interval of the measurement"""
    step_ms: float


@dataclass(frozen=True)
class Verified:
    """One change: promised and measured; either is None where ``why`` says what is missing."""

    change: Change
    predicted: Saved | None
    measured: Saved | None
    findings: int
    why: str = ""

    @property
    def off(self) -> float | None:
        """Points of the step that the prediction is above the measured saving."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted.percent - self.measured.percent

    @property
    def within(self) -> bool | None:
        """Whether that is at most ``POINTS``."""
        return None if self.off is None else abs(self.off) <= POINTS


def verify(ladder: dict[str, Any], traces: Path) -> list[Verified]:
    """Every change of ``CHANGES`` that the ladder measured.

    ``traces`` holds a recording a rung: ``rung_N.json.gz``, or ``rung_N/trace.json.gz`` as
    `tracekit profile` writes it. Raises ``WorkloadError`` where it holds none of them.
    """
    from tracekit.diagnosis import diagnose

    rounds = {row["rung"]: row["round_ms"] for row in ladder["rows"] if row["ms"] is not None}
    changes = [c for c in CHANGES if c.before in rounds and c.after in rounds]
    found = {c.before: find_trace(traces, c.before) for c in changes}
    if not any(found.values()):
        raise WorkloadError(f"{traces} holds no recording of a rung, such as rung_0.json.gz")
    diagnoses = {key: diagnose(path) for key, path in found.items() if path is not None}
    result = []
    for change in changes:
        measured = measured_saving(rounds[change.before], rounds[change.after])
        diagnosis = diagnoses.get(change.before)
        if diagnosis is None:
            why = f"no recording of rung {change.before}"
            result.append(Verified(change, None, measured, 0, why))
            continue
        chosen = promising(diagnosis.findings, change)
        result.append(
            Verified(change, predicted_saving(diagnosis, chosen, change), measured, len(chosen))
        )
    return result


def find_trace(folder: Path, key: str) -> Path | None:
    """The recording of a rung in the folder, None where there is none."""
    for name in (f"rung_{key}.json.gz", f"rung_{key}.json", f"rung_{key}/trace.json.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def measured_saving(before: Sequence[float], after: Sequence[float]) -> Saved:
    """From the block times of the rounds that both rungs have; paired, so that drift cancels."""
    count = min(len(before), len(after))
    pairs = list(zip(before[:count], after[:count], strict=True))
    share = median_interval([100 * (1 - b / a) for a, b in pairs])
    ms = median_interval([a - b for a, b in pairs]).median
    step = median_interval([a for a, _ in pairs]).median
    return Saved(ms, share.median, share.low, share.high, step)


def promising(findings: Iterable[Finding], change: Change) -> list[Finding]:
    """The findings whose fix is what the rung does."""
    return [
        finding
        for finding in findings
        if finding.code in change.codes
        and (change.fix is None or any(f.title.startswith(change.fix) for f in finding.fixes))
    ]


def predicted_saving(diagnosis: Diagnosis, chosen: list[Finding], change: Change) -> Saved:
    """What the chosen findings save together, in % of the step without the profiler."""
    from tracekit.detectors.pricing import Pricer
    from tracekit.replay.edits import Edits

    analysis = diagnosis.analysis
    step_ms = analysis.unprofiled_ms or analysis.steps.median_ns / 1e6
    model = analysis.replay
    if not chosen or model is None:
        return Saved(0.0, 0.0, 0.0, 0.0, step_ms)
    if len(chosen) == 1 and not change.compiled_region:
        saving = chosen[0].saving
        low, high = saving.low, saving.high
        return _saved(saving.ms_per_step, low, high, saving.step_ms)
    together = Edits()
    for finding in chosen:
        edits = finding.edits
        together = together | (within_region(analysis, edits) if change.compiled_region else edits)
    pricer = Pricer(analysis, model)
    best = pricer.saved_ms(together)
    if change.compiled_region:
        low, high = best * (1 - pricer.miss), best * (1 + pricer.miss)
    else:
        # As the report's combined saving: findings overlap, so the sum is only an upper bound.
        low = min(best, max(f.saving.low for f in chosen))
        high = max(best, sum(f.saving.high for f in chosen))
    return _saved(best, low, min(high, pricer.step_ms), pricer.step_ms)


def _saved(ms: float, low: float, high: float, step_ms: float) -> Saved:
    share = 100 / step_ms if step_ms else 0.0
    return Saved(ms, ms * share, low * share, high * share, step_ms)


def within_region(analysis: Analysis, edits: Edits) -> Edits:
    """The edits with graphs over forward and backward only.

    Work after the last launch of a step's backward (clipping, optimizer, EMA) is outside.
    """
    from tracekit.analysis.phases import PHASES
    from tracekit.replay.edits import Graphed

    steps, launch = analysis.steps.gpu_step, analysis.links.gpu_launch
    launched = np.where(launch >= 0, analysis.trace.table("launches").ts[np.maximum(launch, 0)], 0)
    backward = analysis.phases == PHASES.index("backward")
    optimizer = analysis.phases == PHASES.index("optimizer")
    last = np.zeros(len(analysis.steps), np.int64)
    mine = backward & (steps >= 0)
    np.maximum.at(last, steps[mine], launched[mine])
    inside = (steps >= 0) & ~optimizer & (launched <= last[np.maximum(steps, 0)])
    graphs = tuple(Graphed(g.gpu_rows[inside[g.gpu_rows]]) for g in edits.graphs)
    return replace(edits, graphs=tuple(g for g in graphs if len(g.gpu_rows)))


HEADINGS = (
    "change", "findings", "predicted", "range", "measured", "95 % interval", "off", "within 10",
)  # fmt: skip


def cells(row: Verified) -> list[str]:
    """One change as text, in the order of ``HEADINGS``."""

    def saving(saved: Saved | None) -> list[str]:
        if saved is None:
            return [row.why or "not measured", ""]
        interval = f"{saved.low:.1f} to {saved.high:.1f} %"
        return [f"{saved.ms:.2f} of {saved.step_ms:.2f} ms, {saved.percent:.1f} %", interval]

    codes = ", ".join(row.change.codes)
    return [
        f"{row.change.before} -> {row.change.after}",
        f"{row.findings} x {codes}" if row.findings else f"no {codes}",
        *saving(row.predicted),
        *saving(row.measured),
        "" if row.off is None else f"{row.off:+.1f} points",
        {True: "yes", False: "no", None: ""}[row.within],
    ]


def text_table(rows: list[Verified]) -> str:
    """The changes for a terminal, aligned."""
    lines = [list(HEADINGS), *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    return "".join(
        "  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def markdown(rows: list[Verified], ladder: dict[str, Any]) -> str:
    """The page ``docs/predictions.md``."""
    judged = [row for row in rows if row.within is not None]
    right = sum(bool(row.within) for row in judged)
    settings, machine = ladder["settings"], ladder["machine"]

    def line(texts: Iterable[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    out = [
        "# Predicted and measured",
        "",
        "Made by `tracekit ladder --verify`: what the diagnosis of a rung's recording promised for "
        "the change that the next rung makes, beside what the [ladder](ladder.md) measured. "
        f"{machine['gpu'] or 'CPU'}, torch {machine['torch']}, batch {settings['batch']}.",
        "",
        f"**{right} of {len(judged)} within {POINTS:g} points of the step.**",
        "",
        line(HEADINGS),
        line(["---"] * len(HEADINGS)),
        *(line(cells(row)) for row in rows),
        "",
        "The changes:",
        "",
        *(f"- {r.change.before} -> {r.change.after}: {r.change.what}" for r in rows),
        "",
        *NOTES,
    ]
    return "\n".join(out) + "\n"


NOTES = (
    "**Predicted** is a replay of the recorded step without the findings named, in % of the step "
    "as `tracekit profile` timed it without the profiler, before the recording. Several findings "
    "are replayed together. An absent finding predicts 0. **Measured** is the median over the "
    "rounds of the ladder, each rung's block against the other's in the same round. The two step "
    "times differ where the host is the limit: they are two runs, and a host-bound step wanders by "
    "several ms.",
    "",
    "Which findings stand for a change:",
    "",
    "- eager -> 0: FUS001, the chains that torch.compile fuses. The compiler also launches less "
    "and dispatches less for ops in no such chain (norms, casts, reductions, the autograd engine's "
    "nodes), and no finding is about these alone. Where the host is the limit this part is missing "
    "from the prediction, and the table shows by how much.",
    "- 0 -> 1: the LAY001 findings whose fix is channels_last; not those about hidden copies, "
    "whose fix is another norm.",
    "- 3 -> 4: LCH001 with the graph over forward and backward only, because the rung leaves "
    "clipping, optimizer and EMA outside. 4 -> 5 is what is left, 3 -> 5 the whole finding.",
)


def load(path: Path) -> dict[str, Any]:
    """The numbers of a ladder; ``WorkloadError`` with a sentence where the file holds none."""
    try:
        ladder: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for row in ladder["rows"]:
            if row["ms"] is not None:
                measured_saving(row["round_ms"], row["round_ms"])
        markdown([], ladder)
    except OSError as missing:
        raise WorkloadError(f"{path}: {missing.strerror or missing}") from missing
    except (ValueError, KeyError, TypeError, IndexError) as damage:
        raise WorkloadError(f"{path} is no result of a ladder: {damage!r}") from damage
    return ladder
