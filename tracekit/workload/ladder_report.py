"""The ladder for people: a table for the terminal, a markdown page, a plot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tracekit.workload.ladder_statistics import Interval

__all__ = [
    "HEADINGS", "cells", "markdown", "plot", "read_findings_again", "short_table", "summary",
    "text_table", "with_block",
]  # fmt: skip

HEADINGS = (
    "rung", "what", "ms a step", "95 % interval", "over {base}", "over the one before",
    "images/s", "TFLOP/s", "MFU", "GPU busy", "memory", "loss", "findings left",
)  # fmt: skip
SHORT = (
    "rung", "what", "ms a step", "95 % interval", "over {base}", "over the one before", "GPU busy",
)  # fmt: skip
LEFT = ("rung", "what", "over {base}", "over the one before", "findings left")


def headings(ladder: dict[str, Any]) -> list[str]:
    """Column titles; the base is rung 0 or, without it, the lowest rung that was timed."""
    base = next((row["base"] for row in ladder["rows"] if row.get("base")), "0")
    return [title.format(base=f"rung {base}") for title in HEADINGS]


def cells(row: dict[str, Any]) -> list[str]:
    """One row as text, in the order of ``HEADINGS``; blank where something was not measured."""
    if row["ms"] is None:
        why = row["error"] or "not measured"
        return [row["rung"], f"{row['name']}: {why}"] + [""] * (len(HEADINGS) - 2)

    def number(key: str, form: str, scale: float = 1.0) -> str:
        return "" if row[key] is None else form.format(row[key] * scale)

    def verdict(key: str) -> str:
        found = row[key]
        return Interval(found["median"], found["low"], found["high"]).verdict if found else ""

    findings = row["findings_after"]
    return [
        row["rung"],
        row["name"],
        number("ms", "{:.2f}"),
        f"{row['low']:.2f} to {row['high']:.2f}",
        verdict("speedup_over_base"),
        verdict("speedup_over_previous"),
        number("images_per_s", "{:,.0f}"),
        number("tflops", "{:.1f}" if (row["tflops"] or 0) >= 1 else "{:.3f}"),
        number("mfu_percent", "{:.1f} %"),
        number("gpu_busy_percent", "{:.0f} %"),
        number("peak_memory_bytes", "{:.2f} GB", 1e-9),
        number("loss", "{:.4f}"),
        "" if findings is None else " ".join(dict.fromkeys(f["code"] for f in findings)) or "none",
    ]


def machine_line(ladder: dict[str, Any]) -> str:
    """The machine in one line."""
    machine = ladder["machine"]
    parts = [machine["gpu"] or f"CPU ({machine['cpu']})", f"torch {machine['torch']}"]
    if machine["gpu"]:
        parts += [f"CUDA {machine['cuda']}", f"cuDNN {machine['cudnn']}"]
    if machine["clocks"]:
        parts += [f"{name} {value}" for name, value in machine["clocks"].items()]
    return " · ".join(parts)


def text_table(ladder: dict[str, Any]) -> str:
    """The ladder for a terminal: the machine, then aligned columns, numbers to the right."""
    lines = [headings(ladder), *(cells(row) for row in ladder["rows"])]
    # A failed rung's reason may be longer than any name; it is not measured for the width.
    sized = [line for line in lines if any(line[2:])]
    widths = [max(len(line[column]) for line in sized) for column in range(len(HEADINGS))]
    out = [machine_line(ladder)]
    for line in lines:
        aligned = (
            text.ljust(width) if title in LEFT else text.rjust(width)
            for title, text, width in zip(HEADINGS, line, widths, strict=True)
        )
        out.append("  ".join(aligned).rstrip())
    return "\n".join(out) + "\n"


def markdown(ladder: dict[str, Any]) -> str:
    """A page of its own: the summary and how to read it."""
    return "\n".join(["# The ladder", "", summary(ladder), *legend(ladder)]) + "\n"


def summary(ladder: dict[str, Any]) -> str:
    """The command, the machine and the table, as markdown ending in a newline."""
    settings = ladder["settings"]
    lines = [
        f"Made by `{ladder['command']}`" + ("" if ladder["complete"] else ", interrupted") + ".",
        "",
        f"{machine_line(ladder)}. {settings['images']}, {settings['loader']} loader, batch "
        f"{settings['batch']}, preset {settings['preset']}, {settings['precision']}, "
        f"seed {settings['seed']}.",
        "",
        *table(headings(ladder), [cells(row) for row in ladder["rows"]]),
    ]
    return "\n".join(lines) + "\n"


def short_table(ladder: dict[str, Any]) -> str:
    """The columns that tell the story, for a README."""
    columns = [HEADINGS.index(name) for name in SHORT]
    return "\n".join(
        table(
            [headings(ladder)[i] for i in columns],
            [[cells(row)[i] for i in columns] for row in ladder["rows"]],
        )
    )


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a markdown table."""

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    return [line(titles), line(["---"] * len(titles)), *map(line, rows)]


def legend(ladder: dict[str, Any]) -> list[str]:
    """How to read the table, as lines of markdown."""
    settings, machine = ladder["settings"], ladder["machine"]
    out = [
        f"A step holds the loader's wait, the copy, forward, backward, clipping, the optimizer and "
        f"the EMA. Rungs ran interleaved: {settings['rounds']} rounds of {settings['steps']} steps "
        "each, timed by the wall clock with the device drained at both ends. ms a step is the "
        "median of the rounds with its 95 % bootstrap interval; a speedup is the median of each "
        'round\'s ratio, and one whose interval includes 1 is "no measurable gain".',
        "",
        "GPU busy is the GPU's work as recorded by the profiler (union over streams) over the step "
        "time measured without it. Memory is what a step needs at its peak, other rungs aside. "
        "Findings left are what `tracekit diagnose` reports on a recording of the rung.",
    ]
    if machine["peak_tflops"]:
        out += [
            "",
            f"TFLOP/s count convolutions, matrix products and attention, forward and backward, a "
            f"multiply-add as two; MFU is against {machine['peak_tflops']:g} TFLOP/s "
            f"({machine['peak_source']}).",
        ]
    return out


def with_block(page: str, name: str, content: str) -> str | None:
    """The page with what stands between ``<!-- NAME -->`` and ``<!-- end -->`` replaced.

    None where the page has no such place.
    """
    place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, count = place.subn(lambda found: found[1] + content.rstrip("\n") + "\n" + found[2], page)
    return text if count else None


def read_findings_again(ladder: dict[str, Any], traces: Path) -> None:
    """Replace the rows' findings by what tracekit finds today in ``traces/rung_N.json.gz``.

    A rung without a trace there keeps its findings. Savings are corrected to the step time in the
    recording's manifest where it has one, else to the row's.
    """
    import tracekit

    before: list[dict[str, Any]] | None = None
    for row in ladder["rows"]:
        if row["ms"] is None:
            continue
        path = traces / f"rung_{row['rung']}.json.gz"
        if path.exists():
            diagnosis = tracekit.diagnose(path)
            if diagnosis.analysis.unprofiled_ms is None:
                diagnosis = tracekit.diagnose(path, unprofiled_ms=row["ms"])
            row["findings_after"] = [
                {
                    "code": finding.code,
                    "severity": finding.severity,
                    "ms_per_step": finding.saving.ms_per_step,
                    "percent_of_step": finding.saving.percent_of_step,
                }
                for finding in diagnosis.findings
            ]
        row["findings_before"], before = before, row["findings_after"]


def plot(ladder: dict[str, Any], path: Path) -> bool:
    """A bar chart of ms a step with intervals as PNG. False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    timed = [row for row in ladder["rows"] if row["ms"] is not None]
    figure = Figure(figsize=(8, 0.6 + 0.55 * max(1, len(timed))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    places = list(range(len(timed)))
    medians = [row["ms"] for row in timed]
    errors = [
        [row["ms"] - row["low"] for row in timed],
        [row["high"] - row["ms"] for row in timed],
    ]
    axes.barh(places, medians, xerr=errors, color="#4c78a8", ecolor="#222222", capsize=3)
    work = [row["gpu_work_ms"] for row in timed]
    if any(work):
        axes.barh(places, [value or 0 for value in work], color="#f2a54a", height=0.35)
        axes.legend(
            ["step, wall", "of it GPU work"],
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=2,
            frameon=False,
        )
    for place, row in zip(places, timed, strict=True):
        beside = (row["high"], place)  # behind the interval, not across it
        axes.annotate(f"{row['ms']:.2f}", beside, xytext=(8, -3), textcoords="offset points")
    axes.set_yticks(places, [f"{row['rung']}  {row['name']}" for row in timed])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(f"ms a step, batch {ladder['settings']['batch']}")
    axes.set_title(ladder["machine"]["gpu"] or "CPU", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return True
