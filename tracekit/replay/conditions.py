"""Under which conditions a step is replayed: as recorded, or as it runs without the profiler.

Recording changes a step in three ways, and a step time measured without the profiler tells how
much:

- every recorded CPU event costs the host 1 to 11 us (accounting law 7), some of it before the event
  itself begins, so a host-bound step is recorded too long. The cost comes off the host time at and
  between events, never off a long silence: a sleep stays a sleep;
- unless even that cannot meet the measured step: then what the host did silently for long at the
  very end of a step was not part of the measured steps (the recording loop's own bookkeeping sits
  there), and if that is not enough, no long silence was;
- a GPU that waits for a slowed host runs its kernels at higher clocks than under full load. On
  an H200 graphed steps measured 0 to 12 % longer than the same kernels in a recording.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

GRAPH_GAP_NS = 600
"""between two kernels of a graph as recorded on an H200"""
GRAPH_GAP_UNPROFILED_NS = 250
"""the same without the profiler"""
EVENT_COST_LIMIT_NS = 15_000.0
"""most that one recorded CPU event is taken to cost (1 to 11 us were measured)"""
COVERED_LIMIT = 0.75
"""share of the host time at and between events that recording may have cost, as a rule"""
COVERED_LIMIT_SILENT = 0.9
"""the same where silent time had to go too"""
LONG_SILENCE_NS = 500_000
"""host time without any event that is too long to be Python between two ops"""
SUSTAINED_LOAD = 1.12
"""how much longer a GPU-bound step may take under sustained load than its recorded kernels say"""
TOLERANCE = 0.002
"""of the step time, to which the conditions are solved for"""


@dataclass(frozen=True)
class Conditions:
    """What is changed about the record before any edit. The default changes nothing."""

    event_cost_ns: float = 0.0
    """host time that recording one CPU event cost"""
    covered_limit: float = COVERED_LIMIT
    """share of the events' host time that may come off"""
    end_silence: bool = True
    """whether the host's long silence between a step's last event and its mark's end happened"""
    long_silence: bool = True
    """whether its other long silences happened"""
    host: bool = True
    """False: host time costs nothing, only the device and what waits for it"""
    gpu: float = 1.0
    """factor on the duration of all GPU work"""
    graph_gap_ns: int = GRAPH_GAP_NS
    """gap between two kernels of a graph"""


AS_RECORDED = Conditions()
StepTime = Callable[[Conditions], float]


def without_profiler(step_ms: StepTime, unprofiled_ms: float) -> tuple[Conditions, float]:
    """The conditions under which the unchanged step takes `unprofiled_ms`.

    Args:
        step_ms: replays the unchanged step under given conditions, ms.
        unprofiled_ms: the step time measured without the profiler.

    Returns:
        the conditions, and the step time that they reach (near the measured one unless the record
        cannot be reconciled with it).
    """
    free = Conditions(graph_gap_ns=GRAPH_GAP_UNPROFILED_NS)
    device_ms = step_ms(replace(free, host=False))
    if unprofiled_ms <= SUSTAINED_LOAD * device_ms:
        # The device alone takes about as long: it is the limit, whatever the record says.
        found = replace(_fastest_host(free), gpu=max(unprofiled_ms / max(device_ms, 1e-9), 0.5))
        return found, step_ms(found)
    if step_ms(free) <= unprofiled_ms:
        return free, step_ms(free)
    for limit, end, silence in (
        (COVERED_LIMIT, True, True),
        (COVERED_LIMIT, False, True),
        (COVERED_LIMIT_SILENT, False, False),
    ):
        start = replace(free, covered_limit=limit, end_silence=end, long_silence=silence)
        most = replace(start, event_cost_ns=EVENT_COST_LIMIT_NS)
        if step_ms(most) <= unprofiled_ms:
            return _solve(start, step_ms, unprofiled_ms)
    return most, step_ms(most)


def lighter(step_ms: StepTime, target_ms: float) -> tuple[Conditions, float]:
    """Conditions with as much event cost taken off as brings the unchanged step to `target_ms`, or
    as near as the record allows; for bounds where no unprofiled time is known."""
    most = replace(AS_RECORDED, event_cost_ns=EVENT_COST_LIMIT_NS)
    reached = step_ms(most)
    return _solve(AS_RECORDED, step_ms, max(target_ms, reached * (1 + TOLERANCE)))


def host_bound_after_all(
    step_ms: StepTime, found: Conditions, unprofiled_ms: float
) -> Conditions | None:
    """The other reading of a step that takes little longer than its GPU work: the GPU's kernels
    took as long as recorded, and the host made up the rest. None where the record leaves no
    doubt."""
    if found.gpu <= 1.0 + TOLERANCE:
        return None
    other, reached = _solve(replace(found, gpu=1.0), step_ms, unprofiled_ms)
    return other if abs(reached / unprofiled_ms - 1) <= 2 * TOLERANCE else None


def _fastest_host(free: Conditions) -> Conditions:
    return replace(
        free,
        event_cost_ns=EVENT_COST_LIMIT_NS,
        covered_limit=COVERED_LIMIT_SILENT,
        end_silence=False,
        long_silence=False,
    )


def _solve(start: Conditions, step_ms: StepTime, target_ms: float) -> tuple[Conditions, float]:
    """The event cost between none and the limit at which the step takes `target_ms`."""
    low, high = 0.0, EVENT_COST_LIMIT_NS
    above = step_ms(replace(start, event_cost_ns=low))
    below = step_ms(replace(start, event_cost_ns=high))
    if above <= target_ms:
        return start, above
    found, reached = replace(start, event_cost_ns=high), below
    for _ in range(30):
        # The step time falls with the cost, nearly in proportion until a limit is met:
        # interpolate, but never crawl along one end.
        share = (above - target_ms) / max(above - below, 1e-12)
        middle = low + (high - low) * float(np.clip(share, 0.1, 0.9))
        found = replace(start, event_cost_ns=middle)
        reached = step_ms(found)
        if abs(reached / target_ms - 1) <= TOLERANCE:
            break
        if reached > target_ms:
            low, above = middle, reached
        else:
            high, below = middle, reached
    return found, reached
