"""Two variants of a program timed in turns, so that what drifts hits both alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.pathologies.case import Case
from tracekit.profiler.device import drain
from tracekit.profiler.statistics import Estimate, median_interval

WARM_UP_STEPS = 5
"""Compilation, autotuning and the allocator's first requests belong here."""

SETTLE_STEPS = 2
"""Untimed at the start of a block: the other variant may have emptied caches meanwhile."""

MOST_STEPS = 400


@dataclass(frozen=True)
class Timed:
    """Wall time of a step in each round's block, ms, for both variants."""

    first: list[float]
    second: list[float]

    @property
    def saving(self) -> Estimate:
        """First less second, ms, paired by round."""
        return median_interval([a - b for a, b in zip(self.first, self.second, strict=True)])

    @property
    def saving_percent(self) -> Estimate:
        """The same as a share of the first's step, paired by round."""
        pairs = zip(self.first, self.second, strict=True)
        return median_interval([100 * (a - b) / a for a, b in pairs])


def warm_up(case: Case) -> None:
    """Enough steps that the next one is like all that follow."""
    with case.around():
        for _ in range(WARM_UP_STEPS):
            case.step()
        drain()


def block_ms(case: Case, steps: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """`steps` steps between two drains of the device: ms of wall time a step."""
    with case.around():
        for _ in range(SETTLE_STEPS):
            case.step()
        drain()
        began = clock()
        for _ in range(steps):
            case.step()
        drain()
        return (clock() - began) * 1e3 / steps


def steps_for(ms: float, seconds: float) -> int:
    """How many steps of `ms` fill a block of `seconds`."""
    return min(MOST_STEPS, max(3, math.ceil(seconds * 1e3 / max(ms, 1e-6))))


def interleaved(first: Case, second: Case, *, rounds: int, seconds: float) -> Timed:
    """`rounds` blocks of each, of at least `seconds` (at most `MOST_STEPS` steps), in turns.

    Every other round begins with the second variant. The garbage collector is run before, and
    not during: its pauses would fall on one of the two.
    """
    cases = (first, second)
    steps = [steps_for(block_ms(case, 5), seconds) for case in cases]
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            order: Sequence[int] = (0, 1) if number % 2 == 0 else (1, 0)
            for index in order:
                times[index].append(block_ms(cases[index], steps[index]))
    finally:
        gc.enable()
    return Timed(*times)
