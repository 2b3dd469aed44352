"""The replay one call at a time: the plain statement of what a replay is, and the faster way where
waits and joins leave only a few launches in a row."""

from __future__ import annotations

import numpy as np

from tracekit.replay.model import StepModel
from tracekit.replay.plan import QUEUE_DEPTH, Plan
from tracekit.trace.table import Ints

NEVER = -(10**15)


def play(model: StepModel, plan: Plan, rounds: int) -> tuple[Ints, Ints, Ints]:
    """Run the model `rounds` times over, each round continuing the one before.

    Returns:
        [rounds * steps] end of each step; [work] start and end of each piece of work in the last
        round, ns from the replay's beginning.
    """
    order = np.argsort(plan.call, kind="stable")
    order = order[plan.alive[order]]
    bounds = np.searchsorted(plan.call[order], np.arange(len(model.call_row) + 1)).tolist()
    works = order.tolist()
    dur, offset, gap = plan.dur.tolist(), plan.offset.tolist(), plan.gap.tolist()
    stream, hold = model.work_stream.tolist(), model.work_hold.tolist()
    after, delay = plan.after.tolist(), model.work_delay.tolist()
    lead, pred, is_wait = plan.lead.tolist(), model.call_pred.tolist(), plan.is_wait.tolist()
    wait_work, wait_tail = plan.wait_work.tolist(), plan.wait_tail.tolist()
    wait_idle, step_of = plan.wait_idle.tolist(), model.call_step.tolist()

    free = [NEVER] * model.streams
    queues: list[list[int]] = [[] for _ in range(model.streams)]
    start_of, end_of = [NEVER] * len(dur), [NEVER] * len(dur)
    step_end = [NEVER] * (model.steps * rounds)
    anchor = [0] * len(lead)
    begun = 0
    for turn in range(rounds):
        base = turn * model.steps
        for c in range(len(lead)):
            before = pred[c]
            host = (anchor[before] if before >= 0 else begun) + lead[c]
            step = base + step_of[c]
            mine = works[bounds[c] : bounds[c + 1]]
            if mine:
                queue = queues[stream[mine[0]]]
                if len(queue) >= QUEUE_DEPTH and queue[-QUEUE_DEPTH] > host:
                    host = queue[-QUEUE_DEPTH]
            for w in mine:
                s = stream[w]
                begin = host + offset[w]
                behind = free[s] + gap[w]
                if behind > begin:
                    begin = behind
                other = after[w]
                if other >= 0 and end_of[other] + delay[w] > begin:
                    begin = end_of[other] + delay[w]
                begin += hold[w]
                end = begin + dur[w]
                start_of[w], end_of[w] = begin, end
                if end > free[s]:
                    free[s] = end
                if end > step_end[step]:
                    step_end[step] = end
            if mine:
                queues[stream[mine[0]]].append(start_of[mine[0]])
            if is_wait[c]:
                target = wait_work[c]
                host += wait_idle[c]
                if target >= 0 and end_of[target] + wait_tail[c] > host:
                    host = end_of[target] + wait_tail[c]
            anchor[c] = host
        begun = max(anchor, default=begun) + plan.tail_ns
        if step_end[base + model.steps - 1] == NEVER:  # launched nothing: it ends with the host
            step_end[base + model.steps - 1] = begun
    return np.array(step_end), np.array(start_of), np.array(end_of)
