"""The ladder's statistics: medians and speedups with bootstrap intervals, from block times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "median_interval", "speedup", "union_ns"]

RESAMPLES = 10_000
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % interval, in the unit of the samples."""

    median: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """For a speedup: the factor and its interval, or that nothing was measured."""
        if self.low <= 1.0 <= self.high:
            return "no measurable gain"
        slower = " slower" if self.high < 1.0 else ""
        nearest = min(abs(self.low - 1.0), abs(self.high - 1.0))
        # As many digits as keep an end that is not 1 from being printed as 1.
        digits = next((d for d in (2, 3) if nearest >= 0.5 * 10**-d), 4)
        ends = f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.median:.{digits}f}x {ends}{slower}"


def median_interval(samples: Sequence[float]) -> Interval:
    """Median and its 95 % percentile-bootstrap interval; ``ValueError`` without samples."""
    return bootstrap(np.asarray(samples, dtype=np.float64), median)


def speedup(base: Sequence[float], samples: Sequence[float]) -> Interval:
    """How many times faster ``samples`` are than ``base``, both in time, paired by round.

    The rounds interleave the rungs, so what drifts (clocks, temperature, a busy host) divides out
    of each round's ratio. ``ValueError`` where the lengths differ or nothing was measured.
    """
    before, after = (np.asarray(times, dtype=np.float64) for times in (base, samples))
    if before.shape != after.shape:
        raise ValueError("a speedup needs both rungs in the same rounds")
    return bootstrap(before / after, median)


def median(values: Floats) -> Floats:
    """Median along the last axis."""
    result: Floats = np.asarray(np.median(values, axis=-1), dtype=np.float64)
    return result


def bootstrap(values: Floats, statistic: Callable[[Floats], Floats]) -> Interval:
    """``statistic`` with its 95 % percentile-bootstrap interval, the same at every call (seed 0).

    Under three samples a bootstrap says nothing; the interval is then the range.
    """
    if values.size == 0:
        raise ValueError("no samples")
    centre = float(statistic(values))
    if values.size < 3:
        return Interval(centre, float(values.min()), float(values.max()))
    picks = np.random.default_rng(0).integers(0, values.size, size=(RESAMPLES, values.size))
    low, high = np.percentile(statistic(values[picks]), [2.5, 97.5])
    return Interval(centre, float(low), float(high))


def union_ns(starts: Sequence[int], ends: Sequence[int]) -> int:
    """Time covered by at least one of the intervals, in their unit: overlap counts once."""
    total, reached = 0, None
    for start, end in sorted(zip(starts, ends, strict=True)):
        if reached is None or start > reached:
            total += end - start
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
