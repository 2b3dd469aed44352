"""PRE001: float32 products on CUDA cores where TF32 is there and off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import GEMM, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.analysis.matmul import Work, allows_tf32, work_of
from tracekit.detectors import pre001_fp32_matmul_without_tf32 as pre001
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.pricing import price

SGEMM = "ampere_sgemm_128x128_tn"
SIMT = (
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(cutlass_80_simt_sgemm::P)"
)
XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4"
TF32 = (
    "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8"
)
S1688 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)"
CONV32 = (
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x128x8_stage3_"
    "warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn"
)
CONV_TF32 = CONV32.replace("f32f32_f32f32_f32", "tf32f32_tf32f32_f32").replace(
    "ffma", "tensor16x8x8"
)
SQUARE: dict[str, Any] = {"shapes": [[2048, 4096], [4096, 4096]], "dtypes": ["float", "float"]}
# 2 * 2048 * 4096 * 4096 operations take 1,373 us at 50 TFLOP/s
FLOPS = 2 * 2048 * 4096 * 4096
US = FLOPS / 50e6


def run(b: TraceBuilder) -> tuple[tuple[Finding, ...], Detection]:
    analysis = Analysis(b.trace())
    detection = pre001.detect(analysis, pre001.Config())
    return price(analysis, detection).findings, detection


def program(
    *kernels: str,
    device: str | None = "NVIDIA H200",
    capability: tuple[int, int] = (9, 0),
    op: str = "aten::mm",
    us: float = US,
    **details: Any,
) -> TraceBuilder:
    """Three steps of six products each, the kernels in turn."""
    b = TraceBuilder(device, capability=capability)
    for _ in range(3):
        with b.step():
            for k in range(6):
                b.call(op, kernel=kernels[k % len(kernels)], gpu=us, **details)
    return b


@pytest.mark.parametrize(
    "kernel", [SGEMM, SIMT, XMMA, "magma_sgemmEx_kernel", "volta_sgemm_64x64_nn"]
)
def test_float32_products_get_tf32(kernel: str) -> None:
    (found,), _ = run(program(kernel, **SQUARE))
    assert found.code == "PRE001"
    # 68.7 GFLOP at 0.65 * 494.5 TFLOP/s are 214 us; six a step.
    assert found.saving.step_ms == pytest.approx(6 * US / 1e3, rel=0.01)
    assert found.saving.then_ms == pytest.approx(6 * FLOPS / (0.65 * 494.5e12) * 1e3, abs=0.03)
    assert found.severity == "high"
    assert "set_float32_matmul_precision" in found.fixes[0].code
    assert "10 bits" in found.fixes[0].numerics
    assert found.confidence == "high"


def test_without_shapes_the_kernels_name_is_enough() -> None:
    (found,), _ = run(program(SGEMM, us=1_000))
    # 0.8 * 67 TFLOP/s now, 0.65 * 494.5 then: 167 us.
    assert found.saving.then_ms == pytest.approx(6 * 0.1668, abs=0.02)
    assert found.confidence == "medium"


def test_memory_bounds_what_tf32_can_bring() -> None:
    """A thin product: 2 * 65,536 * 64 * 64 operations, but 33.6 MB: 7.9 us of 20."""
    thin: dict[str, Any] = {"shapes": [[65536, 64], [64, 64]], "dtypes": ["float", "float"]}
    _, detection = run(program(SGEMM, us=20, **thin))
    (draft,) = detection.drafts
    assert draft.edits.resize_ns[0] == pytest.approx(
        (2 * 65536 * 64 + 64 * 64) * 4 / 4260, rel=0.01
    )


BACKWARD: dict[str, Any] = {
    "op": "aten::convolution_backward",
    "shapes": [[64, 128, 32, 32], [64, 128, 32, 32], [128, 128, 3, 3], [0], *[[]] * 7],
    "dtypes": ["float", "float", "float", *["Scalar"] * 8],
}
# At 0.37 * 494.5 TFLOP/s one product of these takes 106 us.
CONV_US = 2 * 64 * 128 * 32 * 32 * 128 * 9 / (0.37 * 494.5e6)
LAST = [[131072, 1, 4096, 128], [131072, 1, 4096, 128], [1152, 1, 384, 128], *[[]] * 8]
FIRST = [[131072, 1024, 32, 1], [131072, 1024, 32, 1], [1152, 9, 3, 1], *[[]] * 8]
TO_NCHW = "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float, true, false>(int)"
FFT = "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int)"


def test_convolutions_have_their_own_switch() -> None:
    b = program(CONV32.replace("fprop", "dgrad"), us=430, **BACKWARD)
    (found,), _ = run(b)
    assert "cudnn.allow_tf32" in found.fixes[0].code
    # Nothing says which gradients were asked for: one product for the input, one for the weight.
    assert found.saving.then_ms == pytest.approx(6 * 2 * CONV_US / 1e3, abs=0.03)


def backward(strides: list[Any] | None, mask: str) -> TraceBuilder:
    """Three steps of three calls of the backward op, each with five kernels: conversions, an FFT,
    a product (900 us in all)."""
    b = TraceBuilder()
    concrete = ["", "", "", "[128]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]
    details = {k: v for k, v in BACKWARD.items() if k != "op"}
    for _ in range(3):
        with b.step():
            for _ in range(3):
                with b.inside(BACKWARD["op"], strides=strides, **details,
                              **{"Concrete Inputs": concrete}):  # fmt: skip
                    for name, us in (
                        (TO_NCHW, 20), (FFT, 60), (XMMA, 700), (FFT, 60), (TO_NCHW, 60),
                    ):  # fmt: skip
                        start = b.clock[100]
                        at = max(start + 9, b.free.get(7, 0.0))
                        b.kernel(name, at, us, b.launch(start))
                        b.free[7] = at + us
                        b.clock[100] = start + 10
    return b


def test_a_convolution_changes_its_algorithm_as_a_whole() -> None:
    """FFT and conversions are there only because the products are in float32 in NCHW."""
    (found,), detection = run(backward(LAST, "[True, True, True]"))
    assert found.saving.step_ms == pytest.approx(3 * 0.9, rel=0.02)
    assert found.saving.then_ms == pytest.approx(3 * 2 * CONV_US / 1e3, rel=0.03)
    (draft,) = detection.drafts
    assert len(draft.edits.remove_gpu) == 9 * 4
    assert len(draft.edits.resize_gpu) == 9


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    (found,), _ = run(backward(LAST, "[False, True, True]"))
    assert found.saving.then_ms == pytest.approx(3 * CONV_US / 1e3, rel=0.05)


def test_tensors_in_nchw_still_need_conversions() -> None:
    """TF32 kernels work in NHWC: the conversions of an NCHW program stay, here 80 us a call."""
    (found,), _ = run(backward(FIRST, "[True, True, True]"))
    assert found.saving.then_ms == pytest.approx(3 * (2 * CONV_US + 80) / 1e3, rel=0.03)
    (found,), _ = run(backward(None, "[True, True, True]"))  # not recorded: as many as now
    assert found.saving.then_ms == pytest.approx(3 * (2 * CONV_US + 80) / 1e3, rel=0.03)


@pytest.mark.parametrize(
    "kernel", [TF32, S1688, GEMM, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn"]
)
def test_tensor_core_kernels_are_what_is_wanted(kernel: str) -> None:
    """ "tf32f32_tf32f32_f32" holds "f32f32_f32" too: a naive search finds it."""
    assert run(program(kernel, **SQUARE))[1] == Detection()


def test_where_tf32_is_on_the_library_has_its_reasons() -> None:
    """cuBLAS takes float32 kernels for small or misaligned shapes although TF32 is allowed."""
    _, detection = run(program(TF32, SGEMM, **SQUARE))
    assert not detection.drafts
    assert "although TF32 is on" in detection.notes[0]


def test_a_convolution_that_was_allowed_tf32() -> None:
    """The op's own argument says so; cuDNN chose a float32 kernel."""
    concrete = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False"]
    sizes: dict[str, Any] = {
        "shapes": [[64, 128, 32, 32], [128, 128, 3, 3], [], [], [], [], [], []],
        "dtypes": ["float", "float", *["ScalarList"] * 3, *["Scalar"] * 3],
    }
    args: dict[str, Any] = {"op": "aten::cudnn_convolution", "us": 430, **sizes}
    off = program(CONV32, **args, **{"Concrete Inputs": [*concrete, "False"]})
    assert len(run(off)[1].drafts) == 1
    on = program(CONV32, **args, **{"Concrete Inputs": [*concrete, "True"]})
    _, detection = run(on)
    assert not detection.drafts
    assert "although TF32 is on" in detection.notes[0]


def test_tf32_of_convolutions_says_nothing_about_products() -> None:
    """PyTorch's defaults: convolutions in TF32, matrix products in float32."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.call("aten::cudnn_convolution", kernel=CONV_TF32, gpu=500)
            b.call("aten::mm", kernel=SGEMM, gpu=US, **SQUARE)
    (found,), _ = run(b)
    assert found.title == "float32 matrix products run without the tensor cores"


def test_half_precision_and_double_inputs_are_no_float32() -> None:
    for dtype in ("c10::Half", "double"):
        b = program("void implicit_convolve_sgemm<__half, 128>(int)" if "H" in dtype else SGEMM,
                    shapes=SQUARE["shapes"], dtypes=[dtype, dtype])  # fmt: skip
        assert run(b)[1] == Detection()


def test_before_sm80_there_is_no_tf32() -> None:
    assert (
        run(program("volta_sgemm_128x64_nn", device="Tesla V100", capability=(7, 0)))[1]
        == Detection()
    )


def test_a_geforce_gains_nothing() -> None:
    """TF32 and float32 have the same peak: a naive version promises a factor."""
    for device, capability in (
        ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA GeForce RTX 3090", (8, 6)),
    ):
        assert run(program(SGEMM, device=device, capability=capability, **SQUARE))[1] == Detection()


def test_products_with_a_vector_are_bound_by_memory() -> None:
    assert (
        run(program("void gemv2T_kernel_val<int, int, float, float>(int)", us=500))[1]
        == Detection()
    )


def test_kernels_that_do_not_fill_the_gpu_are_bound_by_latency() -> None:
    """A small MLP: 32 blocks for 132 multiprocessors. A naive version promises five sixths."""

    def small(grid: list[int]) -> TraceBuilder:
        b = TraceBuilder()
        b.header["deviceProperties"][0]["numSms"] = 132
        for _ in range(3):
            with b.step():
                for _k in range(6):
                    at = b.clock.setdefault(100, 0.0)
                    b.kernel(SGEMM, at + 9, 90, b.launch(at), grid=grid, block=[256, 1, 1])
                    b.clock[100] = at + 95
        return b

    assert run(small([4, 2, 4]))[1] == Detection()
    assert len(run(small([8, 16, 1]))[1].drafts) == 1  # 128 blocks nearly fill it


def test_unknown_devices_and_other_vendors_are_undetermined() -> None:
    _, detection = run(program(SGEMM, device="NVIDIA RTX A9999", capability=(8, 6)))
    assert (
        "TF32 throughput of NVIDIA RTX A9999 is not in the table" in detection.undetermined[0].why
    )
    _, detection = run(program(SGEMM, device=None))
    assert "does not say which GPU" in detection.undetermined[0].why
    b = TraceBuilder("AMD Instinct MI300X", capability=(9, 4))
    for _ in range(3):
        with b.step():
            c = b.launch(b.clock[100], name="hipModuleLaunchKernel")
            b.kernel("Cijk_Alik_Bljk_SB_MT64x64x16_MI16x16x1", b.clock[100] + 9, 500, c)
            b.clock[100] += 600
    assert "this vendor" in run(b)[1].undetermined[0].why


def test_a_cheap_product_is_silent() -> None:
    b = program(GEMM, us=5_000)
    with b.step():
        b.call("aten::mm", kernel=SGEMM, gpu=20, **SQUARE)
        b.call("aten::mm", kernel=GEMM, gpu=20_000)
    assert run(b)[1] == Detection()


def test_work_by_hand() -> None:
    assert work_of("aten::mm", "[[2, 3], [3, 5]]", '["float", "float"]') == Work(
        60, 4 * (6 + 15 + 10)
    )
    bmm = work_of("aten::bmm", "[[4, 2, 3], [4, 3, 5]]", '["float", "float"]')
    assert bmm == Work(240, 16 * (6 + 15 + 10))
    addmm = work_of(
        "aten::addmm",
        "[[5], [2, 3], [3, 5], [], []]",
        '["float","float","float","Scalar","Scalar"]',
    )
    assert addmm is not None
    assert addmm.flops == 60
    # 3x3, stride 2, padding 1: 8x8 -> 4x4; 2 * (1 * 6 * 4 * 4) * (2 * 9)
    conv = work_of(
        "aten::cudnn_convolution",
        "[[1, 2, 8, 8], [6, 2, 3, 3], [], [], []]",
        '["float", "float", "ScalarList", "ScalarList", "ScalarList"]',
        '["", "", "[1, 1]", "[2, 2]", "[1, 1]"]',
    )
    assert conv is not None
    assert conv.flops == 2 * 96 * 18
    assert work_of("aten::mm", "[[2, 3], [4, 5]]", '["float", "float"]') is None
    assert work_of("aten::add", "[[2, 3], [2, 3]]", '["float", "float"]') is None
    assert allows_tf32("aten::cudnn_convolution", '["", "True"]') is True
    assert allows_tf32("aten::cudnn_convolution", "") is None
