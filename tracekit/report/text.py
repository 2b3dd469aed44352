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
    decimals,
    ms,
    pad,
    percent,
    sentence,
    short_time,
    shorten,
    wrap,
)

_LABEL_WIDTH = max(columns(label) for label in BREAKDOWN_LABELS.values())
_KIND = {"cuda": "CUDA device", "hip": "AMD GPU", "xpu": "XPU device", "mtia": "MTIA device"}
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
        findings_text.recording(d, style),
        findings_text.undetermined(d, style),
        _notes(d, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _header(d: Diagnosis, step: StepFacts, style: Style) -> list[str]:
    health = facts.health(d)
    parts = [*_machine(d), f"{count(step.count, 'step')} ({clean(step.source)})", health.status]
    room = style.width - columns(" · ".join(parts)) - 3
    path = clean(d.trace.path)
    if columns(path) > room:
        path = clean(d.trace.path.rsplit("/", 1)[-1])
    name = shorten(path, max(room, 40))
    lines, line, used, joint = [], style.paint(name, "bold"), columns(name), "   "
    for part in parts:
        part = shorten(part, style.width - 4)
        if used + len(joint) + columns(part) > style.width:
            lines.append(line)
            line, used, joint = "", 0, "    "
        role = ("good" if part == "complete" else "warn") if part == health.status else ""
        line += joint + (style.paint(part, role) if role else part)
        used, joint = used + len(joint) + columns(part), " · "
    return [*lines, line, *_headline(step, style, gpu=d.analysis.device >= 0)]


def _machine(d: Diagnosis) -> list[str]:
    found = facts.devices(d)
    versions = facts.versions(d.trace)
    parts = []
    if not found:
        parts.append("no GPU work")
    for device in found:
        if device.analysed:
            name = clean(device.name) or f"{_KIND.get(d.trace.vendor, 'device')} {device.id}"
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
            "The trace holds no GPU work: a step is the CPU's own mark, and where a GPU's time "
            "goes cannot be said.",
            style.width,
            "  ",
        )
    clean_run = step.unprofiled_breakdown
    shown = clean_run or step.breakdown
    whole = sum(shown.values())
    rows = [k for k in shown if max(shown[k], step.breakdown[k]) > _SMALLEST_SHARE * whole]
    gpu = [k for k in rows if not k.startswith("idle")]
    idle = sorted((k for k in rows if k.startswith("idle")), key=lambda k: -shown[k])
    places = decimals(whole)
    head = "unprofiled  recorded" if clean_run else "  recorded"
    lines = [style.paint(f"{head}  of step", "dim")]
    for key in [*gpu, *idle]:
        figures = f"{shown[key]:>10,.{places}f}"
        if clean_run:
            figures += f"{step.breakdown[key]:>10,.{places}f}"
        figures += f"{percent(shown[key], whole):>9}  "
        label = pad(BREAKDOWN_LABELS.get(key, key), _LABEL_WIDTH) + "  "
        margin = columns(figures + label)
        first, *more = _detail(d, step, key, style.width - margin) or [""]
        lines.append(figures + style.paint(label, "bold") + first)
        lines += [" " * margin + line for line in more]
    total = f"{whole:>10,.{places}f}" + (f"{step.median:>10,.{places}f}" if clean_run else "")
    lines.append(style.paint(f"{total}{'':>9}  ms, the whole step", "dim"))
    return [line.rstrip() for line in lines]


def _detail(d: Diagnosis, step: StepFacts, key: str, room: int) -> list[str]:
    """What stands beside a part of the time line: lines of at most `room` columns."""
    if key == "computing":
        return _classes(step, room)
    if key == "idle_launch" and step.launched:
        mean = short_time(step.busy / step.launched)
        return wrap(f"{step.launched:,.0f} launched a step, {mean} each (mean)", room)
    if key in ("idle_device", "idle_unknown") or not key.startswith("idle_"):
        return []
    found = facts.waits(d, key.removeprefix("idle_"), limit=1)
    return wrap(found[0], room)[:2] if found else []


def _classes(step: StepFacts, room: int) -> list[str]:
    """'convolution 7.9 · layout 5.4': GPU time by kernel class, on at most two lines."""
    items = [(k, step.classes[k]) for k in _computing_classes(step)]
    named = [(k, v) for k, v in items if k != "other"]
    for keep in range(len(named), -1, -1):
        rest = sum(v for _, v in items) - sum(v for _, v in named[:keep])
        parts = [f"{clean(k)} {ms(v)}" for k, v in named[:keep]]
        parts += [f"other {ms(rest)}"] if rest > 1e-6 else []
        lines = _flow(parts, room)
        if len(lines) <= 2:
            return lines
    return []


def _flow(parts: list[str], room: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and columns(lines[-1]) + columns(part) + 3 <= room:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def bound_by(d: Diagnosis, step: StepFacts) -> str:
    """One sentence: what the step waits for most; empty without GPU work."""
    parts = step.unprofiled_breakdown or step.breakdown
    whole = sum(parts.values())
    if d.analysis.device < 0 or whole <= 0:
        return ""
    idle = {k: v for k, v in parts.items() if k.startswith("idle")}
    rest = {k: v for k, v in parts.items() if k not in idle}
    largest = max(rest, key=lambda k: rest[k])
    if sum(idle.values()) > rest[largest]:
        cause = max(idle, key=lambda k: idle[k])
        label = BREAKDOWN_LABELS[cause].removeprefix("idle, ")
        if cause == "idle_unknown":
            label = "causes that the trace does not show"
        return (
            f"The GPU is idle {percent(sum(idle.values()), whole)} of the step; the largest part "
            f"of that is {label} ({percent(idle[cause], whole)} of the step)."
        )
    if largest == "computing":
        return (
            "The step is bound by the GPU's own work: it computes "
            f"{percent(rest[largest], whole)} of the step{_most(step)}."
        )
    return (
        f"The step is bound by {BREAKDOWN_LABELS[largest]}: "
        f"{percent(rest[largest], whole)} of the step."
    )


def _most(step: StepFacts) -> str:
    kinds = [k for k in _computing_classes(step) if k != "other"]
    if not kinds:
        return ""
    share = percent(step.classes[kinds[0]], step.busy)
    return f", the largest part in {clean(kinds[0])} kernels ({share} of the GPU's time)"


def _computing_classes(step: StepFacts) -> list[str]:
    not_computing = (*facts.COPY_CLASSES, *facts.COMMUNICATION_CLASSES)
    return [k for k, v in step.classes.items() if v > 0 and k not in not_computing]


def _bound(d: Diagnosis, step: StepFacts, style: Style) -> list[str]:
    found = facts.priced(d)
    if d.analysis.device < 0 or any(f.severity != "note" for f in found):
        return []
    verdict = "No finding saves 1 % of the step or more." if found else "No finding."
    return wrap(f"{verdict} {bound_by(d, step)}", style.width)


def _notes(d: Diagnosis, style: Style) -> list[str]:
    read, found = d.trace.health, facts.health(d)
    notes = [*d.notes, *d.steps.notes]
    said = {f.code for f in facts.about_recording(d)}
    if read.events_skipped and "TRC001" not in said:
        causes = ", ".join(f"{v:,} {k}" for k, v in sorted(read.skipped_by_cause.items()))
        notes.append(
            f"{count(read.events_skipped, 'event')} of the file could not be read"
            + (f" ({causes})." if causes else ".")
        )
    notes += [f"Damage at byte {x.offset:,}: {x.cause}." for x in read.damage[:3]]
    if len(read.damage) > 3:
        notes.append(f"{count(len(read.damage) - 3, 'more damaged place')} (see --format json).")
    if found.orphans and "TRC002" not in said:
        notes.append(
            f"{count(found.orphans, 'GPU event')} without a recorded launch: in busy time, in no "
            "step's account."
        )
    lines = []
    for note in dict.fromkeys(notes):
        lines += wrap(sentence(note), style.width, "      ", style.paint("note", "dim") + "  ")
    return lines
