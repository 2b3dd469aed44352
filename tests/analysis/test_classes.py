"""Kernel classes: names of real kernels, the launching op, and totals of real traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import ADD, CONV, COPY, GEMM, MUL, TO_NCHW, TO_NHWC, TraceBuilder
from tracekit.analysis.classes import CLASS_NAMES, KernelClasses, classify
from tracekit.analysis.kernel_rules import rule_of
from tracekit.analysis.links import link
from tracekit.trace.read import read

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces"

NAMES = {
    CONV: "convolution",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x256": "convolution",
    "naive_conv_nonpacked_fwd_nchw_half": "convolution",
    "MIOpenSp3AsmConv_v30_3_1_gfx94x_fp16": "convolution",
    "SubTensorOpWithCastTensor1d": "convolution",
    GEMM: "gemm",
    "ampere_sgemm_128x64_nn": "gemm",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64": "gemm",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64>": "gemm",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu": "gemm",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128> >": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26": "attention",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>": "norm",
    "MIOpenBatchNormFwdTrainSpatial": "norm",
    "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>": "norm",
    MUL: "elementwise",
    "triton_poi_fused__to_copy_add_silu_12": "elementwise",
    "triton_red_fused_native_group_norm_7": "reduction",
    "triton_per_fused_sum_3": "reduction",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >": "reduction",
    COPY: "copy",
    TO_NHWC: "layout",
    TO_NCHW: "layout",
    "batched_transpose_16x32_half": "layout",
    "transpose_NCHW2CNHW_V2_2D_WG_off64": "layout",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)": "communication",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>": "communication",
    "multimem_all_reduce_kernel": "communication",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<>": "optimizer",
    "triton__0d1d2d3d": "triton",
    "_topk_forward": "triton",
    "spin_kernel(long)": "other",
    # Names that only sound like something else.
    "triton_poi_fused_transpose_view_4": "elementwise",
    "triton_poi_fused_permute_convolution_2": "elementwise",
    "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>": "other",
    "void permute_pooled_embs_kernel<float>(float const*)": "other",
    "transpose_kernel": "other",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_the_name_gives_the_class(name: str, expected: str) -> None:
    assert rule_of(name).kernel_class == expected


def classes(builder: TraceBuilder) -> KernelClasses:
    trace = builder.trace()
    return classify(trace, link(trace))


def test_every_row_has_a_class_and_a_rule() -> None:
    b = TraceBuilder()
    b.call("aten::mul", kernel=MUL)
    b.call("aten::mm", kernel=GEMM)
    b.kernel("never heard of", 500, 1)
    b.kernel("Memcpy HtoD (Pinned -> Device)", 600, 1, cat="gpu_memcpy")
    found = classes(b)
    assert [found.of(i) for i in range(4)] == ["elementwise", "gemm", "other", "copy"]
    assert list(found.rule) == ["aten-elementwise", "nvjet", "no-rule", "memcpy"]
    assert found.names == CLASS_NAMES
    assert found.rows("gemm", "copy").tolist() == [False, True, False, True]
    with pytest.raises(ValueError, match="not in tuple"):
        found.rows("nonsense")


def test_a_generic_kernel_has_the_class_of_its_op() -> None:
    b = TraceBuilder()
    b.call(("aten::batch_norm", "aten::native_batch_norm"), kernel=MUL)
    b.call(("aten::conv2d", "aten::cudnn_convolution"), kernel=GEMM)
    b.call("aten::add_", kernel=ADD)
    start = b.clock[100]
    b.call("aten::add_", kernel=ADD)
    b.annotation("Optimizer.step#SGD.step", start, 10)
    found = classes(b)
    assert [found.of(i) for i in range(4)] == ["norm", "convolution", "elementwise", "optimizer"]


def test_inductor_kernels_keep_their_origin() -> None:
    b = TraceBuilder()
    b.call("triton_poi_fused_add_0", kernel="triton_poi_fused_add_0")
    b.call("my_kernel", kernel="my_kernel", kernel_file="/tmp/x.py")
    b.call("aten::mul", kernel=MUL)
    found = classes(b)
    assert found.triton.tolist() == [True, True, False]
    assert [found.of(i) for i in range(3)] == ["elementwise", "triton", "elementwise"]


NCHW, NHWC = [131072, 1024, 32, 1], [131072, 1, 4096, 128]
SHAPE = [128, 128, 32, 32]


@pytest.mark.parametrize(
    ("into", "source", "expected"),
    [
        (NHWC, NCHW, "layout"),
        (NCHW, NHWC, "layout"),
        (NCHW, NCHW, "copy"),  # a cast
        (NCHW, [262144, 1024, 32, 1], "copy"),  # a slice made dense, of one format
        (None, None, "layout"),  # not recorded: the chain inside convolution_backward says it
    ],
)
def test_a_copy_inside_convolution_backward(into: object, source: object, expected: str) -> None:
    b = TraceBuilder()
    details = {}
    if into is not None:
        details = {"shapes": [SHAPE, SHAPE], "strides": [into, source]}
    with b.inside("aten::convolution_backward"):
        b.call(("aten::contiguous", "aten::clone", "aten::copy_"), kernel=COPY, **details)
    assert classes(b).of(0) == expected


def test_a_copy_elsewhere_without_strides_stays_a_copy() -> None:
    b = TraceBuilder()
    b.call(("aten::contiguous", "aten::clone", "aten::copy_"), kernel=COPY)
    assert classes(b).of(0) == "copy"


def test_a_trace_without_gpu_work() -> None:
    b = TraceBuilder()
    b.op("aten::mul", 0, 1)
    assert len(classes(b).code) == 0


REAL_SUMS = [
    # file, class, ms of the whole file, tolerance
    ("h200/ddpm_rung0_compile.json.gz", "layout", 3 * 5.44, 0.1),
    ("h200/ddpm_rung3_channels_last_fused_adamw.json.gz", "layout", 3 * 3.35, 0.1),
    ("public/a100_nccl_layout.json.gz", "layout", 15.1, 0.1),
]


@pytest.mark.parametrize(("file", "name", "ms", "tolerance"), REAL_SUMS)
def test_sums_of_real_traces(file: str, name: str, ms: float, tolerance: float) -> None:
    if not (REAL / file).exists():
        pytest.skip(f"{file} is not here")
    trace = read(REAL / file)
    found = classify(trace, link(trace))
    assert trace.table("gpu").ints("dur")[found.rows(name)].sum() / 1e6 == pytest.approx(
        ms, abs=tolerance
    )


def test_shares_of_a_graphed_step() -> None:
    path = REAL / "h200/ddpm32m_rung5.json.gz"
    if not path.exists():
        pytest.skip("the real trace is not here")
    trace = read(path)
    found, duration = classify(trace, link(trace)), trace.table("gpu").ints("dur")
    total = duration.sum()
    # Of 19.8 ms: convolutions 6.3, pointwise 5.9, reductions 3.0, copies 2.7, GEMM 0.9, ...
    for name, ms in [
        ("convolution", 6.3),
        ("elementwise", 5.9),
        ("reduction", 3.0),
        ("copy", 2.8),
        ("gemm", 0.9),
        ("optimizer", 0.65),
        ("attention", 0.4),
    ]:
        share = duration[found.rows(name)].sum() / total
        assert share == pytest.approx(ms / 19.8, abs=0.02), name
    assert np.isclose(duration[found.triton].sum() / total, 8.9 / 19.8, atol=0.03)
