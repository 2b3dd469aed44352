"""SYN001 on loops that read numbers one by one: waits, launches and host work are priced."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import ADD, SUM, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.analysis.reads import find_runs
from tracekit.detectors import syn001_host_sync_stall as syn
from tracekit.detectors.finding import Finding
from tracekit.detectors.pricing import Pricer, price

NORM = "aten::linalg_vector_norm"
COPY = "Memcpy DtoH (Device -> Pinned)"


def findings(b: TraceBuilder) -> tuple[Finding, ...]:
    analysis = Analysis(b.trace())
    return price(analysis, syn.detect(analysis, syn.Config())).findings


def read(b: TraceBuilder, op: str = "aten::item", tail: float = 6) -> None:
    """The op > a small copy, then a synchronize that returns `tail` us after the copy."""
    at = b.clock[100]
    begins = max(at + 8, b.free[7] + 1)
    ends = begins + 1
    b.op(op, at, ends + tail + 2 - at)
    c = b.launch(at + 2, 4, name="cudaMemcpyAsync")
    b.kernel(COPY, begins, 1, c, cat="gpu_memcpy", bytes=4)
    b.launch(at + 7, ends + tail - at - 7, name="cudaStreamSynchronize")
    b.free[7], b.clock[100] = ends, ends + tail + 3


def norms(
    count: int = 40,
    *,
    before: tuple[str, ...] = (NORM,),
    kernel: float = 5,
    backward: float = 1_000,
    op: str = "aten::item",
) -> TraceBuilder:
    """A backward of ten kernels, then `count` turns: the ops of `before` (20 us each), a read."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(10):
                b.call("aten::mm", kernel=ADD, gpu=backward / 10, host=10)
            for _t in range(count):
                for name in before:
                    b.call(name, kernel=SUM, gpu=kernel, host=20)
                read(b, op)
    return b


def test_the_host_work_of_a_loop_is_priced_with_its_waits() -> None:
    (found,) = findings(norms())
    assert found.title == "aten::item reads 40 numbers a step one by one"
    # A turn takes 20 us of dispatch, and the read 3 us more than 7 + 1 + 6: 38 us, the GPU 6 of
    # them. The step: 1,000 us of backward and 40 turns.
    assert found.saving.step_ms == pytest.approx(1.0 + 40 * 0.038, abs=0.05)
    # Left: the backward's kernels, and one kernel of 40 * 5 us. The host (100 us of launches, two
    # turns of 43 us, and 4 us for each of the 38 dropped calls) stays ahead.
    assert found.saving.then_ms == pytest.approx(1.2, abs=0.03)
    assert found.evidence.counts["reads in a row a step"] == 40
    assert found.evidence.lines == (f"{NORM} > aten::item",)
    assert "_foreach_norm" in found.fixes[0].code
    assert found.severity == "high"


def test_without_the_waits_alone_the_host_work_stays() -> None:
    """The low end: 40 turns of 20 us of dispatch, 14 us of read, launched while the GPU works."""
    analysis = Analysis(norms(backward=100).trace())
    (draft,) = syn.detect(analysis, syn.Config()).drafts
    assert draft.pessimistic is not None
    assert analysis.replay is not None
    pricer = Pricer(analysis, analysis.replay)
    best, least = pricer.saved_ms(draft.edits), pricer.saved_ms(draft.pessimistic)
    # Host-bound: without waits a step still is 100 us + 40 turns of at least 30 us.
    assert pricer.step_ms - least > 0.1 + 40 * 0.030
    # The loop as one op and one read: the host's 100 + 2 * 43 us, 4 us a dropped call, 300 of GPU.
    assert pricer.step_ms - best == pytest.approx(0.35, abs=0.08)
    assert len(draft.edits.remove_gpu) == 4 * (39 + 40)


def test_the_kernels_of_a_loop_become_one_of_the_same_time() -> None:
    analysis = Analysis(norms(count=10, before=("aten::abs", "aten::max"), kernel=7).trace())
    (draft,) = syn.detect(analysis, syn.Config()).drafts
    assert draft.edits.resize_ns.tolist() == [2 * 10 * 7_000] * 4
    assert "torch.stack" in draft.fixes[0].code


@pytest.mark.parametrize(
    "before",
    [
        ("aten::add_", NORM),  # changes a tensor: the next turn may need this one's number
        ("aten::sum", "aten::mm", "aten::sum"),
        (NORM, "aten::div", "aten::pow", "aten::sqrt", "aten::sum"),  # a computation
        ("aten::detach",),  # nothing reduced: the losses of a loop
        (),
    ],
)
def test_a_loop_that_may_need_its_numbers_is_priced_by_its_waits(before: tuple[str, ...]) -> None:
    some = findings(norms(before=before))
    assert some
    for found in some:
        assert found.title == "aten::item makes the host wait for the GPU"
        assert not len(found.edits.remove_host)
        assert not len(found.edits.remove_gpu)


def test_a_few_metrics_are_no_loop() -> None:
    (found,) = findings(norms(count=5))
    assert found.title == "aten::item makes the host wait for the GPU"


def test_runs_end_where_the_ops_change_and_where_a_step_ends() -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            b.call("aten::mm", kernel=ADD)
            for name, count in ((NORM, 9), ("aten::sum", 8), ("aten::mean", 3)):
                for _t in range(count):
                    b.call(name, kernel=SUM, gpu=5, host=20)
                    read(b)
    analysis = Analysis(b.trace())
    runs = find_runs(analysis, analysis.waits.call, 8)
    assert [(r.ops, len(r)) for r in runs] == [((NORM,), 9), (("aten::sum",), 8)] * 2
    assert [len(r.calls) for r in runs] == [9, 8] * 2
    assert all(len(np.unique(r.copies)) == len(r) == len(r.work) for r in runs)


def test_branches_on_each_tensor_are_reads_too() -> None:
    (found,) = findings(norms(before=("aten::isnan", "aten::any"), op="aten::is_nonzero"))
    assert found.title == "aten::is_nonzero reads 40 numbers a step one by one"
