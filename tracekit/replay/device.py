"""What the record says of the device's own times: latency of launches, gaps between queued work,
delays that nothing explains, and work that waited for another stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.trace.table import Bools, Ints

LATENCY_NS = 6_000
"""from the start of a launch call to the start of its work on an idle stream, where the trace shows
no example (H200 and MI300 recordings: 4 to 9 us)"""
GAP_NS = 1_000
"""between two queued kernels of a stream, where the trace shows no example"""
LATE_NS = 40_000
"""work on an idle stream starting later than this after its launch waited for something else"""
JOIN_NS = 20_000
"""work that starts within this of the end of work on another stream waited for it"""


@dataclass(frozen=True)
class DeviceTimes:
    """One entry a piece of work, ns; meanings as the fields of `StepModel`."""

    offset: Ints
    gap: Ints
    hold: Ints
    after: Ints
    delay: Ints


def device_times(
    start: Ints,
    end: Ints,
    stream: Ints,
    carried: Ints,
    call: Ints,
    call_start: Ints,
    call_dur: Ints,
) -> DeviceTimes:
    """As recorded: offsets from launches, gaps and holds on a stream, waits on other streams.

    Args:
        start, end, stream: [work] times, ns, and dense stream numbers.
        carried: [streams] end of the work that was on the stream before the first of these.
        call: [work] index of the launching call.
        call_start, call_dur: [calls] ns.
    """
    launched, returned = call_start[call], call_start[call] + call_dur[call]
    n = len(start)
    by_stream = np.lexsort((start, stream))
    previous = np.full(n, -1, np.int64)
    same = stream[by_stream][1:] == stream[by_stream][:-1]
    previous[by_stream[1:][same]] = by_stream[:-1][same]
    has = previous >= 0
    free = np.where(has, end[np.maximum(previous, 0)], carried[stream])
    idle = free <= launched
    latency = start - launched
    prompt = idle & (latency >= 0) & (latency <= LATE_NS)
    usual = int(np.median(latency[prompt])) if prompt.any() else LATENCY_NS
    queued = has & (returned + usual < free) & (start - free < LATE_NS)
    usual_gap = int(np.median((start - free)[queued])) if queued.any() else GAP_NS
    gap = np.where(queued, start - free, usual_gap)
    # The record shows a smaller gap, or none: a programmatic launch starts before the end.
    gap = np.where(has, np.minimum(gap, start - free), gap)
    offset = np.where(prompt, latency, np.clip(latency, 0, usual))
    after, delay = _joins(start, end, stream, np.maximum(launched + usual, free), start > launched)
    expected = np.maximum(launched + offset, free + gap)
    hold = np.where((after < 0) & (start > expected + LATE_NS), start - expected, 0)
    return DeviceTimes(offset, gap, hold, after, delay)


def _joins(
    start: Ints, end: Ints, stream: Ints, could: Ints, launched_before: Bools
) -> tuple[Ints, Ints]:
    """Work that started later than it could have, just after work of another stream ended."""
    after = np.full(len(start), -1, np.int64)
    delay = np.zeros(len(start), np.int64)
    if len(np.unique(stream)) < 2:
        return after, delay
    late = np.flatnonzero(launched_before & (start - could > JOIN_NS))
    by_end = np.argsort(end, kind="stable")
    ends = end[by_end]
    hi = np.searchsorted(ends, start[late], "right")
    for work, last in zip(late.tolist(), hi.tolist(), strict=True):
        for other in by_end[max(last - 8, 0) : last][::-1].tolist():
            if start[work] - end[other] > JOIN_NS:
                break
            if stream[other] != stream[work] and other < work:
                after[work] = other
                delay[work] = start[work] - end[other]
                break
    return after, delay
