"""Run a `StepModel`, as recorded or edited, and read off its step time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.intervals import covered, union
from tracekit.replay.edits import Edits
from tracekit.replay.model import StepModel
from tracekit.trace.table import Bools, Ints

SETTLED_STEPS = 9
"""steps replayed at least, in whole rounds of the model; the first rounds only fill the pipeline"""
QUEUE_DEPTH = 1_000
"""launches a stream's queue takes before the launching host blocks (CUDA: about 1,024)"""
OVERHEAD_LIMIT = 0.9
"""share of the host time covered by recorded events that the profiler's overhead may take off"""
GRAPH_LAUNCH_NS = 12_000
GRAPH_NODE_NS = 150
"""host time of one graph launch, and per kernel in it (CUDA 12.6 and later: constant part 2.5 us
plus about 1 ns a node on the CPU for straight-line graphs; older drivers near 200 ns a node)"""
GRAPH_GAP_NS = 600
"""between two kernels of a graph as recorded on an H200 (0.25 us without the profiler)"""
GRAPH_GAP_UNPROFILED_NS = 250


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


@dataclass(frozen=True)
class _Plan:
    """The model's arrays after the edits."""

    lead: Ints
    wait_work: Ints
    is_wait: Bools
    wait_tail: Ints
    wait_idle: Ints
    dur: Ints
    alive: Bools
    offset: Ints
    gap: Ints
    call: Ints
    tail_ns: int


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
    plan = _plan(model, edits or Edits(), overhead_ns, unprofiled)
    return _play(model, plan)


def _plan(model: StepModel, edits: Edits, overhead_ns: float, unprofiled: bool) -> _Plan:
    dur, alive = model.work_dur.copy(), np.ones(len(model.work_row), bool)
    position = _positions(model.work_row)
    for row, new in zip(edits.resize_gpu.tolist(), edits.resize_ns.tolist(), strict=True):
        at = position.get(row)
        if at is not None:
            dur[at] = new
    for row in edits.remove_gpu.tolist():
        at = position.get(row)
        if at is not None:
            alive[at] = False

    is_wait, wait_idle = model.is_wait.copy(), model.wait_idle
    wait_work = model.wait_work.copy()
    dropped = np.isin(model.call_row, edits.drop_waits)
    wait_work[dropped] = -1
    wait_idle = np.where(dropped, np.minimum(wait_idle, 5_000), wait_idle)

    # Host time that no longer passes: calls left without work, and what the edits name.
    has_work = np.zeros(len(model.call_row), bool)
    has_work[model.work_call[alive]] = True
    had_work = np.zeros(len(model.call_row), bool)
    had_work[model.work_call] = True
    gone = had_work & ~has_work & ~is_wait
    spans = [
        np.stack([model.call_start[gone], (model.call_start + model.call_dur)[gone]], axis=1),
        edits.remove_host[:, 1:],
    ]
    offset, gap, call = model.work_offset.copy(), model.work_gap.copy(), model.work_call.copy()
    added = np.zeros(len(model.call_row), np.int64)
    between = GRAPH_GAP_UNPROFILED_NS if unprofiled else GRAPH_GAP_NS
    for graph in edits.graphs:
        spans.append(_graph(model, graph.gpu_rows, alive, offset, gap, call, added, between))

    lead = model.call_lead.astype(np.float64)
    if overhead_ns > 0:
        cut = np.minimum(model.host_events * overhead_ns, OVERHEAD_LIMIT * model.host_covered)
        lead = lead - cut
    removed = np.concatenate(spans)
    if len(removed):
        away = union(removed[:, 0], removed[:, 1])
        share = 1.0 - covered(away, model.call_anchor, model.call_start) / np.maximum(
            model.call_lead, 1
        )
        lead = lead * np.clip(share, 0.0, 1.0)
    return _Plan(
        lead=np.rint(lead).astype(np.int64) + added,
        wait_work=wait_work,
        is_wait=is_wait,
        wait_tail=model.wait_tail,
        wait_idle=wait_idle,
        dur=dur,
        alive=alive,
        offset=offset,
        gap=gap,
        call=call,
        tail_ns=model.tail_ns,
    )


def _positions(rows: Ints) -> dict[int, int]:
    return {row: at for at, row in enumerate(rows.tolist())}


def _graph(
    model: StepModel,
    gpu_rows: Ints,
    alive: Bools,
    offset: Ints,
    gap: Ints,
    call: Ints,
    added: Ints,
    between: int,
) -> Ints:
    """Hang the rows of each step on their first call; returns the host spans that go away."""
    chosen = np.isin(model.work_row, gpu_rows) & alive
    spans: list[tuple[int, int]] = []
    for step in np.unique(model.call_step[model.work_call[chosen]]).tolist():
        works = np.flatnonzero(chosen & (model.call_step[model.work_call] == step))
        calls = np.unique(model.work_call[works])
        kept = np.ones(len(model.call_row), bool)
        kept[calls] = False
        first, last = int(calls[0]), int(calls[-1])
        at = int(model.call_start[first])
        for other in np.flatnonzero(kept[first:last]) + first:
            spans.append((at, int(model.call_start[other])))
            at = int(model.call_start[other] + model.call_dur[other])
        spans.append((at, int(model.call_start[last] + model.call_dur[last])))
        call[works] = first
        offset[works] = int(np.median(model.work_offset))
        gap[works] = np.minimum(between, np.maximum(gap[works], between * (gap[works] >= 0)))
        added[first] += GRAPH_LAUNCH_NS + GRAPH_NODE_NS * len(works)
    return np.array(spans, np.int64).reshape(-1, 2)


def _play(model: StepModel, plan: _Plan) -> Replayed:
    """The loop over calls and work. Plain integers and lists: one pass, no objects."""
    order = np.argsort(plan.call, kind="stable")
    order = order[plan.alive[order]]
    bounds = np.searchsorted(plan.call[order], np.arange(len(model.call_row) + 1)).tolist()
    works = order.tolist()
    dur, offset, gap = plan.dur.tolist(), plan.offset.tolist(), plan.gap.tolist()
    stream = model.work_stream.tolist()
    hold = model.work_hold.tolist()
    after, delay = model.work_after.tolist(), model.work_delay.tolist()
    lead, is_wait = plan.lead.tolist(), plan.is_wait.tolist()
    wait_work, wait_tail = plan.wait_work.tolist(), plan.wait_tail.tolist()
    wait_idle, call_step = plan.wait_idle.tolist(), model.call_step.tolist()
    alive = plan.alive.tolist()

    rounds = max(-(-SETTLED_STEPS // model.steps), 2)
    never = -(10**15)
    free = [never] * model.streams
    started: list[list[int]] = [[] for _ in range(model.streams)]
    start_of, end_of = [-1] * len(dur), [never] * len(dur)
    step_end = [0] * (model.steps * rounds)
    pred = model.call_pred.tolist()
    anchor = [0] * len(lead)
    begun = 0
    for turn in range(rounds):
        base = turn * model.steps
        for c in range(len(lead)):
            before = pred[c]
            host = (anchor[before] if before >= 0 else begun) + lead[c]
            step = base + min(max(call_step[c], 0), model.steps - 1)
            for w in works[bounds[c] : bounds[c + 1]]:
                s = stream[w]
                queue = started[s]
                if len(queue) >= QUEUE_DEPTH and queue[-QUEUE_DEPTH] > host:
                    host = queue[-QUEUE_DEPTH]
                begin = host + offset[w]
                behind = free[s] + gap[w]
                if behind > begin:
                    begin = behind
                other = after[w]
                if other >= 0 and alive[other] and end_of[other] + delay[w] > begin:
                    begin = end_of[other] + delay[w]
                begin += hold[w]
                end = begin + dur[w]
                start_of[w], end_of[w] = begin, end
                if end > free[s]:
                    free[s] = end
                queue.append(begin)
                if end > step_end[step]:
                    step_end[step] = end
            if is_wait[c]:
                target = wait_work[c]
                idle = host + wait_idle[c]
                host = idle
                if target >= 0 and end_of[target] + wait_tail[c] > idle:
                    host = end_of[target] + wait_tail[c]
            anchor[c] = host
        begun = max(anchor, default=begun) + plan.tail_ns
        if step_end[base + model.steps - 1] == 0:  # launched nothing: it ends with the host
            step_end[base + model.steps - 1] = begun
    ends = np.array(step_end, np.int64)
    ends = np.maximum.accumulate(ends)
    periods = np.diff(np.concatenate(([0], ends)))
    settled = periods[max(rounds // 3, 1) * model.steps :]
    return Replayed(
        step_ms=float(np.median(settled)) / 1e6,
        periods_ns=periods,
        work_start=np.where(plan.alive, np.array(start_of, np.int64), -1),
        work_end=np.where(plan.alive, np.array(end_of, np.int64), -1),
    )


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
    if (found := step_ms(low)) <= target_ms:
        return low, found
    if (found := step_ms(high)) > target_ms:
        # Not to be reached: the least overhead that comes as near.
        target_ms = found * 1.001
    for _ in range(12):
        middle = (low + high) / 2
        if step_ms(middle) > target_ms:
            low = middle
        else:
            high = middle
    return high, step_ms(high)
