"""FUS001 unfused-elementwise-chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.builders import ADD, COPY, GEMM, MUL, SUM, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors.finding import Detection
from tracekit.detectors.fus001_unfused_elementwise_chain import Config, detect
from tracekit.trace.read import read

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces"
BIG = [4096, 4096]
BYTES = 4096 * 4096 * 4


def op(
    b: TraceBuilder, name: str, *shapes: Sequence[int], kernel: str = MUL, **more: object
) -> None:
    b.call(f"aten::{name}", kernel=kernel, gpu=45, shapes=list(shapes), **more)  # type: ignore[arg-type]


def run(b: TraceBuilder) -> tuple[Analysis, Detection]:
    analysis = Analysis(b.trace())
    return analysis, detect(analysis, Config())


def swiglu_tail(b: TraceBuilder, shape: Sequence[int] = BIG) -> None:
    op(b, "mul", shape, shape)
    op(b, "sigmoid", shape)
    op(b, "add", shape, shape)


def test_a_chain_is_found_and_counted() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(2):
                op(b, "mm", BIG, BIG, kernel=GEMM)
                swiglu_tail(b)
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.evidence.counts["chains a step"] == 2
    assert draft.evidence.counts["kernels a chain"] == 3
    assert draft.evidence.counts["GPU ms a step"] == pytest.approx(0.27)
    # mul reads 2 and writes 1, sigmoid 1 and 1, add 2 and 1: 8. Fused: 2 in, 1 out, and half of
    # add's other input, which may be one of mul's two or another tensor: 3.5.
    assert draft.evidence.counts["MB moved a step"] == pytest.approx(2 * 8 * BYTES / 1e6, abs=0.01)
    assert draft.evidence.counts["MB a fused kernel moves"] == pytest.approx(
        2 * 3.5 * BYTES / 1e6, abs=0.01
    )
    assert "torch.compile" in draft.fixes[-1].code


def test_the_edit_keeps_one_kernel_of_the_fused_duration() -> None:
    b = TraceBuilder()
    with b.step():
        swiglu_tail(b)
    analysis, found = run(b)
    (draft,) = found.drafts
    assert draft.edits.resize_gpu.tolist() == [0]
    assert draft.edits.remove_gpu.tolist() == [1, 2]
    # The best kernel of the chain reached 3 x 67 MB in 45 us, 4.47 TB/s: more than the device's.
    expected = 3.5 * BYTES / (3 * BYTES / 45_000)
    assert draft.edits.resize_ns[0] == pytest.approx(expected, rel=0.01)
    ops = analysis.trace.table("ops")
    assert draft.edits.remove_host[:, 1].tolist() == ops.ts[1:].tolist()
    assert draft.pessimistic is not None and draft.optimistic is not None
    assert draft.pessimistic.resize_ns[0] >= draft.edits.resize_ns[0]
    assert draft.optimistic.resize_ns[0] <= draft.edits.resize_ns[0]


def test_rms_norm_by_hand_is_named() -> None:
    b = TraceBuilder()
    row = [4096, 1]
    with b.step():
        op(b, "pow", BIG, [])
        op(b, "mean", BIG, [], [], kernel=SUM, **{"Concrete Inputs": ["", "[-1]", "True"]})
        op(b, "add", row, [], kernel=ADD)
        op(b, "rsqrt", row)
        op(b, "mul", BIG, row)
        op(b, "mul", BIG, [4096])
    (draft,) = run(b)[1].drafts
    assert "RMSNorm" in draft.title
    assert "rms_norm" in draft.fixes[0].code
    assert draft.evidence.counts["kernels a chain"] == 6


def test_an_input_is_read_again_after_a_reduction() -> None:
    """RMSNorm's backward: the sum over rows feeds nothing here, the gradient is read on."""
    b = TraceBuilder()
    rows = {"Concrete Inputs": ["", "[0]", "False"]}
    with b.step():
        op(b, "mul", BIG, BIG)
        op(b, "sum", BIG, [], [], kernel=SUM, **rows)
        op(b, "neg", BIG)
    (draft,) = run(b)[1].drafts
    assert draft.evidence.counts["kernels a chain"] == 3


def test_an_expanded_reduction_feeds_the_next_op() -> None:
    """MeanBackward divides a gradient of [4096, 1] that is expanded to the rows' length."""
    b = TraceBuilder()
    with b.step():
        op(b, "mul", [4096, 1], [4096, 1])
        op(b, "div", BIG, [], strides=[[1, 0], []])
        op(b, "neg", BIG)
    (draft,) = run(b)[1].drafts
    assert draft.evidence.counts["kernels a chain"] == 3


def test_what_a_reduction_needs_cleared_goes_along() -> None:
    b = TraceBuilder()
    rows = {"Concrete Inputs": ["", "[0]", "False"]}
    with b.step():
        op(b, "mul", BIG, BIG)
        start, free = b.clock[100], b.free[7]
        b.op("aten::sum", start, 20, shapes=[BIG, [], []], **rows)
        for name, cat, gpu, at in (
            ("Memset (Device)", "gpu_memset", 1, 5),
            (SUM, "kernel", 45, 12),
        ):
            b.kernel(name, free, gpu, b.launch(start + at, 4), cat=cat)
            free += gpu
        b.clock[100], b.free[7] = start + 20, free
        op(b, "neg", BIG)
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.evidence.counts["kernels a chain"] == 3
    assert draft.edits.remove_gpu.tolist() == [1, 2, 3]


def test_one_finding_covers_every_chain_and_short_ones_go_along() -> None:
    b = TraceBuilder()
    with b.step():
        swiglu_tail(b)
        op(b, "mm", BIG, BIG, kernel=GEMM)
        op(b, "silu", BIG)
        op(b, "mul", BIG, BIG)
    (draft,) = run(b)[1].drafts
    assert draft.evidence.counts["op sequences"] == 2
    assert draft.evidence.counts["kernels a step"] == 5
    assert draft.edits.resize_gpu.tolist() == [0, 4]
    assert draft.edits.remove_gpu.tolist() == [1, 2, 5]
    assert any("SwiGLU" in line for line in draft.evidence.lines)


def test_a_full_reduction_ends_a_chain() -> None:
    b = TraceBuilder()
    with b.step():
        op(b, "mul", BIG, BIG)
        op(b, "sum", BIG, [], kernel=SUM, **{"Concrete Inputs": ["", "[]", "False"]})
        op(b, "mul", BIG, [1, 1])
    assert run(b)[1] == Detection()


def test_a_sibling_of_a_reduction_s_size_is_not_its_output() -> None:
    """4,096 row means, then arithmetic on a [64, 64] tensor: as many elements, another tensor."""
    b = TraceBuilder()
    with b.step():
        op(b, "mul", BIG, BIG)
        op(b, "mean", BIG, [], [], kernel=SUM, **{"Concrete Inputs": ["", "[-1]", "True"]})
        op(b, "add", [64, 64], [64, 64], kernel=ADD)
        op(b, "rsqrt", [64, 64])
    assert run(b)[1] == Detection()


def test_two_kernels_are_no_chain() -> None:
    b = TraceBuilder()
    with b.step():
        op(b, "mul", BIG, BIG)
        op(b, "sigmoid", BIG)
    assert run(b)[1] == Detection()


def test_different_sizes_are_not_joined() -> None:
    b = TraceBuilder()
    with b.step():
        for shape in ([4096, 4096], [4096, 4095], [4096, 4094], [4096, 4093]):
            op(b, "mul", shape, shape)
    assert run(b)[1] == Detection()


def interrupted(kind: str) -> TraceBuilder:
    b = TraceBuilder()
    with b.step():
        op(b, "mul", BIG, BIG)
        op(b, "sigmoid", BIG)
        if kind == "same stream":
            op(b, "mm", BIG, BIG, kernel=GEMM)
        elif kind == "other stream":
            op(b, "mm", BIG, BIG, kernel=GEMM, stream=9)
        elif kind == "wait":
            b.launch(b.clock[100], 3, name="cudaStreamSynchronize")
            b.clock[100] += 5
        elif kind == "stream changes":
            op(b, "add", BIG, BIG, stream=9)
            return b
        op(b, "add", BIG, BIG)
    return b


@pytest.mark.parametrize("kind", ["same stream", "other stream", "wait"])
def test_anything_between_breaks_a_chain(kind: str) -> None:
    assert run(interrupted(kind))[1] == Detection()


def test_nothing_between_does_not() -> None:
    assert len(run(interrupted("nothing"))[1].drafts) == 1


def test_a_chain_does_not_cross_steps() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            op(b, "mul", BIG, BIG)
            op(b, "sigmoid", BIG)
    assert run(b)[1] == Detection()


def test_inductor_kernels_are_fused_already() -> None:
    b = TraceBuilder()
    with b.step():
        for i in range(4):
            b.call("aten::mul", kernel=f"triton_poi_fused_mul_{i}", gpu=45, shapes=[BIG, BIG])
    assert run(b)[1] == Detection()


def test_an_optimizer_loop_is_another_fault() -> None:
    b = TraceBuilder()
    with b.step():
        start = b.clock[100]
        for _ in range(3):
            op(b, "mul_", BIG, [])
            op(b, "addcmul_", BIG, BIG, BIG)
            op(b, "sqrt", BIG)
            op(b, "addcdiv_", BIG, BIG, BIG)
        b.annotation("Optimizer.step#AdamW.step", start, b.clock[100] - start)
    assert run(b)[1] == Detection()


def test_parameter_averages_are_another_fault() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(3):
            op(b, "mul_", BIG, [])
            op(b, "add_", BIG, BIG, [])
    assert run(b)[1] == Detection()


def test_the_parts_of_one_op_are_its_own_business() -> None:
    b = TraceBuilder()
    with b.step(), b.inside("aten::some_composite"):
        swiglu_tail(b)
    assert run(b)[1] == Detection()


def test_a_transposing_copy_is_not_elementwise() -> None:
    b = TraceBuilder()
    with b.step():
        op(b, "mul", BIG, BIG)
        op(b, "copy_", BIG, BIG, kernel=COPY, strides=[[4096, 1], [1, 4096]])
        op(b, "sigmoid", BIG)
    assert run(b)[1] == Detection()


def test_a_cheap_chain_is_silent() -> None:
    b = TraceBuilder()
    with b.step():
        swiglu_tail(b)
        for _ in range(20):
            op(b, "mm", BIG, BIG, kernel=GEMM)
        b.call("aten::mm", kernel=GEMM, gpu=100_000)
    assert run(b)[1] == Detection()


def test_without_shapes_it_says_so() -> None:
    b = TraceBuilder()
    with b.step():
        for name in ("mul", "sigmoid", "add", "tanh"):
            b.call(f"aten::{name}", kernel=MUL, gpu=45)
    found = run(b)[1]
    assert not found.drafts
    assert "shapes were not recorded" in found.undetermined[0].why


def test_a_graph_replay_has_no_ops() -> None:
    b = TraceBuilder()
    with b.step():
        launch = b.launch(0, 5, name="cudaGraphLaunch")
        for i in range(5):
            b.kernel(MUL, 20 + 50 * i, 45, launch)
        b.clock[100] = 10
    found = run(b)[1]
    assert not found.drafts
    assert "no recorded op" in found.undetermined[0].why


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::mul", 0, 5)
    assert "no GPU events" in run(b)[1].undetermined[0].why


def test_an_unknown_device_is_judged_by_what_the_chain_reached() -> None:
    b = TraceBuilder("Some GPU")
    with b.step():
        swiglu_tail(b)
    (draft,) = run(b)[1].drafts
    assert draft.edits.resize_ns[0] == pytest.approx(52_500, rel=0.01)


def test_the_eager_step_has_its_film_tail() -> None:
    path = REAL / "h200/ddpm_eager.json.gz"
    if not path.exists():
        pytest.skip("the real trace is not here")
    analysis = Analysis(read(path))
    found = detect(analysis, Config())
    (draft,) = found.drafts
    assert any("mul > add > silu > native_dropout" in line for line in draft.evidence.lines)
    assert not np.isin(draft.edits.resize_gpu, draft.edits.remove_gpu).any()


@pytest.mark.parametrize("name", ["ddpm_rung0_compile", "ddpm32m_rung5"])
def test_compiled_steps_are_silent(name: str) -> None:
    path = REAL / f"h200/{name}.json.gz"
    if not path.exists():
        pytest.skip("the real trace is not here")
    assert not detect(Analysis(read(path)), Config()).drafts
