"""TRC006 profiler-inflates-host-bound: the step waits for the host, and the profiler slowed it.

## What it detects
A step in which the GPU often waits for the host, recorded without a step time measured
without the profiler to compare with.

## Why it matters
The profiler adds 1 to 11 us to every recorded CPU event. Where the host is the bottleneck that
lengthens the step: by 1.2 to 1.9 times on H200 machines. Numbers of the host, and savings of
fixes for it, are then upper bounds. A GPU-bound step is recorded as long as it is.

## How it is measured
The part of the step that the GPU idles for the host (launches, waits, loader, allocator, other host
work), and the CPU events recorded a step. The range for the real step is the recorded one over
1.9 to 1.2, never shorter than what is no such idle, nor by more than 11 us a recorded event.

## Example
    the GPU idles for the host 74 % of 109 ms; without the profiler the step takes 57 to 90 ms

## Fix
Time the steps without the profiler and say so: `tracekit diagnose trace.json --unprofiled-ms MS`.
`tracekit profile` measures both by itself.

## False positives
Steps with few recorded events are not called: the profiler cannot have slowed them. A rank that
waits in a collective for a host-bound rank is lengthened too, and its own trace does not show it.

## References
https://pytorch.org/docs/stable/profiler.html (overhead of record_shapes, with_stack)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.detectors.finding import Detection, Evidence
from tracekit.detectors.health import health_draft, record_again

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "TRC006"
NAME = "profiler-inflates-host-bound"

_HOST_CAUSES = ("host_sync", "launch", "input", "allocator", "other_host")
_RECORDED = ("ops", "launches", "annotations", "python")


@dataclass(frozen=True)
class Config:
    """Thresholds of TRC006."""

    min_host_percent: float = field(
        default=20.0,
        metadata={
            "unit": "% of the step that the GPU idles for the host",
            "source": "one H200: under 5 % recordings were as long as the real step, over 60 % not",
        },
    )
    least_times: float = field(
        default=1.2,
        metadata={
            "unit": "recorded / real step, host-bound",
            "source": "H200, torch 2.11: the least lengthened recording",
        },
    )
    most_times: float = field(
        default=1.9,
        metadata={
            "unit": "recorded / real step, host-bound",
            "source": "H200, torch 2.11: the most lengthened recording",
        },
    )
    event_us: float = field(
        default=11.0,
        metadata={
            "unit": "us a recorded CPU event",
            "source": "most that recording one event was seen to cost, with stacks and shapes",
        },
    )
    min_inflation_percent: float = field(
        default=5.0,
        metadata={
            "unit": "% of the step that recording its events can cost at most",
            "source": "below it the step time is right to the spread from step to step",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    steps = analysis.steps
    wall = int(steps.wall_ns.sum())
    if analysis.device < 0 or analysis.unprofiled_ms is not None or wall <= 0:
        return Detection()
    parts = analysis.accounting.breakdown_ns
    host = sum(int(parts[f"idle_{cause}"].sum()) for cause in _HOST_CAUSES)
    percent = 100 * host / wall
    events = _recorded_events(analysis)
    cost = 100 * events * config.event_us * 1e3 / wall
    if percent < config.min_host_percent or cost < config.min_inflation_percent:
        return Detection()
    step_ms = steps.median_ns / 1e6
    # No shorter than what is no such idle, nor by more than recording the events can cost.
    low = max(step_ms / config.most_times, step_ms * (1 - min(percent, cost) / 100))
    high = step_ms / config.least_times
    if high < low:
        high = step_ms
    each = round(events / len(steps))
    draft = health_draft(
        CODE,
        NAME,
        title="The profiler lengthens this host-bound step",
        insight=(
            f"The GPU waits for the host {percent:.0f} % of the step, and recording {each:,} CPU "
            f"events a step slows the host: without the profiler the step of {step_ms:.1f} ms "
            f"probably takes {_ms(low)} to {_ms(high)} ms. Host-bound numbers are upper bounds."
        ),
        action="Time a few steps without the profiler and give --unprofiled-ms.",
        impact="Savings are then of the real step.",
        where="the whole recording",
        evidence=Evidence(
            counts={
                "% of the step that the GPU idles for the host": round(percent, 1),
                "recorded CPU events a step": each,
                "recorded step, ms": round(step_ms, 3),
            },
        ),
        fix=record_again(
            "measure the step without the profiler",
            (
                "torch.cuda.synchronize(); t = time.perf_counter()\n"
                "for _ in range(20): train_step(batch)\n"
                "torch.cuda.synchronize(); print((time.perf_counter() - t) / 20 * 1e3, 'ms')\n"
                "# tracekit diagnose trace.json.gz --unprofiled-ms MS\n"
                "# or, which measures both: tracekit profile train.py -- --its arguments"
            ),
            "the program can run again",
        ),
    )
    return Detection((draft,))


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _recorded_events(analysis: Analysis) -> int:
    """CPU events recorded inside the steps' marks."""
    steps, count = analysis.steps, 0
    for kind in _RECORDED:
        ts = analysis.trace.table(kind).ts
        at = np.searchsorted(steps.mark_start, ts, "right") - 1
        count += int(((at >= 0) & (ts < steps.mark_end[np.maximum(at, 0)])).sum())
    return count
