"""LAY001 layout-transpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import AUTOGRAD, CONV, COPY, DGRAD, GEMM, MUL, TO_NCHW, TO_NHWC, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors.finding import Detection
from tracekit.detectors.lay001_layout_transpose import Config, detect
from tracekit.trace.read import read

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces"
CONV2D = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
SHAPE, WEIGHT = [128, 128, 32, 32], [128, 128, 3, 3]
NCHW, NHWC = [131072, 1024, 32, 1], [131072, 1, 4096, 128]
BF16 = ["c10::BFloat16", "c10::BFloat16"]


def run(b: TraceBuilder) -> tuple[Analysis, Detection]:
    analysis = Analysis(b.trace())
    return analysis, detect(analysis, Config())


def nchw_step(
    b: TraceBuilder,
    *,
    norm: str | None = None,
    transposes: float = 20,
    chain: tuple[str, ...] = CONV2D,
    shape: list[int] = SHAPE,
    dtypes: list[str] = BF16,
) -> None:
    with b.inside(chain[0]), b.inside(chain[-1], shapes=[shape, WEIGHT], dtypes=dtypes):
        for kernel, time in ((TO_NHWC, transposes), (CONV, 50), (TO_NCHW, transposes)):
            at = b.clock[100]
            b.clock[100] = at + 10
            begins = max(at + 9, b.free.get(7, 0))
            b.kernel(kernel, begins, time, b.launch(at, 3))
            b.free[7] = begins + time
    if norm is not None:
        b.call(norm, kernel=MUL, shapes=[shape, [128]], dtypes=["c10::BFloat16", "float"])


def test_cudnn_conversions_around_convolutions() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            nchw_step(b)
    analysis, found = run(b)
    (draft,) = found.drafts
    assert draft.code == "LAY001" and "NCHW to NHWC" in draft.title
    assert draft.evidence.counts["kernels a step"] == 2
    assert draft.evidence.counts["GPU ms a step"] == 0.04
    gpu = analysis.trace.table("gpu")
    layout = analysis.classes.rows("layout")
    assert draft.edits.remove_gpu.tolist() == np.flatnonzero(layout).tolist()
    assert set(draft.evidence.event_ids) == set(gpu.ints("id")[layout].tolist())
    assert "channels_last" in draft.fixes[0].code
    assert draft.where.ops == ("aten::conv2d", "aten::cudnn_convolution")


def test_with_group_norm_as_much_comes_back() -> None:
    b = TraceBuilder()
    with b.step():
        nchw_step(b, norm="aten::native_group_norm")
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.edits.empty
    assert draft.pessimistic is not None and draft.pessimistic.empty
    assert draft.optimistic is not None and len(draft.optimistic.remove_gpu) == 2
    assert "GroupNorm returns NCHW" in draft.impact
    assert any("apex" in f.code for f in draft.fixes)


def test_a_batch_norm_slow_in_nchw_gains_with_the_layout() -> None:
    b = TraceBuilder()
    with b.step():
        nchw_step(b)
        # 33.5 MB three times at 4.26 TB/s are 23.6 us; this one takes 200.
        b.call(
            "aten::native_batch_norm",
            kernel="void at::native::batch_norm_collect_statistics_kernel<>",
            gpu=200,
            shapes=[SHAPE],
            dtypes=["c10::BFloat16"],
            strides=[NCHW],
        )
    _, found = run(b)
    (draft,) = found.drafts
    assert draft.edits.resize_gpu.tolist() == [3]
    least = 128 * 128 * 32 * 32 * 2 * 3 / 4260
    # and the 4 us that any kernel takes
    assert draft.edits.resize_ns[0] == pytest.approx(least / 0.6 + 4_000, rel=0.01)
    assert draft.pessimistic is not None and not len(draft.pessimistic.resize_gpu)


def hidden_step(b: TraceBuilder, *, strides: list[list[int]] | None) -> None:
    b.call("aten::native_group_norm", kernel=MUL)
    details = {"shapes": [SHAPE, SHAPE], "dtypes": BF16}
    if strides is not None:
        details["strides"] = strides
    b.clock.setdefault(AUTOGRAD, b.clock[100])
    with b.inside("aten::convolution_backward", tid=AUTOGRAD):
        for chain in (
            ("aten::contiguous", "aten::clone", "aten::copy_"),
            ("aten::to", "aten::_to_copy", "aten::copy_"),
        ):
            b.call(chain, kernel=COPY, gpu=88, tid=AUTOGRAD, **details)
        b.call("aten::dgrad", kernel=DGRAD, gpu=50, tid=AUTOGRAD)


@pytest.mark.parametrize("strides", [[NHWC, NCHW], None])
def test_hidden_copies_of_a_channels_last_model(strides: list[list[int]] | None) -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            hidden_step(b, strides=strides)
    analysis, found = run(b)
    (draft,) = found.drafts
    assert "hidden copies" in draft.title
    assert draft.evidence.counts["kernels a step"] == 2
    assert draft.evidence.counts["GPU ms a step"] == 0.176
    assert len(draft.edits.remove_gpu) == 4
    # The dispatch that goes is that of the outermost copying op, on the autograd thread.
    host = draft.edits.remove_host
    assert len(host) == 4 and set(host[:, 0].tolist()) == {AUTOGRAD}
    ops = analysis.trace.table("ops")
    outer = ops.text("name").where(lambda n: n in ("aten::contiguous", "aten::to"))
    assert sorted(host[:, 1].tolist()) == sorted(ops.ts[outer].tolist())
    # At worst the copies stay, at memory bandwidth: 67 MB at 4.26 TB/s.
    assert draft.pessimistic is not None
    assert draft.pessimistic.resize_ns[0] == pytest.approx(67108864 / 4260, rel=0.01)


def test_a_cast_inside_convolution_backward_is_no_layout_copy() -> None:
    b = TraceBuilder()
    with b.step():
        hidden_step(b, strides=[NCHW, NCHW])
    assert run(b)[1] == Detection()


def test_a_small_share_is_silent() -> None:
    b = TraceBuilder()
    with b.step():
        nchw_step(b, transposes=1)
        b.call("aten::mm", kernel=GEMM, gpu=1000)
    assert run(b)[1] == Detection()


@pytest.mark.parametrize(
    "kernel",
    [
        "triton_poi_fused_convolution_transpose_3",
        "_transpose_kernel",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>",
        "void permute_pooled_embs_kernel<float>(float const*)",
    ],
)
def test_a_kernel_named_transpose_is_not_enough(kernel: str) -> None:
    b = TraceBuilder()
    with b.step():
        b.call(CONV2D, kernel=CONV, gpu=50)
        b.call("op", kernel=kernel, gpu=500)
    assert run(b)[1] == Detection()


def test_conv1d_has_another_fix() -> None:
    b = TraceBuilder()
    with b.step():
        nchw_step(b, chain=("aten::conv1d", "aten::cudnn_convolution"), shape=[128, 128, 1, 512])
    (draft,) = run(b)[1].drafts
    assert draft.confidence == "low"
    assert "Conv2d" in draft.fixes[0].code
    assert not any("model.to(" in f.code for f in draft.fixes)


def test_fp32_on_an_old_gpu_may_be_slower() -> None:
    b = TraceBuilder("Tesla V100-SXM2-16GB", capability=(7, 0))
    with b.step():
        nchw_step(b, dtypes=["float", "float"])
    (draft,) = run(b)[1].drafts
    assert draft.confidence == "low"
    assert draft.pessimistic is not None and draft.pessimistic.empty
    assert "slower in NHWC" in draft.impact


def test_copies_of_a_graph_replay_are_known_by_their_order() -> None:
    b = TraceBuilder()
    with b.step():
        b.op("run", 0, 10)
        launch = b.launch(2, 5, name="cudaGraphLaunch")
        b.clock[100] = 10
        for at, name in ((20, COPY), (120, DGRAD), (220, MUL), (320, COPY), (420, MUL)):
            b.kernel(name, at, 90, launch)
    trace = b.trace()
    # A graph's work has no External id, so no op of its own.
    analysis = Analysis(trace)
    analysis.links.gpu_op[:] = -1
    found = detect(analysis, Config())
    (draft,) = found.drafts
    assert draft.confidence == "medium"
    assert draft.evidence.counts["kernels a step"] == 1
    # No grid is recorded, so nothing says how large the copy is: no gain is assured.
    assert draft.pessimistic is not None
    assert draft.pessimistic.resize_ns.tolist() == [90_000]
    assert draft.edits.resize_ns.tolist() == [90_000]
    assert draft.optimistic is not None and draft.optimistic.remove_gpu.tolist() == [0]
    assert "no recorded op" in found.undetermined[0].why


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::conv2d", 0, 5)
    assert "no GPU events" in run(b)[1].undetermined[0].why


def real(name: str) -> Detection:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return detect(Analysis(read(path)), Config())


def test_rung_3_shows_the_hidden_copies() -> None:
    (draft,) = real("h200/ddpm_rung3_channels_last_fused_adamw.json.gz").drafts
    assert "hidden copies" in draft.title and draft.confidence == "high"
    assert draft.evidence.counts["GPU ms a step"] == pytest.approx(3.35, abs=0.05)


def test_rung_0_saves_nothing_by_layout_alone() -> None:
    (draft,) = real("h200/ddpm_rung0_compile.json.gz").drafts
    assert draft.evidence.counts["GPU ms a step"] == pytest.approx(5.44, abs=0.05)
    assert draft.edits.empty


def test_rung_5_shows_the_copies_of_its_graph() -> None:
    (draft,) = real("h200/ddpm32m_rung5.json.gz").drafts
    assert draft.confidence == "medium"
    # By their grids the copies move at most 1.0 ms a step at memory bandwidth.
    assert draft.edits.resize_ns.sum() / 3e6 == pytest.approx(0.9, abs=0.1)
    assert draft.evidence.counts["GPU ms a step"] == pytest.approx(2.6, abs=0.1)


@pytest.mark.parametrize("name", ["mi300_bert_small", "mi_vllm_piecewise_graph", "sampled_rank0"])
def test_models_without_convolutions_are_silent(name: str) -> None:
    assert real(f"public/{name}.json.gz") == Detection()


def test_the_report_does_not_depend_on_the_order_in_the_file() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            nchw_step(b)
    _, one = run(b)
    b.events.reverse()
    _, other = run(b)
    assert one.drafts[0].evidence.lines == other.drafts[0].evidence.lines
