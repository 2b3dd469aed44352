"""NRM001 norm-far-below-bandwidth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import MUL, TO_NHWC, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors import lay001_layout_transpose as lay
from tracekit.detectors.finding import Detection
from tracekit.detectors.nrm001_norm_far_below_bandwidth import Config, detect
from tracekit.detectors.pricing import price
from tracekit.trace.read import read

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces"
SHAPE = [128, 128, 32, 32]
NCHW, NHWC = [131072, 1024, 32, 1], [131072, 1, 4096, 128]
ONCE = 128 * 128 * 32 * 32 * 2 / 4260
"""ns to read or write the activation once at an H200's copy bandwidth"""
BACKWARD = "aten::cudnn_batch_norm_backward"


def run(b: TraceBuilder) -> tuple[Analysis, Detection]:
    analysis = Analysis(b.trace())
    return analysis, detect(analysis, Config())


def norm(
    b: TraceBuilder,
    *,
    op: str = BACKWARD,
    gpu: float = 300,
    shape: list[int] = SHAPE,
    strides: list[int] = NCHW,
    shapes: bool = True,
) -> None:
    details = {"shapes": [shape], "dtypes": ["c10::BFloat16"], "strides": [strides]}
    b.call(op, kernel=MUL, gpu=gpu, **(details if shapes else {}))


def steps(b: TraceBuilder, count: int = 3, **how: object) -> TraceBuilder:
    for _ in range(3):
        with b.step():
            for _ in range(count):
                norm(b, **how)  # type: ignore[arg-type]
    return b


def test_batch_norm_backward_in_nchw_is_found() -> None:
    analysis, found = run(steps(TraceBuilder()))
    (draft,) = found.drafts
    assert "in NCHW" in draft.title and "channels_last" in draft.action
    assert draft.evidence.counts["ops a step"] == 3
    # Activation and gradient twice, the result once; 60 % of copy bandwidth, and 4 us.
    assert draft.edits.resize_ns[0] == pytest.approx(5 * ONCE / 0.6 + 4_000, rel=0.01)
    (priced,) = price(analysis, found).findings
    assert priced.saving.ms_per_step == pytest.approx(3 * (0.3 - 0.0696), rel=0.02)
    assert priced.saving.low < priced.saving.ms_per_step < priced.saving.high


def test_it_prices_the_same_kernels_as_the_layout_finding() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.inside("aten::cudnn_convolution", shapes=[SHAPE, SHAPE]):
                b.call("aten::empty", kernel=TO_NHWC, gpu=50)
            norm(b)
    analysis, found = run(b)
    (draft,) = found.drafts
    assert "LAY001" in draft.action
    (layout,) = lay.detect(analysis, lay.Config()).drafts
    both = dict(zip(layout.edits.resize_gpu.tolist(), layout.edits.resize_ns.tolist(), strict=True))
    for row, ns in zip(
        draft.edits.resize_gpu.tolist(), draft.edits.resize_ns.tolist(), strict=True
    ):
        assert both[row] == ns


@pytest.mark.parametrize("op", ["aten::native_group_norm_backward", "aten::native_layer_norm"])
def test_other_norms_are_not_told_to_change_the_layout(op: str) -> None:
    (draft,) = run(steps(TraceBuilder(), op=op))[1].drafts
    assert "channels_last" not in draft.action
    assert "torch.compile" in draft.fixes[0].code


def test_a_channels_last_batch_norm_is_not_told_to_change_the_layout() -> None:
    (draft,) = run(steps(TraceBuilder(), strides=NHWC))[1].drafts
    assert "channels_last" not in draft.action


def test_a_norm_near_bandwidth_is_fine() -> None:
    assert run(steps(TraceBuilder(), gpu=5 * ONCE / 1_000 / 0.4))[1] == Detection()


def test_a_small_norm_is_bound_by_latency() -> None:
    """0.26 MB in 9 us is 3 % of bandwidth, and no fault: no kernel is much shorter."""
    small = [8, 16, 32, 32]
    assert (
        run(steps(TraceBuilder(), 200, shape=small, strides=[16384, 1024, 32, 1], gpu=9))[1]
        == Detection()
    )


def test_a_cheap_norm_is_silent() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            norm(b)
            b.call("aten::mm", kernel=MUL, gpu=100_000)
    assert run(b)[1] == Detection()


def test_without_shapes_it_says_so() -> None:
    found = run(steps(TraceBuilder(), shapes=False))[1]
    assert not found.drafts
    assert "shapes were not recorded" in found.undetermined[0].why


def test_on_an_unknown_device_it_says_so() -> None:
    found = run(steps(TraceBuilder("Some GPU")))[1]
    assert not found.drafts
    assert "bandwidth is not known" in found.undetermined[0].why


def test_a_name_that_merely_holds_norm_is_no_norm() -> None:
    for op in ("aten::linalg_vector_norm", "aten::normal_", "aten::renorm"):
        assert run(steps(TraceBuilder(), op=op))[1] == Detection()


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::batch_norm", 0, 5)
    assert "no GPU events" in run(b)[1].undetermined[0].why


def real(name: str) -> Detection:
    path = REAL / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the real trace is not here")
    return detect(Analysis(read(path)), Config())


def test_a_resnet_on_mi300_reaches_five_percent() -> None:
    (draft,) = real("public/mi300_resnet_orphans").drafts
    assert draft.evidence.counts["% of copy bandwidth"] == pytest.approx(5, abs=1)
    assert np.all(draft.edits.resize_ns > 0)


@pytest.mark.parametrize(
    "name",
    [
        "h200/ddpm_eager",  # GroupNorm at 17 to 55 % of bandwidth, the small ones bound by latency
        "h200/ddp_2rank_healthy/rank-0",
        "public/h100_vit",
        "public/mi300_vit",
        "public/normalization_layers",
    ],
)
def test_recorded_healthy_norms_are_silent(name: str) -> None:
    assert real(name) == Detection()
