"""Steps and their windows (law 3), by hand. Times in the builder are us, in Steps ns."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.analysis import Analysis, AnalysisOptions


def us(values) -> list[float]:  # type: ignore[no-untyped-def]
    return [v / 1e3 for v in values.tolist()]


def test_a_step_is_a_period_of_ends_not_its_mark() -> None:
    """The host runs ahead: marks of 10 us, GPU work of 100 us each."""
    b = TraceBuilder()
    for i in range(3):
        b.annotation(f"ProfilerStep#{i}", 10 * i, 10)
        b.kernel("k", 20 + 100 * i, 100, b.launch(10 * i + 1))
    steps = Analysis(b.trace()).steps
    assert steps.source == "ProfilerStep#"
    assert us(steps.end) == [120, 220, 320]
    assert us(steps.start) == [0, 120, 220]
    assert steps.median_ns == 100_000
    assert steps.gpu_step.tolist() == [0, 1, 2]


def test_carry_in_belongs_to_no_step_and_delays_the_first() -> None:
    b = TraceBuilder()
    b.kernel("orphan of the warm-up", 0, 60, 999)
    b.kernel("launched before the mark", 60, 20, b.launch(5))
    for i in range(2):
        b.annotation(f"ProfilerStep#{i}", 10 + 10 * i, 10)
        b.kernel("k", 80 + 50 * i, 50, b.launch(12 + 10 * i))
    steps = Analysis(b.trace()).steps
    assert steps.gpu_step.tolist() == [-1, -1, 0, 1]
    assert us(steps.start) == [80, 130]
    assert us(steps.end) == [130, 180]
    assert (steps.carry_in, steps.orphans) == (2, 1)


def test_gpu_user_annotation_does_not_make_the_steps_again() -> None:
    b = TraceBuilder()
    for i in range(2):
        b.annotation(f"ProfilerStep#{i}", 100 * i, 100)
        b.annotation(f"ProfilerStep#{i}", 100 * i + 5, 90, gpu=True)
        b.kernel("k", 100 * i + 10, 80, b.launch(100 * i + 1))
    assert len(Analysis(b.trace()).steps) == 2


def test_a_single_step_lasts_from_its_mark_to_the_later_end() -> None:
    b = TraceBuilder()
    b.annotation("ProfilerStep#7", 10, 50)
    b.kernel("k", 20, 100, b.launch(15))
    steps = Analysis(b.trace()).steps
    assert (us(steps.start), us(steps.end)) == ([0], [110])  # from the first event


def test_without_a_gpu_the_marks_are_the_steps() -> None:
    b = TraceBuilder(device=None)
    for i in range(3):
        b.annotation(f"ProfilerStep#{i}", 100 * i, 90)
        b.op("aten::mul", 100 * i + 1, 50)
    steps = Analysis(b.trace()).steps
    assert us(steps.wall_ns) == [90, 90, 90]


def test_a_step_without_gpu_work_ends_with_its_mark_and_is_noted() -> None:
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, 100)
    b.kernel("k", 10, 50, b.launch(5))
    b.annotation("ProfilerStep#1", 100, 100)
    steps = Analysis(b.trace()).steps
    assert us(steps.end) == [60, 200]
    assert any("launched no GPU work" in n for n in steps.notes)


def test_work_queued_behind_unrecorded_work_starts_the_step_where_it_begins() -> None:
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, 100)
    b.kernel("k", 5_000, 50, b.launch(5))
    steps = Analysis(b.trace()).steps
    assert (us(steps.start), us(steps.end)) == ([5_000], [5_050])
    assert any("not in the file" in n for n in steps.notes)


def test_other_marks_in_order_of_trust() -> None:
    def program(**which: bool) -> Analysis:
        b = TraceBuilder()
        for i in range(4):
            at = 1_000 * i
            if which.get("annotation"):
                b.annotation(f"train step {i}", at, 1_000)
            if which.get("optimizer"):
                b.annotation("Optimizer.step#AdamW.step", at + 900, 90)
            for k in range(8):
                b.kernel(
                    f"kernel {'abcdefgh'[k]}", at + 20 + 100 * k, 50, b.launch(at + 10 + 100 * k)
                )
        return Analysis(b.trace())

    assert program(annotation=True, optimizer=True).steps.source == "annotation train step #"
    by_optimizer = program(optimizer=True).steps
    assert by_optimizer.source == "optimizer steps"
    by_repetition = program().steps
    assert by_repetition.source == "repetition"
    assert len(by_repetition) == 4
    assert by_repetition.median_ns == 1_000_000


def test_equal_graph_launches_are_steps_and_piecewise_graphs_are_not() -> None:
    whole, pieces = TraceBuilder(), TraceBuilder()
    for i in range(3):
        c = whole.launch(1_000 * i, name="cudaGraphLaunch")
        for k in range(20):
            whole.kernel(f"k{k % 3}", 1_000 * i + 10 + 40 * k, 39, c)
        for size in (2, 1, 9):
            c = pieces.launch(1_000 * i + 100 * size, name="cudaGraphLaunch")
            for k in range(size):
                pieces.kernel("k", 1_000 * i + 100 * size + 10 + 5 * k, 4, c)
    steps = Analysis(whole.trace()).steps
    assert (steps.source, len(steps)) == ("graph launches", 3)
    assert Analysis(pieces.trace()).steps.source != "graph launches"


def test_nothing_to_go_by_is_one_step() -> None:
    b = TraceBuilder()
    b.op("aten::mul", 5, 10)
    b.kernel("k", 20, 30, b.launch(7))
    steps = Analysis(b.trace()).steps
    assert (steps.source, us(steps.start), us(steps.end)) == ("whole trace", [0], [45])


def test_steps_option_keeps_the_numbers_and_refuses_an_empty_range() -> None:
    b = TraceBuilder()
    for i in range(4):
        b.annotation(f"ProfilerStep#{i}", 100 * i, 100)
        b.kernel("k", 100 * i + 10, 50 + i, b.launch(100 * i + 1))
    some = Analysis(b.trace(), AnalysisOptions(steps=(1, 3))).steps
    assert some.index.tolist() == [1, 2]
    assert some.gpu_step.tolist() == [-1, 0, 1, -1]
    assert us(some.start) == [60, 161]
    with pytest.raises(ValueError, match="none of the trace's 4 steps"):
        _ = Analysis(b.trace(), AnalysisOptions(steps=(7, 9))).steps


def test_an_implausible_duration_swamps_nothing() -> None:
    b = TraceBuilder()
    for i in range(3):
        b.annotation(f"ProfilerStep#{i}", 1_000 * i, 1_000)
        for k in range(10):
            b.kernel("k", 1_000 * i + 10 + 90 * k, 80, b.launch(1_000 * i + 1 + 90 * k))
    clean = Analysis(b.trace()).steps
    b.kernel("corrupt", 1_500, 9_000_000, b.launch(1_499))
    steps = Analysis(b.trace()).steps
    assert steps.wall_ns.tolist() == clean.wall_ns.tolist()


def test_an_annotation_named_nul() -> None:
    b = TraceBuilder()
    b.call("aten::mul", kernel="k")
    b.annotation("\0", 0, 100)
    assert Analysis(b.trace()).steps.source == "annotation \0"
