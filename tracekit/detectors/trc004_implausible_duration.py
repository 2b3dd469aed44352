"""TRC004 implausible-duration: durations that cannot be true.

## What it detects
GPU events whose duration exceeds all other GPU work of the trace together several times, and
events of any kind that would end before they start.

## Why it matters
One corrupt record of some seconds swamps every sum: the GPU looks busy all the time, the step looks
seconds long, and every share is wrong.

## How it is measured
A duration over 0.5 s is held against the summed duration of all shorter GPU work, not against
the span of the trace, which it would itself inflate. What is called implausible stays in the
tables, and is left out of steps, busy time, breakdown and replay. A negative duration is read as 0
and counted.

## Example
    1 GPU event of 4,611.7 s, 92,000 times all other GPU work

## Fix
Record again; a newer CUPTI, roctracer or torch where it happens again.

## False positives
A kernel that truly runs for seconds in a trace of very little other work.

## References
pytorch/kineto issue 109 and PR 646, AMD-AGI/TraceLens issues 669, 972
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.detectors.finding import Detection, Evidence
from tracekit.detectors.health import health_draft, record_again

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "TRC004"
NAME = "implausible-duration"

NEGATIVE = "negative duration: taken as 0"
"""what the reader calls it, in `ReadHealth.altered`"""


@dataclass(frozen=True)
class Config:
    """Thresholds of TRC004. What is implausible is decided in `tracekit.analysis.sanity`."""

    min_events: int = field(
        default=1,
        metadata={"unit": "GPU events", "source": "one is enough to swamp every sum"},
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    gpu = analysis.trace.table("gpu")
    dur, names = gpu.ints("dur"), gpu.text("name")
    bad = np.flatnonzero(analysis.implausible)
    bad = bad[np.argsort(-dur[bad], kind="stable")]
    negative = analysis.trace.health.altered.get(NEGATIVE, 0)
    if len(bad) + negative < config.min_events:
        return Detection()
    said = []
    if len(bad):
        others = float(dur[~analysis.implausible].sum()) / 1e9
        said.append(
            f"{_events(len(bad), 'GPU event')} left out of every number: the longest would last "
            f"{dur[bad[0]] / 1e9:,.1f} s, all other GPU work together lasts {others:.3g} s"
        )
    if negative:
        said.append(f"{_events(negative, 'event')} with a negative duration, counted as 0")
    draft = health_draft(
        CODE,
        NAME,
        title="Durations that cannot be true",
        insight="; ".join(said) + ".",
        action="Record again, with a newer torch or driver if it happens again.",
        impact="The work behind these records is then counted; now it looks like idle time.",
        where=_events(len(bad) + negative, "event"),
        evidence=Evidence(
            event_ids=tuple(int(i) for i in gpu.ints("id")[bad[:20]]),
            counts={"GPU events left out": len(bad), "negative durations": negative},
            lines=tuple(f"{dur[r] / 1e6:,.3f} ms: {(names[r] or '')[:80]}" for r in bad[:3]),
        ),
        fix=record_again(
            "record again",
            "tracekit profile train.py -- --its arguments    # or torch.profiler, a few steps only",
            "the program can run again",
        ),
    )
    return Detection((draft,))


def _events(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"
