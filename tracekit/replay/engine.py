"""Run a `StepModel`, as recorded or edited, and read off its step time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracekit.replay import scalar, vector
from tracekit.replay.edits import Edits
from tracekit.replay.model import StepModel
from tracekit.replay.plan import Plan, plan
from tracekit.trace.table import Ints

SETTLED_STEPS = 9
"""steps replayed at least, in whole rounds of the model; the first rounds only fill the pipeline"""
WORK_A_RUN = 12
"""work between two waits or joins, on average, from which numpy is the faster engine"""
TOLERANCE = 0.002
"""of the step time, to which the profiler's overhead is solved for"""


@dataclass(frozen=True)
class Replayed:
    """The outcome of one replay."""

    step_ms: float
    """median period of the settled steps, ms"""
    periods_ns: Ints
    """every replayed period, in order"""
    work_start: Ints
    """start of each piece of work in the last round, ns from the replay's start; -1 if removed"""
    work_end: Ints


def run(
    model: StepModel,
    edits: Edits | None = None,
    *,
    overhead_ns: float = 0.0,
    unprofiled: bool = False,
) -> Replayed:
    """Replay the modelled steps.

    Args:
        edits: changes to make first; none replays the record.
        overhead_ns: the profiler's cost a recorded CPU event, taken off the host time that those
            events cover.
        unprofiled: whether gaps inside graphs are those of a run without the profiler.
    """
    changed = plan(model, edits or Edits(), overhead_ns, unprofiled)
    rounds = max(-(-SETTLED_STEPS // model.steps), 2)
    step_end, start, end = _engine(model, changed)(model, changed, rounds)
    ends = np.maximum.accumulate(np.maximum(step_end, 0))
    periods = np.diff(np.concatenate(([0], ends)))
    settled = periods[max(rounds // 3, 1) * model.steps :]
    return Replayed(
        step_ms=float(np.median(settled)) / 1e6,
        periods_ns=periods,
        work_start=np.where(changed.alive, start, -1),
        work_end=np.where(changed.alive, end, -1),
    )


Engine = Callable[[StepModel, Plan, int], tuple[Ints, Ints, Ints]]


def _engine(model: StepModel, changed: Plan) -> Engine:
    """The faster of the two engines for this model; they agree to the nanosecond."""
    runs = len(vector.first_calls(model, changed))
    many = len(changed.dur) >= WORK_A_RUN * runs
    return vector.play if many and vector.fits(changed) else scalar.play


def solve_overhead(
    model: StepModel, target_ms: float, *, unprofiled: bool = True
) -> tuple[float, float]:
    """The profiler's cost a recorded CPU event, ns, at which the unchanged replay takes
    `target_ms`, and the step time it then takes, ms.

    0 when the replay is not slower than the target; at most 30 us an event, also where even that
    does not reach the target (the GPU is the limit, or the host time has no events in it).
    """

    def step_ms(overhead_ns: float) -> float:
        return run(model, overhead_ns=overhead_ns, unprofiled=unprofiled).step_ms

    low, high = 0.0, 30_000.0
    above = step_ms(low)
    if above <= target_ms:
        return low, above
    below = step_ms(high)
    if below > target_ms:
        # Not to be reached: the least overhead that comes as near.
        target_ms = below * (1 + TOLERANCE)
    middle, found = high, below
    for _ in range(30):
        # The step time falls with the overhead, nearly in proportion until a limit is met:
        # interpolate, but never crawl along one end.
        share = (above - target_ms) / max(above - below, 1e-12)
        middle = low + (high - low) * min(max(share, 0.1), 0.9)
        found = step_ms(middle)
        if abs(found / target_ms - 1) <= TOLERANCE:
            break
        if found > target_ms:
            low, above = middle, found
        else:
            high, below = middle, found
    return middle, found
