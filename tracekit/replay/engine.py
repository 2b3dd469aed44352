"""Run a `StepModel`, as recorded or edited, and read off its step time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracekit.replay import conditions as solver
from tracekit.replay import scalar, vector
from tracekit.replay.conditions import AS_RECORDED, Conditions
from tracekit.replay.edits import Edits
from tracekit.replay.model import StepModel
from tracekit.replay.plan import Plan, plan
from tracekit.trace.table import Ints

SETTLED_STEPS = 9
"""steps replayed at least, in whole rounds of the model; the first rounds only fill the pipeline"""
WORK_A_RUN = 12
"""work between two waits or joins, on average, from which numpy is the faster engine"""
WORK_A_LANE = 6
"""the same for the part of it on one stream"""


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
    conditions: Conditions = AS_RECORDED,
) -> Replayed:
    """Replay the modelled steps.

    Args:
        edits: changes to make first; none replays the record.
        conditions: how the record differs from the step that is asked about.
    """
    changed = plan(model, edits or Edits(), conditions)
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


def error(model: StepModel, replayed: Replayed) -> float:
    """How far an unchanged replay is from the record: the largest relative error of a step, over
    the last round's steps. The step where the ring closes follows another one than it was
    recorded after, so it counts only where it is the only step."""
    last = replayed.periods_ns[-model.steps :]
    wrong = np.abs(last / np.maximum(model.recorded_ns, 1) - 1)
    return float(wrong[1:].max() if model.steps > 1 else wrong[0])


Engine = Callable[[StepModel, Plan, int], tuple[Ints, Ints, Ints]]


def _engine(model: StepModel, changed: Plan) -> Engine:
    """The faster of the two engines for this model; they agree to the nanosecond."""
    runs = len(vector.first_calls(model, changed))
    many = len(changed.dur) >= WORK_A_RUN * runs
    many = many and len(changed.dur) >= WORK_A_LANE * vector.lanes(model, changed)
    return vector.play if many and vector.fits(changed) else scalar.play


def without_profiler(model: StepModel, unprofiled_ms: float) -> tuple[Conditions, float]:
    """As `conditions.without_profiler`, for this engine."""
    return solver.without_profiler(lambda c: run(model, None, c).step_ms, unprofiled_ms)


def lighter(model: StepModel, target_ms: float) -> tuple[Conditions, float]:
    """As `conditions.lighter`, for this engine."""
    return solver.lighter(lambda c: run(model, None, c).step_ms, target_ms)


def host_bound_after_all(
    model: StepModel, found: Conditions, unprofiled_ms: float
) -> Conditions | None:
    """As `conditions.host_bound_after_all`, for this engine."""
    return solver.host_bound_after_all(lambda c: run(model, None, c).step_ms, found, unprofiled_ms)
