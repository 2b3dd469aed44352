"""Which class a kernel's name says it has: the rule table of `tracekit.analysis.classes`.

Rules are tried in order; the first whose text occurs in the lower-cased name decides. Texts are
plain substrings, or anchored with `^` (the name, without a leading `void`, starts so). A rule
marked generic names a kernel that many ops share: what the launching op is may refine it.

Order matters: communication, then generated code, then the specific libraries, then ATen's
generic kernels. A Triton or fbgemm kernel that is merely named transpose or permute is no layout
kernel: the layout rules are the names of the libraries' own conversion kernels, nothing looser.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One line of the table."""

    name: str
    kernel_class: str
    texts: tuple[str, ...]
    generic: bool = False
    triton: bool = False


def _rule(
    name: str, kernel_class: str, texts: str, *, generic: bool = False, triton: bool = False
) -> Rule:
    return Rule(name, kernel_class, tuple(texts.split()), generic, triton)


RULES: tuple[Rule, ...] = (
    # Communication
    _rule("nccl", "communication", "nccldevkernel ncclkernel ^nccl rccldev ^rccl"),
    _rule("msccl", "communication", "mscclkernel mscclpp"),
    _rule(
        "custom-collective",
        "communication",
        "multimem_all_reduce multimem_one_shot cross_device_reduce one_shot_all_reduce "
        "two_shot_all_reduce custom_all_reduce allreduce_kernel_1stage "
        "reduce_scatter_cross_device allreduce_fusion_kernel quickreduce userbuffers_ nvshmem",
    ),
    # Inductor: the prefix says what the kernel does, the rest what it was fused from
    _rule("inductor-pointwise", "elementwise", "^triton_poi_", triton=True),
    _rule("inductor-reduction", "reduction", "^triton_red_ ^triton_per_", triton=True),
    _rule("inductor-split-scan", "reduction", "^triton_spl_", triton=True),
    _rule("inductor-foreach", "elementwise", "^triton_for_", triton=True),
    _rule("inductor-template-attention", "attention", "^triton_tem_fused_flex_", triton=True),
    _rule("inductor-template-convolution", "convolution", "^triton_tem_fused_conv", triton=True),
    _rule("inductor-template", "gemm", "^triton_tem_ ^triton_mm ^triton_bmm", triton=True),
    _rule("inductor-unnamed", "triton", "^triton__", triton=True),
    # Layout conversions of the convolution libraries
    _rule("cudnn-layout", "layout", "nchwtonhwckernel nhwctonchwkernel"),
    _rule(
        "cudnn-tensor-transform",
        "layout",
        "^tensortransformgeneric cudnn::ops::tensortransform cudnn::ops::transformtensor",
    ),
    _rule("miopen-batched-transpose", "layout", "^batched_transpose_"),
    _rule(
        "miopen-transpose",
        "layout",
        "^transpose_nchw2cnhw ^transpose_cnhw2nchw ^transpose_nchw2nhwc ^transpose_nhwc2nchw "
        "^transpose_packed_mn2nm",
    ),
    # Recommender kernels: sparse data moved and looked up, whatever words their names hold
    _rule(
        "embedding-table",
        "other",
        "split_embedding embedding_backward embedding_bag permute_pooled_embs permute_2d "
        "permute_1d permute_indices bounds_check_indices linearize_index block_bucketize",
    ),
    # Attention
    _rule(
        "flash-attention",
        "attention",
        "flash_fwd flash_bwd pytorch_flash flash_attn flashattn flash:: flashinfer:: sdpa_sm "
        "_sdpa_ mha_fwd mha_bwd fmha aiter::fmha",
    ),
    _rule("cudnn-attention-helper", "attention", "compute_dot_do_o convert_dq_to_16bits"),
    _rule(
        "memory-efficient-attention",
        "attention",
        "attentionkernel attention_kernel efficient_attention fused_attention",
    ),
    _rule(
        "paged-attention",
        "attention",
        "paged_attention unified_attention mla_decode batchprefill batchdecode batch_prefill "
        "batch_decode mla_a8w8 mla_pfl mla_dec",
    ),
    _rule(
        "triton-attention",
        "attention",
        "^attn_fwd ^attn_bwd ^_attn_fwd ^_attn_bwd ^bwd_kernel_dk_dv ^bwd_kernel_dq "
        "^_fwd_grouped_kernel_stage ^_fwd_kernel_stage2 ^bwd_preprocess ^_bwd_preprocess",
        triton=True,
    ),
    # Normalisation
    _rule("cudnn-batch-norm", "norm", "cudnn::bn_ bnfwinf cudnn::batchnorm"),
    _rule("miopen-batch-norm", "norm", "miopenbatchnorm miopenlayernorm miopengroupnorm"),
    _rule(
        "native-norm",
        "norm",
        "layer_norm layernorm batch_norm batchnorm group_norm groupnorm rms_norm rmsnorm "
        "instance_norm rowwisemomentscudakernel gammabetabackward cucomputepartgradgammabeta "
        "cucomputegradgammabeta cucomputegradinput computeinternalgradients "
        "computefusedparams computebackwardfusedparams generallayernorm",
    ),
    # Matrix products written in Triton by libraries, before the general names below
    _rule("triton-matmul", "gemm", "^_matmul_ogs ^matmul_kernel ^_matmul_", triton=True),
    _rule("triton-matmul-helper", "other", "^_finalize_matmul ^_combined_routing", triton=True),
    # Convolution
    _rule(
        "cudnn-xmma-convolution",
        "convolution",
        "_fprop_ _dgrad_ _wgrad_ fprop_optimized dgrad_optimized wgrad_optimized "
        "fprop_analytic wgrad_indexed",
    ),
    _rule(
        "cudnn-convolution",
        "convolution",
        "implicit_convolve implicitgemmconvolution scudnn_ hcudnn_ _cudnn_conv cudnn::cnn:: "
        "convolve_ winograd depthwise conv2d_grouped dgrad_engine wgrad_alg dgrad2d "
        "conv_depthwise cudnn::winograd",
    ),
    _rule(
        "cudnn-convolution-helper",
        "convolution",
        "init_device_workspace_kernel computeoffsetskernel addpaddingkernel "
        "strippaddingkernel reduce_wgrad reorderkernel filteractivation",
    ),
    _rule("fft-convolution", "convolution", "^fft2d_r2c ^fft2d_c2r ^fft1d_", generic=True),
    _rule("miopen-igemm", "convolution", "^igemm_fwd_ ^igemm_bwd_ ^igemm_wrw_"),
    _rule(
        "composable-kernel-convolution",
        "convolution",
        "kernel_grouped_conv grouped_conv_fwd grouped_conv_bwd batched_gemm_xdlops_bwd "
        "conv_fwd_xdl grouped_convolution",
    ),
    _rule(
        "miopen-convolution",
        "convolution",
        "miopensp3asm miopengcnasm miopenconv naive_conv im2col im2d2col col2im "
        "gridwise_convolution subtensorop",
    ),
    # Matrix products
    _rule("tensile", "gemm", "^cijk_ ^custom_cijk"),
    _rule(
        "composable-kernel-gemm",
        "gemm",
        "kernel_gemm gridwisegemm ck_tile::gemm batched_gemm ck::tensor_operation",
    ),
    _rule("nvjet", "gemm", "^nvjet"),
    _rule("cutlass", "gemm", "cutlass"),
    _rule("cublas-splitk", "gemm", "splitkreduce cublaslt:: ^scal_kernel"),
    _rule("cublas", "gemm", "gemm gemv cublas dot_kernel wmma"),
    # Optimizers
    _rule(
        "fused-optimizer",
        "optimizer",
        "fusedoptimizer fusedadam fusedsgd fusedadagrad adamfunctor adamwfunctor lambfunctor "
        "lambstage sgdfunctor cpuadam foreachadam",
    ),
    _rule("multi-tensor-apply", "optimizer", "multi_tensor_apply lpnorm_cleanup"),
    # Copies
    _rule("key-value-cache-copy", "copy", "reshape_and_cache store_kvcache"),
    _rule(
        "aten-copy",
        "copy",
        "direct_copy_kernel 16_copy_kernel float8_copy_kernel copy_kernel_cuda",
        generic=True,
    ),
    _rule("concatenation", "copy", "catarraybatchedcopy", generic=True),
    _rule("fill", "copy", "fillfunctor ^memset fill_kernel", generic=True),
    # Reductions
    _rule("softmax", "reduction", "softmax", generic=True),
    _rule("aten-reduction", "reduction", "reduce_kernel reduceop", generic=True),
    _rule(
        "cub-reduction",
        "reduction",
        "devicereduce devicesegmentedreduce reduce_by_key nll_loss",
        generic=True,
    ),
    # Elementwise
    _rule(
        "aten-elementwise",
        "elementwise",
        "elementwise_kernel fused_dropout masked_scale distribution_nullary act_and_mul "
        "silu_and_mul gelu_and_mul rotary_embedding glu_kernel",
        generic=True,
    ),
    _rule("sort-or-scan", "other", "radixsort devicescan cub:: rocprim hipcub"),
    _rule("gather-or-scatter", "other", "gather scatter index embedding", generic=True),
    _rule("pooling-or-resampling", "other", "pool upsample", generic=True),
    # A bare Python identifier that starts with an underscore can only come from Triton
    _rule("python-style-name", "triton", "^_", generic=True, triton=True),
    _rule("named-triton", "triton", "_triton ^triton_", generic=True, triton=True),
)

UNKNOWN = Rule("no-rule", "other", (), generic=True)


def rule_of(name: str) -> Rule:
    """The first rule whose text occurs in a kernel's name; UNKNOWN if none does."""
    # "fbgemm" is a library of recommender kernels; its name must not read as a matrix product.
    text = name[:2000].lower().removeprefix("void ").replace("fbgemm", "fbg")
    for candidate in RULES:
        for wanted in candidate.texts:
            if text.startswith(wanted[1:]) if wanted[0] == "^" else wanted in text:
                if candidate.name == "python-style-name" and not _python_identifier(text):
                    continue
                return candidate
    return UNKNOWN


def _python_identifier(text: str) -> bool:
    return text.isidentifier() and not text.startswith("_z")
