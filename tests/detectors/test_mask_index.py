"""SYN001 on boolean masks: the gather and its backward are priced, not only the wait."""

from __future__ import annotations

import pytest

from tests.builders import ADD, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors import syn001_host_sync_stall as syn
from tracekit.detectors.finding import Detection, Draft
from tracekit.detectors.pricing import price

COPY = "Memcpy DtoH (Device -> Pinned)"


def region(b: TraceBuilder, ops: tuple[str, ...], took: float, kernels: int) -> None:
    """Nested ops of `took` us: the mask's count is copied and waited for at 34 us (10 us), and
    `kernels` kernels of 2 us are launched, one before it and the others after it."""
    at = b.clock[100]
    for depth, name in enumerate(ops):
        b.op(name, at + depth, took - 2 * depth)

    def launch(when: float, name: str = ADD, cat: str = "kernel") -> None:
        begins = max(when + 5, b.free[7])
        call = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
        b.kernel(name, begins, 2, b.launch(when, 3, name=call), cat=cat)
        b.free[7] = begins + 2

    launch(at + 10)
    launch(at + 30, COPY, "gpu_memcpy")
    b.launch(at + 34, 10, name="cudaStreamSynchronize")
    for k in range(kernels - 1):
        launch(at + 60 + k * 15)
    b.clock[100] = at + took


def program(after: str = "aten::mean", ops: tuple[str, ...] = ("aten::index", "aten::nonzero"),
            *, backward: bool = True) -> TraceBuilder:  # fmt: skip
    """Twenty ops of 40 us with a kernel of 5 us each; a mask (300 us), what follows; its backward
    (500 us): the GPU waits for the host all the time."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(20):
                b.call("aten::mul", kernel=ADD, gpu=5, host=40)
            region(b, ops, 300, 4)
            b.call(after, kernel=ADD, gpu=5, host=40)
            if backward:
                region(b, ("IndexBackward0", "aten::_index_put_impl_", "aten::nonzero"), 500, 13)
    return b


def draft(b: TraceBuilder) -> tuple[Analysis, Draft]:
    analysis = Analysis(b.trace())
    (found,) = syn.detect(analysis, syn.Config()).drafts
    return analysis, found


def test_the_gather_and_its_gradient_are_priced() -> None:
    analysis, found = draft(program())
    # One launch each 40 us: five for where, the mask's sum and the division, two for the gradient
    # of where. Of 290 and 490 us without the waits, 90 and 410 us go.
    spans = found.edits.remove_host
    assert (spans[:, 2] - spans[:, 1]).sum() == pytest.approx(4 * (90_000 + 410_000), abs=100)
    # All four kernels stay for the five launches, and two of the gradient's thirteen; no copies.
    assert len(found.edits.remove_gpu) == 4 * (1 + 11 + 1)
    (priced,) = price(analysis, Detection((found,))).findings
    # A step of 20 * 40 + 300 + 40 + 500 us.
    assert priced.saving.step_ms == pytest.approx(1.64, abs=0.01)
    assert priced.saving.ms_per_step == pytest.approx(0.5, abs=0.04)
    # The low end is the waits alone.
    assert priced.saving.low < 0.05
    assert priced.title == "aten::index makes the host wait for the GPU"
    assert "2 times a step" in priced.where.text
    assert "torch.where" in priced.fixes[0].code


def test_without_gradients_the_forward_alone() -> None:
    _, found = draft(program(backward=False))
    spans = found.edits.remove_host
    assert (spans[:, 2] - spans[:, 1]).sum() == pytest.approx(4 * 90_000, abs=100)


def test_a_mask_that_assigns_is_a_where_alone() -> None:
    _, found = draft(program("aten::mm", ("aten::index_put_", "aten::nonzero"), backward=False))
    spans = found.edits.remove_host
    # Two launches stay: 290 - 80.
    assert (spans[:, 2] - spans[:, 1]).sum() == pytest.approx(4 * 210_000, abs=100)


def test_a_mask_that_makes_the_rest_smaller_keeps_its_work() -> None:
    """`model(x[mask])`: where would compute all rows. Only the waits are priced, the gradient's
    among them."""
    _, found = draft(program("aten::mm"))
    assert len(found.edits.remove_host) == 0
    assert len(found.edits.drop_waits) == 8


def test_nonzero_for_its_own_sake_keeps_its_work() -> None:
    _, found = draft(program("aten::mean", ("aten::nonzero",), backward=False))
    assert len(found.edits.remove_host) == 0


def test_an_index_by_numbers_is_no_mask() -> None:
    """Its wait has nothing to do with nonzero."""
    _, found = draft(program("aten::mean", ("aten::index", "aten::item"), backward=False))
    assert len(found.edits.remove_host) == 0
