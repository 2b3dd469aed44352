"""TRC001 damaged-trace: the text of the file is broken.

## What it detects
A trace whose text is broken: cut off in the middle, a gzip stream that ends early, raw quotes or
control bytes in names, events without a time.

## Why it matters
What could not be read is in no number of the report. A lost kernel looks like idle time; a lost
launch makes its kernel an orphan.

## How it is measured
The reader first reads strictly and only where that fails recovers every event it can. It counts
each event lost and notes the place and the cause of each fault. One lost event is enough.

## Example
    1 event lost: byte 1,042,113, the file ends in the middle of an event

## Fix
Record again and let the export finish: the process must not be killed while it writes.

## False positives
None: the file is as it is. One event lost of a million changes no conclusion, and a name that
was only mended changes nothing; see the counts.

## References
pytorch/pytorch issues 33961, 98432, 113001, 130622 (how exports come to be broken)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.detectors.finding import Detection, Evidence
from tracekit.detectors.health import health_draft, record_again

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "TRC001"
NAME = "damaged-trace"


@dataclass(frozen=True)
class Config:
    """Thresholds of TRC001."""

    min_lost: int = field(
        default=1,
        metadata={
            "unit": "events lost or damaged places",
            "source": "accounting law 8: what was not read is counted",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding: how much was lost, and where."""
    health = analysis.trace.health
    lost, places = health.events_skipped, len(health.damage)
    if max(lost, places) < config.min_lost:
        return Detection()
    share = 100 * lost / max(health.events + lost, 1)
    events = "1 event" if lost == 1 else f"{lost:,} events"
    at = f" at {places:,} damaged place{'s' if places != 1 else ''}" if places else ""
    if lost:
        insight = (
            f"{events} could not be read ({share:.2g} %){at}; {health.events:,} were. "
            "What is lost counts in no number here, and lost GPU work looks like idle time."
        )
    else:
        insight = (
            f"The text is broken{at}, but as far as can be seen no event was lost: all "
            f"{health.events:,} that are in the file were read."
        )
    causes = sorted(health.skipped_by_cause.items(), key=lambda item: (-item[1], item[0]))
    draft = health_draft(
        CODE,
        NAME,
        title="The trace is damaged",
        insight=insight,
        action="Record again, and let the export finish before the process ends.",
        impact="The numbers then rest on the whole recording.",
        where=f"the file{at}",
        evidence=Evidence(
            counts={"events lost": lost, "damaged places": places, "events read": health.events},
            lines=(
                *(f"byte {d.offset:,}: {d.cause}" for d in health.damage[:3]),
                *(f"{count:,} x {cause}" for cause, count in causes[:3]),
            ),
        ),
        fix=record_again(
            "let the export finish",
            (
                "with torch.profiler.profile(activities=activities, schedule=schedule) as prof:\n"
                "    train()\n"
                'prof.export_chrome_trace("trace.json.gz")   # only then exit or kill the job'
            ),
            "the program can run again",
        ),
    )
    return Detection((draft,))
