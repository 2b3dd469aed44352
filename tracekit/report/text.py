"""The text report: cause, price and fix, readable in ten seconds, at most 100 columns wide."""

from __future__ import annotations

from tracekit.diagnosis import Diagnosis
from tracekit.report import facts, findings_text
from tracekit.report.facts import BREAKDOWN_LABELS, StepFacts
from tracekit.report.style import (
    Style,
    clean,
    columns,
    count,
    ms,
    pad,
    percent,
    shorten,
    wrap,
)

_LABEL_WIDTH = max(columns(label) for label in BREAKDOWN_LABELS.values())
_SMALLEST_SHARE = 0.0005  # of the step: below it a part is not worth a line


def render(d: Diagnosis, style: Style | None = None) -> str:
    """The report of one trace, ending in a newline."""
    style = style or Style()
    step = facts.step_facts(d)
    blocks = [
        _header(d, step, style),
        _time_line(d, step, style),
        findings_text.findings(d, style),
        _bound(d, step, style),
        findings_text.combined(d, style),
        findings_text.undetermined(d, style),
        _notes(d, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _header(d: Diagnosis, step: StepFacts, style: Style) -> list[str]:
    health = facts.health(d)
    path = shorten(clean(d.trace.path), style.width)
    name = path if columns(path) <= 48 else shorten(clean(d.trace.path.rsplit("/", 1)[-1]), 48)
    parts = [*_machine(d), f"{count(step.count, 'step')} ({clean(step.source)})"]
    line = style.paint(name, "bold") + "   "
    used, lines = columns(name) + 3, []
    for part in [*parts, health.status]:
        part = shorten(part, style.width - 4)
        dot = "" if used in (columns(name) + 3, 4) else " · "
        if used + len(dot) + columns(part) > style.width:
            lines.append(line.rstrip())
            line, used, dot = "    ", 4, ""
        role = "" if part != health.status else ("good" if part == "complete" else "warn")
        line += dot + (style.paint(part, role) if role else part)
        used += len(dot) + columns(part)
    return [*lines, line, *_headline(step, style, gpu=d.analysis.device >= 0)]


def _machine(d: Diagnosis) -> list[str]:
    found = facts.devices(d)
    versions = facts.versions(d.trace)
    parts = []
    if not found:
        parts.append("no GPU work")
    for device in found:
        if device.analysed:
            name = clean(device.name) or f"device {device.id}"
            others = len(found) - 1
            parts.append(name + (f" (device {device.id}, {others} more)" if others else ""))
    for key, label in (("torch", "torch"), ("cuda", "CUDA"), ("hip", "HIP")):
        if key in versions:
            parts.append(f"{label} {clean(versions[key])}")
    if d.trace.rank is not None:
        size = d.trace.world_size
        parts.append(f"rank {d.trace.rank}" + (f" of {size}" if size else ""))
    return parts


def _headline(step: StepFacts, style: Style, *, gpu: bool) -> list[str]:
    spread = f", {ms(step.low)}-{ms(step.high)}" if step.count > 1 else ""
    if step.unprofiled is not None:
        base = step.unprofiled
        text = f"{ms(base)} ms a step without the profiler ({ms(step.median)} recorded{spread})"
    else:
        base = step.median
        text = f"{ms(base)} ms a step, as recorded" + (f" ({spread[2:]})" if spread else "")
    busy = f"GPU busy {percent(min(step.busy, base), base)}" if gpu else ""
    gap = max(style.width - len(text) - len(busy), 3)
    return [style.paint(text, "bold") + (" " * gap + busy if busy else "")]


def _time_line(d: Diagnosis, step: StepFacts, style: Style) -> list[str]:
    if d.analysis.device < 0:
        return wrap(
            "The trace holds no GPU work: a step is the CPU's own mark, and where the GPU's time "
            "goes cannot be said. Record with ProfilerActivity.CUDA to see it.",
            style.width,
            "  ",
        )
    clean_run = step.unprofiled_breakdown
    shown = clean_run or step.breakdown
    whole = sum(shown.values())
    rows = [k for k in shown if max(shown[k], step.breakdown[k]) > _SMALLEST_SHARE * whole]
    gpu = [k for k in rows if not k.startswith("idle")]
    idle = sorted((k for k in rows if k.startswith("idle")), key=lambda k: -shown[k])
    head = "  unprofiled  recorded" if clean_run else "    recorded"
    lines = [style.paint(f"{head}  of step", "dim")]
    for key in [*gpu, *idle]:
        figures = f"{ms(shown[key]):>12}"
        if clean_run:
            figures += f"{ms(step.breakdown[key]):>10}"
        figures += f"{percent(shown[key], whole):>9}  "
        label = pad(BREAKDOWN_LABELS.get(key, key), _LABEL_WIDTH) + "  "
        room = style.width - columns(figures) - columns(label)
        detail = _detail(d, step, key, room)
        lines.append(figures + style.paint(label, "bold") + detail if detail else figures + label)
    total = f"{ms(whole):>12}" + (f"{ms(step.median):>10}" if clean_run else "")
    lines.append(style.paint(f"{total}{'':>9}  ms, the whole step", "dim"))
    return [line.rstrip() for line in lines]


def _detail(d: Diagnosis, step: StepFacts, key: str, room: int) -> str:
    """What stands beside a part of the time line, in at most `room` columns."""
    if key == "computing":
        return _classes(step, room)
    if key == "idle_launch" and step.launched:
        each = (step.unprofiled or step.median) / step.launched * 1000
        long = 1000 * step.busy / step.launched
        text = f"{step.launched:,.0f} launches a step, one in {each:.0f} us, {long:.0f} us of work"
        return text if len(text) <= room else shorten(f"{step.launched:,.0f} launches", room)
    if key.startswith("idle_") and key not in ("idle_device", "idle_unknown", "idle_launch"):
        found = facts.waits(d, key.removeprefix("idle_"), limit=1)
        return shorten(clean(found[0]), room) if found else ""
    return ""


def _classes(step: StepFacts, room: int) -> str:
    """'convolution 7.9 · layout 5.4 · other 3.2': the largest classes that fit, the rest summed."""
    not_computing = (*facts.COPY_CLASSES, *facts.COMMUNICATION_CLASSES)
    items = [(k, v) for k, v in step.classes.items() if v > 0 and k not in not_computing]
    named = [(k, v) for k, v in items if k != "other"]
    for keep in range(len(named), -1, -1):
        rest = sum(v for _, v in items) - sum(v for _, v in named[:keep])
        parts = [f"{clean(k)} {ms(v)}" for k, v in named[:keep]]
        parts += [f"other {ms(rest)}"] if rest > 1e-6 else []
        text = " · ".join(parts)
        if columns(text) <= room:
            return text
    return ""


def bound_by(d: Diagnosis, step: StepFacts) -> str:
    """One sentence: what the step waits for most."""
    parts = step.unprofiled_breakdown or step.breakdown
    whole = sum(parts.values())
    if d.analysis.device < 0 or whole <= 0:
        return ""
    idle = sum(v for k, v in parts.items() if k.startswith("idle"))
    largest = max(parts, key=lambda k: parts[k])
    if largest == "computing":
        not_computing = (*facts.COPY_CLASSES, *facts.COMMUNICATION_CLASSES)
        kinds = [k for k in step.classes if k not in not_computing and step.classes[k] > 0]
        most = (
            f", most of it {clean(kinds[0])} ({percent(step.classes[kinds[0]], step.busy)} of the "
            "GPU's time)"
            if kinds
            else ""
        )
        return (
            f"The step is bound by the GPU's own work: it computes "
            f"{percent(parts['computing'], whole)} of the step{most}."
        )
    if largest.startswith("idle"):
        cause = BREAKDOWN_LABELS[largest].removeprefix("idle, ")
        return (
            f"The step is bound by the host: the GPU is idle {percent(idle, whole)} of it, most of "
            f"that for {cause} ({percent(parts[largest], whole)} of the step)."
        )
    return (
        f"The step is bound by {BREAKDOWN_LABELS[largest]}: "
        f"{percent(parts[largest], whole)} of the step."
    )


def _bound(d: Diagnosis, step: StepFacts, style: Style) -> list[str]:
    if any(f.severity != "note" for f in d.findings):
        return []
    verdict = (
        "No finding saves 1 % of the step or more."
        if d.findings
        else "No finding: none of the causes that tracekit knows costs this step anything."
    )
    return wrap(f"{verdict} {bound_by(d, step)}", style.width)


def _notes(d: Diagnosis, style: Style) -> list[str]:
    read, found = d.trace.health, facts.health(d)
    notes = [*d.notes, *d.steps.notes]
    if read.events_skipped:
        causes = ", ".join(f"{v:,} {k}" for k, v in sorted(read.skipped_by_cause.items()))
        notes.append(
            f"{count(read.events_skipped, 'event')} of the file could not be read"
            + (f" ({causes})." if causes else ".")
        )
    notes += [f"Damage at byte {x.offset:,}: {x.cause}." for x in read.damage[:3]]
    if len(read.damage) > 3:
        notes.append(f"{count(len(read.damage) - 3, 'more damaged place')} (see --format json).")
    if found.orphans:
        notes.append(
            f"{count(found.orphans, 'GPU event')} without a recorded launch: in busy time, in no "
            "step's account."
        )
    lines = []
    for note in dict.fromkeys(notes):
        lines += wrap(note, style.width, "      ", style.paint("note", "dim") + "  ")
    return lines
