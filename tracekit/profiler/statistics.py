"""Step times to one number and its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A centre with its 95 % interval, in the unit of the samples (here ms a step)."""

    median: float
    low: float
    high: float


def median_interval(samples: Sequence[float]) -> Estimate:
    """Median of the samples and its 95 % percentile-bootstrap interval.

    Draws from a generator of its own (seed 0): the program's random state is not touched.
    Raises ValueError for no samples.
    """
    import numpy as np

    return _bootstrap(samples, lambda a: np.median(a, axis=-1))


def mean_interval(samples: Sequence[float]) -> Estimate:
    """Mean of the samples and its 95 % percentile-bootstrap interval (see `median_interval`)."""
    import numpy as np

    return _bootstrap(samples, lambda a: np.mean(a, axis=-1))


def _bootstrap(samples: Sequence[float], statistic: Callable[..., object]) -> Estimate:
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples")
    centre = float(statistic(values))  # type: ignore[arg-type]
    if values.size < 3:
        return Estimate(centre, float(values.min()), float(values.max()))
    draws = np.random.default_rng(0).integers(0, values.size, size=(RESAMPLES, values.size))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(np.asarray(statistic(values[draws])), [tail, 100 - tail])
    return Estimate(centre, float(low), float(high))
