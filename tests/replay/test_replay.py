"""The replay against step times worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import ADD, TraceBuilder
from tests.replay.programs import KERNELS, model, program
from tracekit.analysis.analysis import Analysis
from tracekit.replay.conditions import GRAPH_GAP_NS
from tracekit.replay.edits import Edits, Graphed
from tracekit.replay.engine import run, without_profiler


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


def test_the_cost_of_recording_is_found_from_the_unprofiled_step() -> None:
    """An op and a call each 40 us: taking 10 us an event off makes the step half as long."""
    m = model(program(40, 5))
    found, reached = without_profiler(m, 25 * 20 / 1e3)
    assert us(reached) == pytest.approx(25 * 20, rel=0.01)
    assert found.event_cost_ns == pytest.approx(10_000, rel=0.05)
    assert found.gpu == 1.0


def with_sleep(*, at: int = 25) -> TraceBuilder:
    """50 ops of 20 us and, before op `at` (50: at the step's end), 1,000 us without an event."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for k in range(51):
                b.clock[100] = b.clock.get(100, 0) + (1_000 if k == at else 0)
                if k < 50:
                    b.call("aten::add", kernel=ADD, gpu=5, host=20)
    return b


def test_a_sleep_stays_a_sleep() -> None:
    """1,000 us asleep and 1,000 us at events; measured at 1,400: the events lose 600, not the
    sleep."""
    m = model(with_sleep())
    found, reached = without_profiler(m, 1.4)
    assert us(reached) == pytest.approx(1_400, rel=0.01)
    assert found.long_silence
    assert found.event_cost_ns == pytest.approx(600_000 / 100, rel=0.05)


def test_unless_the_measured_steps_cannot_have_slept() -> None:
    """Measured at 600 us: whatever was silent for 1,000 was not part of the measured steps."""
    m = model(with_sleep())
    found, reached = without_profiler(m, 0.6)
    assert us(reached) == pytest.approx(600, rel=0.01)
    assert not found.long_silence


def test_silence_at_a_steps_end_goes_first() -> None:
    """Asleep twice for 1,000 us, mid-step and at the end; measured at 1,500: the recording loop
    slept at the end, the program in the middle, and the events lost 500."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for k in range(50):
                b.clock[100] = b.clock.get(100, 0) + (1_000 if k == 25 else 0)
                b.call("aten::add", kernel=ADD, gpu=5, host=20)
            b.clock[100] += 1_000
    found, reached = without_profiler(model(b), 1.5)
    assert us(reached) == pytest.approx(1_500, rel=0.01)
    assert found.long_silence
    assert not found.end_silence
    assert found.event_cost_ns == pytest.approx(500_000 / 100, rel=0.05)


def test_a_gpu_bound_step_keeps_its_length() -> None:
    m = model(program(10, 40))
    found, reached = without_profiler(m, 25 * 40 / 1e3)
    assert us(reached) == pytest.approx(1_000, rel=0.01)
    assert found.gpu == pytest.approx(1.0, abs=0.03)


def test_a_step_as_long_as_its_gpu_work_under_load_is_gpu_bound() -> None:
    """Recorded host-bound (25 x 44 us over 25 x 40 of GPU work), measured at 1,080 us: the GPU's
    kernels took 8 % longer under load, and a graph would save nothing."""
    m = model(program(44, 40))
    found, reached = without_profiler(m, 1.08)
    assert us(reached) == pytest.approx(1_080, rel=0.01)
    assert found.gpu == pytest.approx(1.08, rel=0.04)
    graphed = run(m, Edits(graphs=(Graphed(m.work_row, whole_step=True),)), found)
    assert us(graphed.step_ms) == pytest.approx(1_080, rel=0.02)


def test_a_graph_of_the_whole_step_replaces_its_code_and_not_what_surrounds_it() -> None:
    """50 ops of 20 us and a sleep of 1,000 us: among the launches it is code that a replay skips;
    before the first or after the last (a loader, a log) it stays."""
    for at, sleeps in ((25, False), (0, True), (50, True)):
        m = model(with_sleep(at=at))
        whole = Edits(graphs=(Graphed(m.work_row, whole_step=True),))
        expected = 50 * 5 + 49 * 0.6
        if sleeps:
            expected = max(expected, 1_000)
        assert us(run(m, whole).step_ms) == pytest.approx(expected, abs=50), at


def test_the_autograd_thread_and_the_main_thread_take_turns() -> None:
    """Forward on the main thread, backward on autograd's, the optimizer on the main thread again:
    one host time line, so that a faster backward makes the step shorter."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(10):
                b.call("aten::linear", kernel=ADD, gpu=5, host=20)
            b.clock[101] = b.clock[100]
            for _k in range(10):
                b.call("autograd::engine: X", kernel=ADD, gpu=5, host=30, tid=101)
            b.clock[100] = b.clock[101]
            for _k in range(10):
                b.call("aten::add_", kernel=ADD, gpu=5, host=20)
            b.clock[101] = b.clock[100]
    m = model(b)
    assert us(run(m).step_ms) == pytest.approx(700, rel=0.01)
    backward = np.flatnonzero(m.call_dur == min(4.0, 30 / 4) * 1e3)
    spans = [(101, int(s) + 4_000, int(s) + 19_000) for s in m.call_start[backward]]
    spans = [s for s, c in zip(spans, backward, strict=True) if 10 <= c % 30 < 20]
    faster = Edits(remove_host=np.array(spans, np.int64))
    assert us(run(m, faster).step_ms) == pytest.approx(700 - 150, rel=0.02)


def test_threads_at_work_at_the_same_time_do_not_wait_for_each_other() -> None:
    """Two threads, each at its own recorded op all along: a wait of one holds up only itself."""
    b = TraceBuilder()
    for i in range(3):
        at = 1_000 * i
        b.annotation(f"ProfilerStep#{i}", at, 1_000)
        b.op("worker", at, 999, tid=101)
        b.op("main", at, 999)
        for k in range(9):
            b.kernel("A", at + 105 + 100 * k, 50, b.launch(at + 100 + 100 * k), stream=7)
            b.kernel("B", at + 115 + 100 * k, 50, b.launch(at + 110 + 100 * k, tid=101), stream=9)
    m = model(b)
    tid = np.tile([100, 101], len(m.call_row) // 2)
    inside = (m.call_pred >= 0) & (np.arange(len(tid)) % 18 > 1)
    assert (tid[m.call_pred[inside]] == tid[inside]).all()


def test_a_graph_whose_work_another_edit_removes_leaves_nothing() -> None:
    """Together they save at least what each saves alone."""
    m = model(program(40, 10))
    graph = Edits(graphs=(Graphed(m.work_row, whole_step=True),))
    alone = run(m, graph).step_ms
    assert run(m, graph | Edits(remove_gpu=m.work_row)).step_ms <= alone
    assert run(m, graph | Edits(remove_gpu=m.work_row[::2])).step_ms <= alone
