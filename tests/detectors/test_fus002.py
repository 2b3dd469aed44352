"""FUS002 unfused-optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.builders import ADD, GEMM, MUL, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.analysis.optimizers import find_optimizer_steps
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.fus002_unfused_optimizer import Config, detect
from tracekit.detectors.pricing import price
from tracekit.trace.read import read

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces"
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor>"
)
FUSED = FOREACH.replace("BinaryOpScalarFunctor", "FusedAdamMathFunctor")
ADAMW = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")
SGD = ("mul_", "add_", "add_")


def run(b: TraceBuilder) -> tuple[Analysis, Detection]:
    analysis = Analysis(b.trace())
    return analysis, detect(analysis, Config())


def priced(b: TraceBuilder) -> Finding:
    analysis, detection = run(b)
    (found,) = price(analysis, detection).findings
    return found


def foreach(
    b: TraceBuilder, ops: Sequence[str], *, gpu: float = 30, host: float = 200, kernels: str = ""
) -> None:
    for name in ops:
        b.call(f"aten::_foreach_{name}", kernel=kernels or FOREACH, gpu=gpu, host=host)


def training(
    b: TraceBuilder, ops: Sequence[str], *, optimizer: str = "AdamW", after: Sequence[str] = ()
) -> None:
    """Three steps of 20 products and an optimizer step; `after` runs in a hook of the step."""
    for _ in range(3):
        with b.step():
            for _ in range(20):
                b.call("aten::mm", kernel=GEMM, gpu=20, host=20)
            start = b.clock[100]
            b.clock[100] += 300
            foreach(b, ops)
            foreach(b, after)
            b.clock[100] += 50
            b.annotation(f"Optimizer.step#{optimizer}.step", start, b.clock[100] - start)


def test_foreach_adamw_becomes_one_pass() -> None:
    b = TraceBuilder()
    training(b, ADAMW)
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.where.text == "AdamW.step, 8 kernels"
    assert draft.evidence.counts["tensors moved a parameter"] == 21
    # 8 x 30 us moved 21 tensors; 7 in one pass, 1.1 times as long a tensor.
    assert draft.edits.resize_ns.tolist() == [int(240_000 * 7 / 21 * 1.1)] * 3
    assert len(draft.edits.remove_gpu) == 3 * 7
    # 8 calls of 200 us on the host; a fused step takes 2.4 of them.
    removed = draft.edits.remove_host
    assert (removed[:, 2] - removed[:, 1]).tolist() == [(1_600 - 480) * 1000] * 3
    assert "fused=True" in draft.fixes[0].code


def test_the_price_counts_the_host_only_where_the_gpu_waits() -> None:
    waiting = TraceBuilder()
    training(waiting, ADAMW)
    assert priced(waiting).saving.ms_per_step == pytest.approx(1.12, abs=0.1)
    busy = TraceBuilder()
    for _ in range(3):
        with busy.step():
            busy.call("aten::mm", kernel=GEMM, gpu=20_000, host=20)
            start = busy.clock[100]
            foreach(busy, ADAMW)
            busy.annotation("Optimizer.step#AdamW.step", start, busy.clock[100] - start)
    assert priced(busy).saving.ms_per_step == pytest.approx(0.240 - 0.088, abs=0.02)


def test_a_loop_over_parameters_is_priced_by_its_bytes() -> None:
    """foreach=False: 8 launches for each of 50 parameters of 16,384 elements."""
    b = TraceBuilder()
    shape = [16_384]
    for _ in range(3):
        with b.step():
            start = b.clock[100]
            for _ in range(50):
                b.call("aten::add_", host=4, shapes=[[], []], dtypes=["float", "Scalar"])
                for name in ADAMW:
                    b.call(f"aten::{name}", kernel=MUL, gpu=2, shapes=[shape, shape])
            b.annotation("Optimizer.step#AdamW.step", start, b.clock[100] - start)
    _, found = run(b)
    (draft,) = found.drafts
    assert "loop over parameters" in draft.title
    assert draft.evidence.counts["parameters"] == 50
    moved = 50 * 16_384 * 4 * 7
    assert draft.edits.resize_ns[0] == pytest.approx(max(moved / (4_260 * 0.59), 5_000), rel=0.01)
    # From the step counter of the first parameter on, but for 3 us a parameter.
    removed = draft.edits.remove_host
    assert removed[:, 2].max() - removed[:, 1].min() > 0
    one = float((removed[:, 2] - removed[:, 1]).sum()) / 3
    assert one == pytest.approx(50 * 84_000 - 50 * 3_000, rel=0.01)


@pytest.mark.parametrize("after", [("lerp_",), ("mul_", "add_"), ("mul_", "lerp_")])
def test_an_average_kept_by_a_hook_is_not_the_optimizer_s(after: tuple[str, ...]) -> None:
    b = TraceBuilder()
    training(b, ADAMW, after=after)
    analysis, found = run(b)
    (draft,) = found.drafts
    assert draft.evidence.counts["kernels a step"] == 8
    gpu = analysis.trace.table("gpu")
    last = np.flatnonzero(gpu.text("name").where(lambda n: n == FOREACH))[-1]
    assert last not in draft.edits.remove_gpu
    assert draft.edits.remove_host[:, 2].max() < analysis.trace.table("ops").end.max()


def test_an_average_after_plain_sgd_is_not_momentum() -> None:
    b = TraceBuilder()
    training(b, ("add_",), optimizer="SGD", after=("mul_", "add_"))
    assert not run(b)[1].drafts


def test_clipping_outside_the_step_is_left_alone() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.call("aten::mm", kernel=GEMM, gpu=20)
            foreach(b, ("norm", "mul_"))
            start = b.clock[100]
            foreach(b, ADAMW)
            b.annotation("Optimizer.step#AdamW.step", start, b.clock[100] - start)
            foreach(b, ("lerp_",))
    (draft,) = run(b)[1].drafts
    assert draft.evidence.counts["kernels a step"] == 8


def test_sgd_with_momentum_moves_eight_tensors() -> None:
    b = TraceBuilder()
    training(b, SGD, optimizer="SGD")
    (draft,) = run(b)[1].drafts
    assert draft.evidence.counts["tensors moved a parameter"] == 8
    assert draft.evidence.counts["tensors moved by a fused kernel"] == 5


def test_sgd_without_momentum_is_one_pass_already() -> None:
    b = TraceBuilder()
    training(b, ("add_",), optimizer="SGD")
    assert run(b)[1] == Detection()


def test_a_fused_step_is_silent() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            start = b.clock[100]
            b.call("aten::_foreach_add_", kernel=FOREACH, gpu=2, host=200)
            b.call("aten::_fused_adamw_", kernel=FUSED, gpu=400, host=400)
            b.annotation("Optimizer.step#AdamW.step", start, b.clock[100] - start)
    assert run(b)[1] == Detection()


def test_a_graph_replay_of_foreach_kernels_has_no_ops() -> None:
    b = TraceBuilder()
    for i in range(3):
        b.annotation(f"ProfilerStep#{i}", 1_000 * i, 1_000)
        launch = b.launch(1_000 * i, name="cudaGraphLaunch")
        for k in range(8):
            b.kernel(FOREACH, 1_000 * i + 10 + 40 * k, 30, launch)
    assert run(b)[1] == Detection()


def test_elementwise_work_of_the_model_is_no_optimizer() -> None:
    """The same ops, outside an optimizer step."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for name in ADAMW:
                b.call(f"aten::{name}", kernel=ADD, gpu=20)
    assert run(b)[1] == Detection()


def test_an_optimizer_of_no_known_sequence_is_said() -> None:
    b = TraceBuilder()
    training(b, ("mul_", "add_", "sqrt", "div_"), optimizer="Shampoo")
    found = run(b)[1]
    assert not found.drafts
    assert "Shampoo" in found.undetermined[0].why


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::mul", 0, 5)
    assert "no GPU events" in run(b)[1].undetermined[0].why


def real(name: str) -> Analysis:
    path = REAL / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the real trace is not here")
    return Analysis(read(path))


def test_the_recorded_model_with_foreach_predicts_the_one_with_fused() -> None:
    """41 M parameters, AdamW: 1,255 us of foreach kernels; recorded with fused: 460 us."""
    analysis = real("h200/ddpm_rung0_compile")
    (draft,) = detect(analysis, Config()).drafts
    assert draft.evidence.counts["kernels a step"] == 44
    assert draft.edits.resize_ns / 1e3 == pytest.approx(460, rel=0.02)
    # The average of the weights (aten::_foreach_lerp_ outside the step) is not among them.
    assert all(s.accesses == 21 for s in find_optimizer_steps(analysis).unfused)


def test_the_smaller_model_too() -> None:
    """31.8 M parameters; its rung 5 ran the fused kernel inside a graph: 377 us."""
    (draft,) = detect(real("h200/ddpm32m_rung0"), Config()).drafts
    assert draft.edits.resize_ns / 1e3 == pytest.approx(377, rel=0.08)


@pytest.mark.parametrize(
    "name",
    [
        "h200/ddpm_rung3_channels_last_fused_adamw",
        "h200/ddpm32m_rung5",
        "h200/ddp_2rank_healthy/rank-0",
        "public/negative_queue_rank0",
        "public/mi300_resnet_orphans",
        "public/mi250_toy_train",
    ],
)
def test_fused_and_single_pass_recordings_are_silent(name: str) -> None:
    assert detect(real(name), Config()) == Detection()
