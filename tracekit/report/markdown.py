"""The markdown report: for a pull request's comment or an issue.

Names from the trace are escaped: no markup, HTML or mention in a kernel's name takes effect.
"""

from __future__ import annotations

import re

from tracekit.detectors.finding import Finding
from tracekit.diagnosis import Diagnosis
from tracekit.report import facts
from tracekit.report.facts import BREAKDOWN_LABELS
from tracekit.report.style import clean, count, ms, percent, sentence
from tracekit.report.text import bound_by

_SPECIAL = re.compile(r"([\\`*_\[\]|~>]|^[#+-])")
_LISTED = re.compile(r"^(\d+)([.)])")


def escape(text: str) -> str:
    """Text that renders as itself."""
    escaped = _SPECIAL.sub(r"\\\1", clean(text).replace("&", "&amp;"))
    escaped = _LISTED.sub(r"\1\\\2", escaped)
    return escaped.replace("<", "&lt;").replace("@", "&#64;")


def fence(code: str, language: str = "python") -> str:
    """A code block whose fence no line of the code can close."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    ticks = "`" * max(3, longest + 1)
    body = "\n".join(clean(line.expandtabs(4)) for line in code.rstrip().splitlines())
    return f"{ticks}{language}\n{body}\n{ticks}"


def render(d: Diagnosis) -> str:
    """The report of one trace, ending in a newline."""
    step = facts.step_facts(d)
    blocks = [f"## {escape(d.trace.path.rsplit('/', 1)[-1])}", _summary(d)]
    if d.analysis.device >= 0:
        blocks.append(_table(step))
    found = facts.priced(d)
    if found:
        blocks += ["### Findings", _overview(found), *(_details(f) for f in found)]
    else:
        blocks.append(f"No finding. {escape(bound_by(d, step))}".rstrip())
    saving = d.combined_saving
    if saving is not None:
        codes = " + ".join(escape(c) for c in d.combined_codes)
        blocks.append(
            f"**Together ({codes}): {ms(saving.step_ms)} → {ms(saving.then_ms)} ms a step** "
            f"({saving.base})."
        )
    about = [f"- {f.code} {f.name}: {escape(f.insight)}" for f in facts.about_recording(d)]
    if about:
        blocks.append("\n".join(["About the recording:", "", *about]))
    if d.undetermined:
        items = [f"- {u.code} {u.name}: {escape(u.why)}" for u in d.undetermined]
        blocks.append("\n".join(["Could not judge:", "", *items]))
    notes = [f"- {escape(sentence(n))}" for n in dict.fromkeys([*d.notes, *d.steps.notes])]
    if notes:
        blocks.append("\n".join(["Notes:", "", *notes]))
    return "\n\n".join(blocks) + "\n"


def _summary(d: Diagnosis) -> str:
    step, health = facts.step_facts(d), facts.health(d)
    base = step.unprofiled if step.unprofiled is not None else step.median
    device = next((x for x in facts.devices(d) if x.analysed), None)
    name = "no GPU work" if device is None else (device.name or f"device {device.id}")
    what = "without the profiler" if step.unprofiled is not None else "as recorded"
    lost = f", {count(d.trace.health.events_skipped, 'event')} skipped" if d.degraded else ""
    busy = "" if device is None else f" · GPU busy {percent(min(step.busy, base), base)}"
    return (
        f"**{ms(base)} ms a step** {what}{busy} · {escape(name)} · "
        f"{count(step.count, 'step')} ({escape(step.source)}) · {health.status}{lost}"
    )


def _table(step: facts.StepFacts) -> str:
    whole = sum(step.breakdown.values())
    lines = ["| where the step's time goes | ms | share |", "|---|---:|---:|"]
    for key, value in step.breakdown.items():
        if value > 0:
            label = BREAKDOWN_LABELS.get(key, key)
            lines.append(f"| {label} | {ms(value)} | {percent(value, whole)} |")
    lines.append(f"| **the step, as recorded** | **{ms(whole)}** | |")
    return "\n".join(lines)


def _overview(found: list[Finding]) -> str:
    lines = [
        "| | code | severity | where | saves a step | range | then |",
        "|---:|---|---|---|---:|---:|---:|",
    ]
    for number, f in enumerate(found, 1):
        s = f.saving
        share = percent(s.ms_per_step, s.step_ms)
        lines.append(
            f"| {number} | {f.code} {f.name} | {f.severity} | {escape(f.where.text)} "
            f"| {ms(s.ms_per_step)} ms, {share} | {ms(s.low)}-{ms(s.high)} "
            f"| {ms(s.then_ms)} ms |"
        )
    return "\n".join(lines)


def _details(f: Finding) -> str:
    parts = [f"**{f.code}** {escape(f.title)}", escape(f.insight)]
    if f.impact:
        parts.append(escape(f.impact))
    for fix in f.fixes:
        parts.append(f"Fix: {escape(fix.title)}")
        if fix.code.strip():
            parts.append(fence(fix.code))
        parts.append(
            f"Applies when: {escape(sentence(fix.applies_when))} "
            f"Numerics: {escape(sentence(fix.numerics))}"
        )
    return "\n\n".join(parts)
