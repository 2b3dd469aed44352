"""The score as a table for the terminal, as markdown and as JSON."""

from __future__ import annotations

from typing import Any

from benchmarks.pathologies.scoring import Row, Said, Total
from benchmarks.pathologies.truths import Interval, Truths

HEAD = ("program", "expected", "step ms", "measured %", "predicted %", "points off", "found as", "")


def span(low: float, high: float) -> str:
    """An interval."""
    return f"[{low:.1f}, {high:.1f}]"


def measured(interval: Interval | None) -> str:
    """Percent with its interval."""
    if interval is None:
        return "-"
    return f"{interval.median:.1f} {span(interval.low, interval.high)}"


def predicted(said: Said | None) -> str:
    """Percent with its range."""
    return f"{said.percent:.1f} {span(said.low, said.high)}" if said else "-"


def verdict(row: Row) -> str:
    """What a person looks for in the line."""
    if row.error:
        return row.error
    words = []
    if row.pair.control:
        words.append("FALSE ALARM " + "; ".join(row.false_alarms) if row.false_alarms else "silent")
    else:
        words.append("ok" if row.within else "OFF")
        if row.must_find and row.found is None:
            words.append("not found")
        if row.overstated:
            words.append("overstated")
    if row.others and not row.pair.control:
        words.append("also " + ", ".join(f"{o.code} {o.percent:.0f} %" for o in row.others))
    if row.left:
        words.append("still in the healthy twin: " + ", ".join(o.code for o in row.left))
    return "; ".join(words)


def cells(row: Row) -> tuple[str, ...]:
    """The row, as `HEAD` names its columns."""
    pair = row.pair
    found = f"{row.found.code}, {row.found.severity}, #{row.found.rank}" if row.found else "-"
    off = "-" if row.error or pair.control else f"{row.difference:+.1f}"
    return (
        pair.name,
        " ".join(pair.expected) or "none",
        f"{pair.first.median:.3f}" if pair.first else "-",
        measured(row.measured),
        "-" if pair.control else predicted(row.found),
        off,
        found,
        verdict(row),
    )


def summary(total: Total) -> str:
    """The corpus in one paragraph."""
    faults, worth = total.faults, [row for row in total.faults if row.must_find]
    first = sum(row.found is not None and row.found.rank == 1 for row in worth)
    return (
        f"{sum(r.within for r in faults)} of {len(faults)} predictions within the points "
        f"({total.within:.0%}); {sum(r.found is not None for r in worth)} of {len(worth)} faults "
        f"worth finding found, {first} of them as the first finding; {total.false_alarms} false "
        f"alarms on {len(total.rows) - len(faults)} controls; {total.overstated} overstated; "
        f"{total.left} healthy twins still blamed"
    )


def text(total: Total) -> str:
    """Aligned columns."""
    lines = [HEAD, *(cells(row) for row in total.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]

    def pad(line: tuple[str, ...]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([*map(pad, lines), "", summary(total), *total.misses])


def markdown(total: Total, truths: Truths, points: float) -> str:
    """The page for docs/."""
    versions = truths.machine.get("versions", {})
    names = ("python", "torch", "cuda", "cudnn", "triton")
    stack = ", ".join(f"{name} {versions[name]}" for name in names if versions.get(name))
    lines = [
        "# Pathologies: what findings promise, and what was measured",
        "",
        "Small programs, each with one fault and a healthy twin. Both are timed in turns without "
        "the profiler, then recorded; the recording of the faulty one is diagnosed, and what its "
        "finding promises is held against what removing the fault saves. A prediction is right "
        f"within {points:g} points of the step's percentage. Where the change makes the step "
        "slower, the measured gain counts as none. Controls have no fault: what is said of them "
        "at medium or higher is a false alarm, unless their twin, which has the advised change, "
        "gains as much.",
        "",
        f"Measured on: {truths.machine.get('device')}, {stack}.",
        "",
        "```",
        truths.command,
        "python -m benchmarks.pathologies.score DIR --markdown docs/pathologies.md",
        "```",
        "",
        summary(total) + ".",
        "",
        "Intervals: measured, 95 % bootstrap over the rounds; predicted, the finding's range.",
        "",
        "| " + " | ".join(name or "verdict" for name in HEAD) + " |",
        "|" + "---|" * len(HEAD),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |"
          for row in total.rows),
        "",
        "## The programs",
        "",
        *(f"- `{row.pair.name}`: {row.pair.fault}. {row.pair.reason}" for row in total.rows),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def as_json(total: Total, truths: Truths) -> dict[str, Any]:
    """For scripts."""
    return {
        "schema_version": 1,
        "machine": dict(truths.machine),
        "within": total.within,
        "found": total.found,
        "false_alarms": total.false_alarms,
        "overstated": total.overstated,
        "left": total.left,
        "misses": total.misses,
        "pairs": [
            {
                "name": row.pair.name,
                "expected": list(row.pair.expected),
                "measured_percent": row.measured.median if row.measured else None,
                "predicted_percent": row.predicted if row.found else None,
                "difference": None if row.error or row.pair.control else row.difference,
                "within": None if row.pair.control else row.within,
                "code": row.found.code if row.found else None,
                "severity": row.found.severity if row.found else None,
                "rank": row.found.rank if row.found else None,
                "also": {each.code: each.percent for each in row.others},
                "left": [each.code for each in row.left],
                "false_alarms": list(row.false_alarms),
                "error": row.error,
            }
            for row in total.rows
        ],
    }
