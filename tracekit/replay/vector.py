"""The replay a run of launches at a time, with numpy: the same results as `tracekit.replay.scalar`.

Between two calls that have to look at the device (waits, joins of streams) the host's times are a
running sum, and a stream's are `end = max(ready + dur, end of the one before + gap + dur)`, which
is a running maximum once the running sum of gap + dur is taken off both sides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.replay.model import StepModel
from tracekit.replay.plan import QUEUE_DEPTH, Plan
from tracekit.replay.scalar import NEVER
from tracekit.trace.table import Ints


@dataclass(frozen=True)
class _Lane:
    """The work of one run of calls on one stream, in order."""

    stream: int
    work: Ints
    call: Ints
    """[work] its call, counted from the run's first"""
    offset: Ints
    gap: Ints
    hold: Ints
    body: Ints
    """[work] hold + dur: from when it could start to its end"""
    reach: Ints
    """[work] running sum of what each adds to the end of the one before"""
    joins: Ints
    """positions in the lane that wait for work of another stream"""


@dataclass(frozen=True)
class _Run:
    """Calls first..last-1, each following the one before; only the last may wait."""

    first: int
    last: int
    reach: Ints
    """[calls] running sum of the host time before each"""
    lanes: tuple[_Lane, ...]
    queues: tuple[tuple[int, Ints, Ints, Ints], ...]
    """per stream: its number; the run's calls that launch onto it first (from the run's first);
    their numbers in its queue within a round; their first work"""


def first_calls(model: StepModel, plan: Plan) -> Ints:
    """Index of the first call of every run."""
    n = len(model.call_row)
    first = np.zeros(n, bool)
    first[:1] = True
    first[1:] |= model.call_pred[1:] != np.arange(n - 1)
    first[1:] |= plan.is_wait[:-1]
    first[plan.call[plan.alive & (plan.after >= 0)]] = True
    starts = np.flatnonzero(first)
    # No run is longer than a queue is deep, so that what bounds it has always been replayed.
    ends = np.append(starts[1:], n)
    return np.concatenate(
        [np.arange(a, b, QUEUE_DEPTH) for a, b in zip(starts, ends, strict=True)] or [starts]
    )


def lanes(model: StepModel, plan: Plan) -> int:
    """How many lanes all runs have together."""
    run = np.searchsorted(first_calls(model, plan), plan.call[plan.alive], "right")
    return len(np.unique(run * model.streams + model.work_stream[plan.alive]))


def fits(plan: Plan) -> bool:
    """Whether no work waits for work of the same launch on another stream: such a graph's streams
    cannot be replayed one after the other."""
    joins = np.flatnonzero(plan.alive & (plan.after >= 0))
    return not (plan.call[joins] == plan.call[plan.after[joins]]).any()


def play(model: StepModel, plan: Plan, rounds: int) -> tuple[Ints, Ints, Ints]:
    """As `tracekit.replay.scalar.play`."""
    runs, depth = _compile(model, plan)
    free = [NEVER] * model.streams
    queued = [np.full(rounds * d, NEVER) for d in depth]
    start_of, end_of = np.full(len(plan.dur), NEVER), np.full(len(plan.dur), NEVER)
    anchor = np.zeros(len(model.call_row), np.int64)
    step_end = np.full(model.steps * rounds, NEVER)
    of_step = model.call_step[plan.call[plan.alive]]
    begun = 0
    for turn in range(rounds):
        for run in runs:
            before = int(model.call_pred[run.first])
            host = (int(anchor[before]) if before >= 0 else begun) + run.reach
            for s, calls, number, _ in run.queues:
                blocker = number + turn * depth[s] - QUEUE_DEPTH
                if blocker[-1] >= 0:
                    bound = np.full(len(host), NEVER)
                    full = blocker >= 0
                    bound[calls[full]] = queued[s][blocker[full]]
                    host = np.maximum.accumulate(np.maximum(host, bound) - run.reach) + run.reach
            for lane in run.lanes:
                free[lane.stream] = _lane(model, plan, lane, host, free, start_of, end_of)
            for s, _, number, work in run.queues:
                queued[s][number + turn * depth[s]] = start_of[work]
            last = run.last - 1
            anchor[run.first : run.last] = host
            if plan.is_wait[last]:
                now = int(host[-1]) + int(plan.wait_idle[last])
                target = int(plan.wait_work[last])
                if target >= 0:
                    now = max(now, int(end_of[target]) + int(plan.wait_tail[last]))
                anchor[last] = now
        base = turn * model.steps
        np.maximum.at(step_end, base + of_step, end_of[plan.alive])
        begun = (int(anchor.max()) if len(anchor) else begun) + plan.tail_ns
        if step_end[base + model.steps - 1] == NEVER:  # launched nothing: it ends with the host
            step_end[base + model.steps - 1] = begun
    return step_end, start_of, end_of


def _lane(
    model: StepModel,
    plan: Plan,
    lane: _Lane,
    host: Ints,
    free: list[int],
    start_of: Ints,
    end_of: Ints,
) -> int:
    """Times of one lane's work; returns when its stream is done."""
    ready = host[lane.call] + lane.offset
    for at in lane.joins.tolist():
        work = int(lane.work[at])
        ended = int(end_of[plan.after[work]])
        ready[at] = max(int(ready[at]), ended + int(model.work_delay[work]))
    reached = np.maximum.accumulate(np.maximum(ready + lane.body - lane.reach, free[lane.stream]))
    done = reached + lane.reach
    before = np.concatenate(([free[lane.stream]], done[:-1]))
    start = np.maximum(ready, before + lane.gap) + lane.hold
    start_of[lane.work] = start
    end_of[lane.work] = start + plan.dur[lane.work]
    return int(done[-1])


def _compile(model: StepModel, plan: Plan) -> tuple[list[_Run], list[int]]:
    """The runs with their arrays, and how many calls a round each stream's queue takes."""
    order = np.argsort(plan.call, kind="stable")
    order = order[plan.alive[order]]
    call = plan.call[order]
    bounds = np.searchsorted(call, np.arange(len(model.call_row) + 1))
    launching = np.flatnonzero(np.diff(bounds))
    head = order[bounds[launching]]
    stream = model.work_stream[head]
    number = np.zeros(len(launching), np.int64)
    depth = []
    for s in range(model.streams):
        mine = np.flatnonzero(stream == s)
        number[mine] = np.arange(len(mine))
        depth.append(len(mine))
    starts = first_calls(model, plan)
    runs = []
    for first, last in zip(
        starts.tolist(), np.append(starts[1:], len(model.call_row)).tolist(), strict=True
    ):
        works = order[bounds[first] : bounds[last]]
        lo, hi = np.searchsorted(launching, (first, last))
        queues = []
        for s in np.unique(stream[lo:hi]).tolist():
            mine = np.flatnonzero(stream[lo:hi] == s) + lo
            queues.append((s, launching[mine] - first, number[mine], head[mine]))
        runs.append(
            _Run(
                first,
                last,
                np.cumsum(plan.lead[first:last]),
                _lanes(model, plan, works, first),
                tuple(queues),
            )
        )
    return runs, depth


def _lanes(model: StepModel, plan: Plan, works: Ints, first: int) -> tuple[_Lane, ...]:
    lanes = []
    for s in np.unique(model.work_stream[works]).tolist():
        work = works[model.work_stream[works] == s]
        gap, hold = plan.gap[work], model.work_hold[work]
        body = hold + plan.dur[work]
        lanes.append(
            _Lane(
                stream=s,
                work=work,
                call=plan.call[work] - first,
                offset=plan.offset[work],
                gap=gap,
                hold=hold,
                body=body,
                # Work that overlaps its predecessor never frees the stream earlier.
                reach=np.cumsum(np.maximum(gap + body, 0)),
                joins=np.flatnonzero(plan.after[work] >= 0),
            )
        )
    return tuple(lanes)
