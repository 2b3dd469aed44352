"""The ladder for people: a table for the terminal, a markdown page, a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["HEADINGS", "cells", "markdown", "plot", "text_table"]

HEADINGS = (
    "rung", "what", "ms a step", "95 % interval", "over {base}", "over the one before",
    "images/s", "TFLOP/s", "MFU", "GPU busy", "memory", "loss", "findings left",
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
        return row[key]["verdict"] if row[key] else ""

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
    """The page ``docs/ladder.md``: the command, the machine, the table, how to read it."""
    settings, machine = ladder["settings"], ladder["machine"]

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    out = [
        "# The ladder",
        "",
        f"Made by `{ladder['command']}`" + ("" if ladder["complete"] else ", interrupted") + ".",
        "",
        f"{machine_line(ladder)}. {settings['images']}, {settings['loader']} loader, batch "
        f"{settings['batch']}, preset {settings['preset']}, {settings['precision']}, "
        f"seed {settings['seed']}.",
        "",
        line(headings(ladder)),
        line(["---"] * len(HEADINGS)),
        *(line(cells(row)) for row in ladder["rows"]),
        "",
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
    return "\n".join(out) + "\n"


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
        axes.legend(["step, wall", "of it GPU work"], loc="lower right", frameon=False)
    for place, value in zip(places, medians, strict=True):
        axes.annotate(f"{value:.2f}", (value, place), xytext=(6, -3), textcoords="offset points")
    axes.set_yticks(places, [f"{row['rung']}  {row['name']}" for row in timed])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(f"ms a step, batch {ladder['settings']['batch']}")
    axes.set_title(ladder["machine"]["gpu"] or "CPU", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    return True
