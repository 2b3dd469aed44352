"""TRC005 compilation-in-window: something was compiled, tuned or loaded during the steps.

## What it detects
torch.compile at work, autotuning with its benchmark kernels, and loading of GPU code, inside the
recorded steps.

## Why it matters
That work belongs to warm-up. Steps recorded with it are longer than all later ones, and their
kernels include trial runs that training never repeats.

## How it is measured
By the names that torch, Triton and the driver give to these activities (not by the look-ups and
calls that compiled code makes at every step): the part of the steps' CPU marks that they cover,
and the GPU work launched inside autotuning on the same thread.

## Example
    compile 1,840 ms in 1 of 3 steps, 46 benchmark kernels

## Fix
Leave more warm-up out of the recording; where it happens in every step, find what changes between
steps (a shape, a Python number, a scheduler's learning rate).

## False positives
None known. A step that always loads a module (a fresh process per step) is one.

## References
https://pytorch.org/docs/stable/profiler.html#torch.profiler.schedule
https://pytorch.org/docs/stable/torch.compiler_troubleshooting.html (recompilation)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.compilation import KINDS, CompileEvents, compile_events
from tracekit.analysis.intervals import covered, union
from tracekit.detectors.finding import Detection, Evidence
from tracekit.detectors.health import health_draft, record_again
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "TRC005"
NAME = "compilation-in-window"


@dataclass(frozen=True)
class Config:
    """Thresholds of TRC005."""

    min_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the recorded steps",
            "source": "the share from which a finding of this report is more than a note",
        },
    )
    min_benchmarks: int = field(
        default=1,
        metadata={"unit": "benchmark kernels", "source": "training never runs one"},
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    steps, events = analysis.steps, compile_events(analysis.trace)
    if not len(events):
        return Detection()
    everything = union(events.start, events.end)
    spent = covered(everything, steps.mark_start, steps.mark_end)
    whole = max(int((steps.mark_end - steps.mark_start).sum()), 1)
    trials = _benchmarks(analysis, events)
    percent = 100 * int(spent.sum()) / whole
    if percent < config.min_percent and len(trials) < config.min_benchmarks:
        return Detection()
    of_kind = {kind: _spent(analysis, events, code) / 1e6 for code, kind in enumerate(KINDS)}
    parts = [f"{kind} {ms:,.1f} ms" for kind, ms in of_kind.items() if ms > 0]
    if len(trials):
        parts.append(f"{len(trials):,} benchmark kernel{'s' if len(trials) != 1 else ''}")
    hit = int((spent > 0).sum())
    every = hit == len(steps) and hit > 1
    draft = health_draft(
        CODE,
        NAME,
        title="Compilation, tuning or loading inside the recorded steps",
        insight=(
            f"{', '.join(parts)} in {hit} of {len(steps)} recorded steps "
            f"({percent:.2g} % of their time on the CPU): these steps are no steady state."
        ),
        action=(
            "Find what changes from step to step (TORCH_LOGS=recompiles), then record again."
            if every
            else "Record later, or look only at the steps after it (--steps)."
        ),
        impact="The step times and kernels become those of training.",
        where=f"{hit} of {len(steps)} steps",
        evidence=Evidence(
            event_ids=_longest(analysis, events),
            counts={
                **{f"{kind}, ms": round(ms, 3) for kind, ms in of_kind.items() if ms > 0},
                "benchmark kernels": len(trials),
                "steps with it": hit,
            },
            lines=_names(analysis, events),
        ),
        fix=record_again(
            "leave warm-up out of the recording",
            (
                "schedule = torch.profiler.schedule(wait=10, warmup=3, active=3)   # steps\n"
                "with profile(activities=activities, schedule=schedule) as prof:\n"
                "    for batch in loader: train_step(batch); prof.step()"
            ),
            "it happens only in the first steps",
        ),
    )
    return Detection((draft,))


def _in_steps(analysis: Analysis, events: CompileEvents) -> Ints:
    """Positions of the events that overlap a step's CPU mark, the longest first."""
    steps = analysis.steps
    at = np.searchsorted(steps.mark_start, events.end, "left") - 1
    inside = (at >= 0) & (events.start < steps.mark_end[np.maximum(at, 0)])
    rows = np.flatnonzero(inside)
    return rows[np.argsort(-(events.end - events.start)[rows], kind="stable")]


def _spent(analysis: Analysis, events: CompileEvents, kind: int) -> int:
    mine = events.kind == kind
    when = union(events.start[mine], events.end[mine])
    return int(covered(when, analysis.steps.mark_start, analysis.steps.mark_end).sum())


def _benchmarks(analysis: Analysis, events: CompileEvents) -> Ints:
    """`gpu` rows of the steps that were launched inside autotuning, on its own thread."""
    launches = analysis.trace.table("launches")
    rows = np.flatnonzero(analysis.steps.gpu_step >= 0)
    launch = analysis.links.gpu_launch[rows]
    rows, launch = rows[launch >= 0], launch[launch >= 0]
    hit = np.zeros(len(rows), bool)
    tuning = events.kind == KINDS.index("autotune")
    threads = np.unique(np.stack([events.pid[tuning], events.tid[tuning]]), axis=1).T
    for pid, tid in threads.tolist():
        mine = tuning & (events.pid == pid) & (events.tid == tid)
        start, end = union(events.start[mine], events.end[mine])
        at = np.searchsorted(start, launches.ts[launch], "right") - 1
        inside = (at >= 0) & (launches.ts[launch] < end[np.maximum(at, 0)])
        hit |= (
            inside & (launches.ints("pid")[launch] == pid) & (launches.ints("tid")[launch] == tid)
        )
    return rows[hit]


def _longest(analysis: Analysis, events: CompileEvents) -> tuple[int, ...]:
    return tuple(int(i) for i in events.id[_in_steps(analysis, events)[:20]])


def _names(analysis: Analysis, events: CompileEvents) -> tuple[str, ...]:
    """The longest activities by name: 'NAME, 1,840.0 ms'."""
    longest: dict[str, int] = {}
    for row in _in_steps(analysis, events).tolist():
        longest.setdefault(events.name[row], int(events.end[row] - events.start[row]))
    return tuple(f"{name[:70]}, {ns / 1e6:,.1f} ms" for name, ns in list(longest.items())[:3])
