"""A `StepModel` with edits applied: the arrays that the engines run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.intervals import Intervals, contains, covered, intersect, union
from tracekit.replay.conditions import LONG_SILENCE_NS, Conditions
from tracekit.replay.edits import Edits, Graphed
from tracekit.replay.model import StepModel
from tracekit.trace.table import Bools, Floats, Ints

QUEUE_DEPTH = 1_000
"""launches a stream's queue takes before the launching host blocks (CUDA: about 1,024)"""
GRAPH_LAUNCH_NS = 12_000
GRAPH_NODE_NS = 150
"""host time of one graph launch, and per kernel in it (CUDA 12.6 and later: constant part 2.5 us
plus about 1 ns a node on the CPU for straight-line graphs; older drivers near 200 ns a node)"""


@dataclass(frozen=True)
class Plan:
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
    after: Ints
    """as the model's, without joins that an edit has turned around"""
    tail_ns: int


def plan(model: StepModel, edits: Edits, conditions: Conditions) -> Plan:
    """Apply the conditions, then the edits."""
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
    inside = dropped & _inside(model.call_start, edits.remove_host)
    wait_idle = np.where(dropped, np.minimum(wait_idle, 5_000), wait_idle)
    wait_idle = np.where(inside, 0, wait_idle)

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
    kept = np.zeros(len(model.call_row), bool)
    for graph in edits.graphs:
        spans.append(
            _graph(model, graph, alive, offset, gap, call, added, kept, conditions.graph_gap_ns)
        )

    removed = np.concatenate(spans)
    events, silence = _host_time(model, conditions, union(removed[:, 0], removed[:, 1]))
    # A graph of the whole step takes the place of what leads up to it, not of a long silence there.
    lead = np.where(kept, silence, events + silence)
    tail = float(model.tail_ns)
    long = tail > LONG_SILENCE_NS
    whole = any(g.whole_step for g in edits.graphs)
    if not conditions.host or (long and not conditions.end_silence) or (whole and not long):
        tail = 0.0
    dur = np.rint(dur * conditions.gpu).astype(np.int64)
    return Plan(
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
        after=_joins(model, call, alive),
        tail_ns=round(tail),
    )


def _positions(rows: Ints) -> dict[int, int]:
    return {row: at for at, row in enumerate(rows.tolist())}


def _inside(at: Ints, spans: Ints) -> Bools:
    return contains(union(spans[:, 1], spans[:, 2]), at)


def _host_time(model: StepModel, conditions: Conditions, away: Intervals) -> tuple[Floats, Floats]:
    """[calls] host time before each call under the conditions and without what is `away`: at and
    between recorded events, and in long silence."""
    none = np.zeros(len(model.call_row))
    if not conditions.host:
        return none, none
    silence = np.maximum(model.call_lead - model.host_covered, 0)
    long = silence > LONG_SILENCE_NS
    silence = np.where(long, silence, 0).astype(np.float64)
    at_events = model.call_lead - silence
    gone = covered(away, model.call_anchor, model.call_start).astype(np.float64)
    busy = covered(intersect(away, model.activity), model.call_anchor, model.call_start)
    gone_silent = np.where(long, gone - busy, 0.0)
    left = 1.0 - (gone - gone_silent) / np.maximum(at_events, 1.0)
    silence = silence - gone_silent
    if not conditions.end_silence:
        silence -= np.where(model.end_silence > LONG_SILENCE_NS, model.end_silence, 0)
    if not conditions.long_silence:
        silence = none
    cost = model.host_events * conditions.event_cost_ns
    at_events = at_events - np.minimum(cost, conditions.covered_limit * at_events)
    return at_events * np.clip(left, 0.0, 1.0), np.maximum(silence, 0.0)


def _graph(
    model: StepModel,
    graph: Graphed,
    alive: Bools,
    offset: Ints,
    gap: Ints,
    call: Ints,
    added: Ints,
    emptied: Bools,
    between: int,
) -> Ints:
    """Hang the rows of each step on their first call; returns the host spans that go away, and
    marks in `emptied` the calls up to its launch, where a graph of the whole step leaves no
    dispatch."""
    # Dispatch of work that another edit removes goes as well: the graph is launched without it.
    chosen = np.isin(model.work_row, graph.gpu_rows)
    spans: list[tuple[int, int]] = []
    for step in np.unique(model.call_step[model.work_call[chosen]]).tolist():
        works = np.flatnonzero(chosen & (model.call_step[model.work_call] == step))
        calls = np.unique(model.work_call[works])
        works = works[alive[works]]
        kept = np.ones(len(model.call_row), bool)
        kept[calls] = False
        first, last = int(calls[0]), int(calls[-1])
        at = int(model.call_start[first])
        for other in np.flatnonzero(kept[first:last]) + first:
            spans.append((at, int(model.call_start[other])))
            at = int(model.call_start[other] + model.call_dur[other])
        spans.append((at, int(model.call_start[last] + model.call_dur[last])))
        if graph.whole_step:
            leading = np.flatnonzero(model.call_step == step)
            emptied[leading[leading <= first]] = True
        call[works] = first
        offset[works] = int(np.median(model.work_offset))
        gap[works] = np.minimum(between, np.maximum(gap[works], between * (gap[works] >= 0)))
        if len(works):
            added[first] += GRAPH_LAUNCH_NS + GRAPH_NODE_NS * len(works)
    return np.array(spans, np.int64).reshape(-1, 2)


def _joins(model: StepModel, call: Ints, alive: Bools) -> Ints:
    """What each work waits for on another stream: not what is gone, nor what is now launched
    after it (it has moved into a graph that is launched earlier)."""
    other = np.maximum(model.work_after, 0)
    keep = (model.work_after >= 0) & alive[other] & (call[other] <= call)
    after: Ints = np.where(keep, model.work_after, -1)
    return after
