"""The replay against step times worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import ADD, TraceBuilder
from tests.replay.programs import KERNELS, model, program
from tracekit.analysis.analysis import Analysis
from tracekit.replay.edits import Edits, Graphed
from tracekit.replay.engine import run, solve_overhead
from tracekit.replay.plan import GRAPH_GAP_NS


def us(step_ms: float) -> float:
    return step_ms * 1e3


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("host", "gpu"), [(40, 10), (10, 40), (20, 20)])
def test_unchanged_it_gives_the_recorded_step(host: float, gpu: float, sync: bool) -> None:
    b = program(host, gpu, sync=sync)
    recorded = Analysis(b.trace()).steps.median_ns / 1e6
    assert run(model(b)).step_ms == pytest.approx(recorded, rel=0.01)


def test_kernels_twice_as_long() -> None:
    """Host-bound: nothing changes. GPU-bound: the step is twice as long."""
    for (host, gpu), expected in {(40.0, 10.0): 25 * 40, (10.0, 40.0): 25 * 80}.items():
        m = model(program(host, gpu))
        longer = Edits(resize_gpu=m.work_row, resize_ns=2 * m.work_dur)
        assert us(run(m, longer).step_ms) == pytest.approx(expected, rel=0.01)


def test_kernels_four_times_as_long_make_a_host_bound_step_gpu_bound() -> None:
    m = model(program(40, 15))
    longer = Edits(resize_gpu=m.work_row, resize_ns=4 * m.work_dur)
    # Never queued in the record, so the usual gap between queued kernels (1 us) is assumed.
    assert us(run(m, longer).step_ms) == pytest.approx(25 * (60 + 1), rel=0.01)


def test_host_half_as_slow() -> None:
    """Half of each op's host time away: 25 ops of 20 us; GPU of 10 us each stays below."""
    m = model(program(40, 10))
    spans = [(100, int(s), int(s) + 20_000) for s in m.call_start + m.call_dur]
    faster = Edits(remove_host=np.array(spans, np.int64))
    assert us(run(m, faster).step_ms) == pytest.approx(25 * (40 - 20), rel=0.08)


def test_one_launch_removed() -> None:
    """A kernel that no longer runs, with its op's host time: one 40th of a host-bound step's 25."""
    b = program(40, 10)
    m = model(b)
    first = [int(m.work_row[np.flatnonzero(m.call_step[m.work_call] == s)[3]]) for s in range(4)]
    ops = Analysis(b.trace())
    rows = ops.links.gpu_op[first]
    table = ops.trace.table("ops")
    host = np.stack([np.full(4, 100), table.ts[rows], table.end[rows]], axis=1)
    gone = Edits(remove_gpu=np.array(first), remove_host=host.astype(np.int64))
    assert us(run(m, gone).step_ms) == pytest.approx(24 * 40, rel=0.01)


def test_a_wait_removed_overlaps_host_and_gpu() -> None:
    """Host 25 x 20 us, GPU 25 x 30 us, a wait at each step's end. As recorded the launch of the
    next step starts only after the wait: 10 + 5 us until its first kernel; without the wait the
    GPU never stops: 750 us."""
    b = program(20, 30, sync=True)
    m = model(b)
    free = Edits(drop_waits=m.call_row[m.is_wait])
    assert us(run(m).step_ms) == pytest.approx(750 + 2 + 1 + 15, rel=0.01)
    assert us(run(m, free).step_ms) == pytest.approx(750, rel=0.01)


def test_removing_one_of_two_waits_moves_the_wait_to_the_other() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(10):
                b.call("aten::add", kernel=ADD, gpu=100, host=10)
            for name in ("aten::item", "aten::item"):
                at = b.clock[100]
                until = max(at + 1, b.free[7] + 2)
                b.op(name, at, until - at + 0.5)
                b.launch(at, until - at, name="cudaStreamSynchronize")
                b.clock[100] = until + 1
    m = model(b)
    waits = m.call_row[m.is_wait]
    before = us(run(m).step_ms)
    assert us(run(m, Edits(drop_waits=waits[::2])).step_ms) == pytest.approx(before, abs=4)
    assert us(run(m, Edits(drop_waits=waits[1::2])).step_ms) == pytest.approx(before, abs=4)
    assert us(run(m, Edits(drop_waits=waits)).step_ms) == pytest.approx(1_000, rel=0.01)


def test_removing_waits_from_a_host_bound_step_saves_nothing() -> None:
    m = model(program(40, 10, sync=True))
    saved = us(run(m).step_ms) - us(run(m, Edits(drop_waits=m.call_row[m.is_wait])).step_ms)
    # The wait's own few microseconds: the last kernel starts 5 us after its launch, runs 10.
    assert 0 <= saved <= 15


def test_one_graph_launch_makes_the_step_its_gpu_work() -> None:
    m = model(program(40, 10))
    graphed = run(m, Edits(graphs=(Graphed(m.work_row),)))
    expected = KERNELS * 10 + (KERNELS - 1) * GRAPH_GAP_NS / 1e3
    # Between two replays: the host's own time is far shorter, so only the queued gap is added.
    assert us(graphed.step_ms) == pytest.approx(expected, abs=2)


def test_a_graph_leaves_the_waits_in_it() -> None:
    m = model(program(40, 10, sync=True))
    graphed = run(m, Edits(graphs=(Graphed(m.work_row),)))
    assert us(graphed.step_ms) > KERNELS * 10 + 10


def test_two_streams_run_side_by_side_and_join() -> None:
    """A on stream 7 (100 us), B on stream 9 (150 us), C on 7 waits for B: A and B overlap."""
    b = TraceBuilder()
    for i in range(4):
        at = 300 * i
        b.annotation(f"ProfilerStep#{i}", at, 300)
        b.kernel("A", at + 15, 100, b.launch(at + 10), stream=7)
        b.kernel("B", at + 25, 150, b.launch(at + 20), stream=9)
        b.launch(at + 30, 1, name="cudaStreamWaitEvent")
        b.kernel("C", at + 177, 50, b.launch(at + 40), stream=7)
    m = model(b)
    assert us(run(m).step_ms) == pytest.approx(300, rel=0.01)
    joined = m.work_row[m.work_after >= 0]
    assert len(joined) == 4
    last = run(m).work_end.reshape(-1, 3)[-1]
    first = run(m).work_start.reshape(-1, 3)[-1]
    assert last[2] - first[0] == 212_000
    # B 100 us shorter: C no longer waits for it but for A on its own stream.
    rows = m.work_row.reshape(-1, 3)[:, 1]
    shorter = run(m, Edits(resize_gpu=rows, resize_ns=np.full(len(rows), 50_000)))
    start, end = shorter.work_start.reshape(-1, 3)[-1], shorter.work_end.reshape(-1, 3)[-1]
    assert end[2] - start[0] == pytest.approx(150_000, abs=3_000)


def test_a_host_far_ahead_is_held_by_the_queue() -> None:
    """3,000 kernels a step, launched in 1 us, running 4 us: the host may lead by 1,000 at most."""
    b = program(1, 4, steps=2, kernels=3_000)
    m = model(b)
    starts = run(m).work_start
    assert us(run(m).step_ms) == pytest.approx(12_000, rel=0.01)
    assert (np.diff(starts) >= 0).all()


def test_overhead_is_found_from_the_unprofiled_step() -> None:
    """An op and a call each, 40 us apart: taking 10 us an event off makes the step half as long."""
    m = model(program(40, 5))
    overhead, reached = solve_overhead(m, 25 * 20 / 1e3)
    assert us(reached) == pytest.approx(25 * 20, rel=0.01)
    assert overhead == pytest.approx(10_000, rel=0.05)


def test_overhead_is_not_taken_off_a_sleep() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(5):
                b.call("aten::add", kernel=ADD, gpu=5, host=10)
            b.clock[100] += 1_000  # nothing recorded
    m = model(b)
    _, reached = solve_overhead(m, 0.3)
    assert us(reached) > 1_000


def test_a_gpu_bound_step_is_not_made_shorter_by_overhead() -> None:
    m = model(program(10, 40))
    overhead, reached = solve_overhead(m, 25 * 40 / 1e3)
    assert us(reached) == pytest.approx(1_000, rel=0.01)
    assert overhead == 0.0
