"""FUS003 many-small-reductions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import AUTOGRAD, GEMM, MUL, SUM, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors.finding import Detection
from tracekit.detectors.fus003_many_small_reductions import Config, detect
from tracekit.detectors.pricing import price
from tracekit.trace.read import read

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces"
SHAPE = [512, 512]
BYTES = 512 * 512 * 4
N = 40
TO_HOST = "Memcpy DtoH (Device -> Pageable)"


def run(b: TraceBuilder) -> tuple[Analysis, Detection]:
    analysis = Analysis(b.trace())
    return analysis, detect(analysis, Config())


def total(b: TraceBuilder, *, gpu: float = 3, shape: list[int] = SHAPE, tid: int = 100) -> None:
    b.call(
        "aten::sum",
        kernel=SUM,
        gpu=gpu,
        tid=tid,
        shapes=[shape, [], [], []],
        dtypes=["float", "ScalarList", "Scalar", ""],
        **{"Concrete Inputs": ["", "[]", "False", ""]},
    )


def norm(b: TraceBuilder) -> None:
    b.call(
        "aten::linalg_vector_norm",
        kernel=SUM,
        gpu=3,
        shapes=[SHAPE, [], [], [], []],
        dtypes=["float", "Scalar", "", "Scalar", ""],
        **{"Concrete Inputs": ["", "2", "", "False", ""]},
    )


def read_number(b: TraceBuilder) -> None:
    """`float(x)`: aten::item, a copy to the host and a wait for it."""
    start = b.clock[100]
    begins = max(start + 8, b.free.get(7, 0.0))
    b.op("aten::item", start, begins + 9 - start, shapes=[[]])
    b.op("aten::_local_scalar_dense", start + 1, begins + 7 - start, shapes=[[]])
    b.kernel(
        TO_HOST,
        begins,
        2,
        b.launch(start + 2, 3, name="cudaMemcpyAsync"),
        cat="gpu_memcpy",
        bytes=4,
    )
    b.launch(start + 6, begins + 4 - (start + 6), name="cudaStreamSynchronize")
    b.free[7] = begins + 2
    b.clock[100] = begins + 9


def product(b: TraceBuilder, tid: int = 100) -> None:
    b.call("aten::mm", kernel=GEMM, gpu=20, tid=tid, shapes=[SHAPE, SHAPE])


@pytest.mark.parametrize(("part", "removed"), [([], N + 1), ([8, 8], N)])
def test_stacking_the_numbers_goes_along(part: list[int], removed: int) -> None:
    """A long list has no recorded shapes; its parts say what is stacked. 40 sums and the copy that
    stacks them become one kernel; a stack of other tensors is other work."""
    b = TraceBuilder()
    with b.step():
        for _ in range(N):
            total(b)
        with b.inside("aten::stack", shapes=[[], []], dtypes=["TensorList", "Scalar"]):
            for _ in range(N):
                b.call("aten::unsqueeze", shapes=[part, []], dtypes=["float", "Scalar"])
            b.call("aten::cat", kernel=MUL, shapes=[[], []], dtypes=["TensorList", "Scalar"])
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.evidence.counts["kernels and copies a step"] == removed
    assert len(draft.edits.remove_gpu) == removed - 1


def test_a_loop_of_sums_becomes_one_kernel() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            product(b)
            for _ in range(N):
                total(b)
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.evidence.counts["reductions a step"] == N
    assert draft.edits.resize_ns.tolist() == [int(N * BYTES / (4_260 * 0.5))] * 3
    assert len(draft.edits.remove_gpu) == 3 * (N - 1)
    removed = draft.edits.remove_host
    # 10 us each; one stacked call takes 1 us a tensor.
    assert (removed[:, 2] - removed[:, 1]).sum() == 3 * N * 9_000


def test_the_replayed_step_loses_its_launches() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            product(b)
            for _ in range(N):
                total(b)
    analysis, detection = run(b)
    (found,) = price(analysis, detection).findings
    assert found.severity == "high"
    assert found.saving.ms_per_step == pytest.approx(N * 0.009, rel=0.15)


def test_norms_read_one_by_one_lose_their_waits() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            product(b)
            for _ in range(N):
                norm(b)
                read_number(b)
    analysis, found = run(b)
    (draft,) = found.drafts
    assert draft.evidence.counts["numbers read on the host a step"] == N
    launches = analysis.trace.table("launches")
    dropped = launches.text("name").take(draft.edits.drop_waits)
    assert list(dropped).count("cudaStreamSynchronize") == 3 * (N - 1)
    # All kernels but the first, all copies but the last.
    assert len(draft.edits.remove_gpu) == 3 * (2 * N - 2)
    assert "_foreach_norm" in draft.fixes[0].code
    (priced,) = price(analysis, found).findings
    assert priced.saving.percent_of_step > 40


def test_what_makes_the_input_and_what_adds_the_numbers_belongs_to_it() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(N):
                b.call("aten::square", kernel=MUL, gpu=3, shapes=[SHAPE])
                total(b)
                b.call("aten::add_", kernel=MUL, gpu=2, shapes=[[], []])
    (draft,) = run(b)[1].drafts
    assert draft.evidence.counts["kernels and copies a step"] == 3 * N


def test_bias_gradients_are_sums_that_cannot_be_put_together() -> None:
    """One full sum for each layer, in the backward pass: nothing between is on the same thread."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(N):
                with b.inside("autograd::engine::evaluate_function: SumBackward0", tid=AUTOGRAD):
                    total(b, tid=AUTOGRAD)
    assert run(b)[1] == Detection()


def test_reductions_between_other_work_are_no_run() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(N):
                product(b)
                total(b)
    assert run(b)[1] == Detection()


def test_reductions_over_some_dimensions_are_no_run() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(N):
                b.call(
                    "aten::sum",
                    kernel=SUM,
                    gpu=3,
                    shapes=[SHAPE, [], [], []],
                    dtypes=["float", "ScalarList", "Scalar", ""],
                    **{"Concrete Inputs": ["", "[0]", "False", ""]},
                )
    assert run(b)[1] == Detection()


def test_large_reductions_fill_the_gpu() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(N):
                total(b, gpu=100, shape=[8192, 8192])
    assert run(b)[1] == Detection()


def test_a_few_metrics_are_no_loop() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(5):
                total(b)
            product(b)
    assert run(b)[1] == Detection()


def test_a_multi_tensor_norm_is_the_fix() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.inside("aten::_foreach_norm"):
                for _ in range(N):
                    b.call("aten::empty", host=1)
                b.call("aten::empty", kernel=SUM, gpu=50)
            norm(b)
    assert run(b)[1] == Detection()


def test_a_long_pause_inside_the_loop_stays() -> None:
    b = TraceBuilder()
    with b.step():
        for i in range(N):
            total(b)
            b.clock[100] += 5_000 if i == 10 else 1
    _, found = run(b)
    removed = found.drafts[0].edits.remove_host
    assert (removed[:, 2] - removed[:, 1]).sum() < N * 11_000


def test_without_shapes_it_says_so() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(N):
            b.call("aten::sum", kernel=SUM, gpu=3)
    found = run(b)[1]
    assert not found.drafts
    assert "shapes were not recorded" in found.undetermined[0].why


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::sum", 0, 5)
    assert "no GPU events" in run(b)[1].undetermined[0].why


@pytest.mark.parametrize(
    "name", ["h200/ddpm_eager", "h200/ddp_2rank_healthy/rank-0", "public/negative_queue_rank0"]
)
def test_recorded_steps_full_of_sums_are_silent(name: str) -> None:
    """213 bias gradients a step, 41, and 73 sums in the forward pass between other work."""
    path = REAL / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the real trace is not here")
    analysis = Analysis(read(path))
    sums = analysis.trace.table("ops").text("name").where(lambda n: n == "aten::sum")
    assert np.count_nonzero(sums) > 100
    assert detect(analysis, Config()) == Detection()
