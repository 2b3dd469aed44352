"""The findings part of the text report: one block a finding, ranked, with price and fix."""

from __future__ import annotations

from tracekit.detectors.finding import Finding, Fix
from tracekit.diagnosis import Diagnosis
from tracekit.report import facts
from tracekit.report.style import Style, clean, columns, ms, pad, percent, shorten, wrap

_INDENT = "   "
_CODE_INDENT = "        "
_PRICE_HEAD = "saves ms a step          then"
MOST_IN_FULL = 6
"""Findings shown with their fix's code; the ones after it get a line each."""


def findings(d: Diagnosis, style: Style) -> list[str]:
    """Every finding that has a price, the costliest first."""
    found = facts.priced(d)
    if not found:
        return []
    lines = [style.paint(f"{_PRICE_HEAD:>{style.width}}", "dim")]
    for number, finding in enumerate(found, 1):
        full = number <= MOST_IN_FULL and finding.severity != "note"
        if lines[1:]:
            lines.append("")
        lines += _one(number, finding, style, full=full)
    return lines


def price(f: Finding) -> str:
    """'57.4 (52.1-61.0)  68 %  27.6': the saving, its range where it has one, its share, the step
    then."""
    s = f.saving
    low, high = ms(s.low), ms(s.high)
    spread = "" if low == high == ms(s.ms_per_step) else f"({low}-{high})"
    share = percent(max(s.ms_per_step, 0), s.step_ms)
    return f"{ms(s.ms_per_step):>6} {spread:<13}{share:>5} {ms(s.then_ms):>6}"


def _one(number: int, f: Finding, style: Style, *, full: bool) -> list[str]:
    right = price(f)
    left = f"{number:<2} {clean(f.code)}  "
    name = f"{clean(f.name)}  "
    severity = f"{f.severity:<6}  "
    where = clean(f.where.text)
    room = style.width - columns(left + name + severity) - columns(right) - 1
    beside = where if columns(where) <= room else ""
    role = "dim" if f.severity == "note" else "price"
    head = style.paint(left + name, "bold") + style.paint(severity, f.severity)
    if room >= 0:
        lines = [head + pad(beside, room) + " " + style.paint(right, role)]
    else:
        lines = [head.rstrip(), style.paint(f"{right:>{style.width}}", role)]
    if where and not beside:
        lines += wrap(where, style.width, _INDENT)
    if f.where.file:
        place = clean(f.where.file) + (f":{f.where.line}" if f.where.line else "")
        lines.append(_INDENT + "at " + shorten(place, style.width - 6))
    lines += wrap(f.insight, style.width, _INDENT)
    if full:
        lines += wrap(f.impact, style.width, _INDENT)
        for evidence in f.evidence.lines[:2]:
            shown = wrap(evidence, style.width, _INDENT + "  ", _INDENT)
            lines += [style.paint(line, "dim") for line in shown[:2]]
        for position, fix in enumerate(f.fixes[:2]):
            lines += _fix(fix, f.code, style, first=position == 0)
    return lines


def _fix(fix: Fix, code: str, style: Style, *, first: bool) -> list[str]:
    label = style.paint("fix", "price") if first else "or "
    hint = f"(tracekit explain {clean(code)})" if first else ""
    title = wrap(fix.title, style.width - 8, "")
    lines = [f"{_INDENT}{label}  {title[0] if title else ''}"]
    lines += [_CODE_INDENT + more for more in title[1:]]
    used = 8 + columns(title[-1] if title else "")
    if hint and used + len(hint) + 2 <= style.width:
        lines[-1] += style.paint(f"{hint:>{style.width - used}}", "dim")
    if first:
        for line in fix.code.rstrip().splitlines():
            for part in _code(clean(line.expandtabs(4)), style.width - len(_CODE_INDENT)):
                lines.append(_CODE_INDENT + style.paint(part, "code"))
    return lines


def _code(line: str, width: int) -> list[str]:
    """A line of code that stays valid: where it is too long, its trailing comment moves above it.
    Code itself is never broken."""
    body, mark, comment = line.rpartition("  # ")
    if columns(line) <= width or not mark or not body.strip() or set(comment) & set("\"'"):
        return [line]
    indent = body[: len(body) - len(body.lstrip())]
    return [f"{indent}# {comment}", body.rstrip()]


def recording(d: Diagnosis, style: Style) -> list[str]:
    """Findings about the trace itself: no price, but how far to trust the prices."""
    found = facts.about_recording(d)
    lines = ["About the recording:"] if found else []
    for finding in found:
        lines += wrap(f"{finding.code} {finding.name}", style.width, "  ")
        lines += wrap(f"{finding.insight} {finding.action}", style.width, "    ")
    return lines


def combined(d: Diagnosis, style: Style) -> list[str]:
    """The line that says what the top fixes make of the step."""
    saving = d.combined_saving
    if saving is None:
        return []
    codes = " + ".join(d.combined_codes)
    measured = "" if saving.base == "unprofiled" else ", as recorded with the profiler on"
    what = f"Together ({codes})" if len(d.combined_codes) > 1 else f"Without {codes}"
    text = f"{clean(what)}: {ms(saving.step_ms)} -> {ms(saving.then_ms)} ms a step{measured}."
    return [style.paint(line, "bold") for line in wrap(text, style.width, "  ", "")]


def undetermined(d: Diagnosis, style: Style) -> list[str]:
    """What could not be judged, and why."""
    lines = ["Could not judge:"] if d.undetermined else []
    reasons: dict[str, list[str]] = {}
    for item in d.undetermined:
        reasons.setdefault(item.why, []).append(f"{item.code} {item.name}")
    for why, names in reasons.items():
        who = names[0] if len(names) == 1 else ", ".join(n.partition(" ")[0] for n in names)
        lines += wrap(f"{who}: {why}", style.width, "    ", "  ")
    return lines
