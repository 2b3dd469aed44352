"""PRE001 fp32-matmul-without-tf32: float32 matrix products beside the tensor cores.

## What it detects
float32 GEMMs and convolutions that run on the CUDA cores of an NVIDIA GPU of compute capability 8.0
or later, where TF32 would run them on the tensor cores.

## Why it matters
TF32 keeps float32's range and rounds the factors to 10 bits of mantissa; sums stay in float32. On
an H200 it has 7 times the throughput of float32 by the data sheet, on an A100 8 times. PyTorch
allows it for convolutions by default, and for matrix products only when asked.

## How it is measured
By kernel name: `sgemm`, `scudnn`, `simt`, `f32f32_f32f32`; never `tf32`, `tensorop` or a half
type; and, where recorded, by the op's element type. If the trace shows TF32 kernels of the same
family (matrix product, convolution), or a convolution that was allowed TF32, it is on already and
the library chose otherwise: no finding. The price is the step replayed with each product as long
as its operations take at `gemm_expected_share` or `convolution_expected_share` of the TF32 peak,
or its bytes at memory bandwidth, whichever is longer, and never less than the ratio of the peaks
allows (range: the `least` and `most` shares). A convolution op is priced as a whole: in float32
cuDNN may compute it by FFT, Winograd or NCHW kernels, with layout conversions around them; in TF32
it is one implicit GEMM a product, and conversions remain only where its tensors are not
channels-last. Where shapes were not recorded, a kernel is taken to run at `fp32_share` of its own
peak now.

## Example
    12 sgemm kernels a step, 16.4 ms; in TF32 2.8 ms

## Fix
`torch.set_float32_matmul_precision("high")`; `torch.backends.cudnn.allow_tf32 = True`.

## False positives
GPUs whose TF32 peak is no higher than their float32 peak (GeForce 30 and 40) gain nothing and
give no finding. Products with a vector (gemv) are bound by memory. Kernels of too few blocks to
fill the GPU (a small MLP) are bound by latency, and left out. Programs that need the last
bits of float32 (solvers, some physics) have reasons to leave TF32 off.

## References
https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.device_peaks import Peaks
from tracekit.analysis.layout import device_peaks, named
from tracekit.analysis.matmul import allows_tf32
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of
from tracekit.detectors.tf32_time import Faster, faster
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "PRE001"
NAME = "fp32-matmul-without-tf32"

# "tf32f32_tf32f32_f32" holds "f32f32_": the two factors' types must both be plain f32.
_PLAIN = re.compile(r"sgemm|scudnn|simt|(?<![tb])f32f32_f32f32_f32", re.IGNORECASE)
_TENSOR_CORE = re.compile(r"tf32|tensorop|s1688|s16816|hmma|wmma|bf16|fp16|f16|half", re.IGNORECASE)
_TF32 = re.compile(r"tf32|tensorop_s1688(gemm|fprop|dgrad|wgrad)", re.IGNORECASE)
_ROCM_FP32 = re.compile(r"^Cijk_\w+?_SB_")


@dataclass(frozen=True)
class Config:
    """Thresholds of PRE001."""

    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, GPU time that TF32 would save",
            "source": "below the 0.5 % that a step repeats to on an H200",
        },
    )
    min_fill_percent: float = field(
        default=50.0,
        metadata={
            "unit": "% of the multiprocessors that a kernel's blocks could occupy",
            "source": "judgement: a kernel of fewer blocks takes as long as one block does, which "
            "is latency, not throughput (H200: 3 to 9 us for products of 2 MFLOP)",
        },
    )
    gemm_expected_share: float = field(
        default=0.65,
        metadata={
            "unit": "share of the dense TF32 peak",
            "source": "H200, 4096 x 4096 x 2048 in TF32: five products take 1.07 ms, 320 TFLOP/s "
            "(benchmarks/pathologies, fp32_gemm.healthy)",
        },
    )
    gemm_least_share: float = field(
        default=0.5,
        metadata={
            "unit": "share of the dense TF32 peak",
            "source": "the slowest of them, the weight gradient: 253 TFLOP/s",
        },
    )
    gemm_most_share: float = field(
        default=0.8,
        metadata={
            "unit": "share of the dense TF32 peak",
            "source": "the fastest of them, the forward: 394 TFLOP/s",
        },
    )
    convolution_expected_share: float = field(
        default=0.37,
        metadata={
            "unit": "share of the dense TF32 peak",
            "source": "H200, 128 channels, 3 x 3, 64 images of 32 x 32 in TF32: eleven products in "
            "1.16 ms, 184 TFLOP/s (benchmarks/pathologies, fp32_convolution.healthy)",
        },
    )
    convolution_least_share: float = field(
        default=0.3,
        metadata={
            "unit": "share of the dense TF32 peak",
            "source": "the slowest of them, the weight gradient: 158 TFLOP/s",
        },
    )
    convolution_most_share: float = field(
        default=0.5,
        metadata={
            "unit": "share of the dense TF32 peak",
            "source": "the fastest of them, the forward, reaches 0.46; wider ones have more reuse",
        },
    )
    fp32_share: float = field(
        default=0.8,
        metadata={
            "unit": "share of the float32 peak that a kernel of unknown shape reaches now",
            "source": "judgement",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """One finding for matrix products, one for convolutions."""
    gpu, steps = analysis.trace.table("gpu"), analysis.steps
    if not len(gpu):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    wall = float(steps.wall_ns.sum())
    plain, tf32 = _kernels(analysis)
    plain &= ~_too_small(analysis, plain, config)
    drafts, unclear, notes = [], [], []
    for family in ("gemm", "convolution"):
        rows = np.flatnonzero(plain & analysis.classes.rows(family))
        spent = float(gpu.ints("dur")[rows].sum())
        if 100 * spent < config.min_step_share_percent * wall or not len(rows):
            continue
        share = 100 * spent / wall
        on = family == "convolution" and _allowed(analysis)
        if on or (tf32 & analysis.classes.rows(family)).any():
            notes.append(
                f"{share:.1f} % of the step are float32 {_WORDS[family]} although TF32 is on: "
                "the library chose those kernels (small or misaligned shapes)"
            )
            continue
        why = _cannot_judge(analysis, rows)
        if why:
            unclear.append(Undetermined(CODE, NAME, f"{_WORDS[family]}: {why}"))
            continue
        peaks = device_peaks(analysis)
        if peaks is None or peaks.tf32 is None or _capability(analysis) < 8:
            continue
        new = {
            s: faster(
                analysis, rows, peaks, getattr(config, f"{family}_{s}_share"), config.fp32_share
            )
            for s in _SHARES
        }
        saved = float(gpu.ints("dur")[new["expected"].rows].sum() - new["expected"].ns.sum())
        if 100 * saved >= config.min_step_share_percent * wall:
            drafts.append(_draft(analysis, family, new, peaks))
    return Detection(tuple(drafts), tuple(unclear), tuple(notes))


_SHARES = ("least", "expected", "most")
_WORDS = {"gemm": "matrix products", "convolution": "convolutions"}


def _kernels(analysis: Analysis) -> tuple[Bools, Bools]:
    """Kernels in the steps that compute in float32 on CUDA cores, and all that compute in TF32."""
    names, ops = analysis.trace.table("gpu").text("name"), analysis.trace.table("ops")
    op = analysis.links.gpu_op
    plain = names.where(
        lambda n: bool((_PLAIN.search(n) and not _TENSOR_CORE.search(n)) or _ROCM_FP32.match(n))
    )
    plain &= analysis.steps.gpu_step >= 0
    if len(ops):
        other = ops.text("dtypes").where(lambda t: '"float"' not in t)
        plain &= ~((op >= 0) & other[np.maximum(op, 0)])
    tf32 = names.where(lambda n: bool(_TF32.search(n)) and "bf16" not in n)
    return plain, tf32


def _too_small(analysis: Analysis, plain: Bools, config: Config) -> Bools:
    """Those of the kernels that leave most of the GPU empty, where grid and GPU are recorded."""
    grid, processors = analysis.trace.table("gpu").text("grid"), _multiprocessors(analysis)
    out = np.zeros(len(plain), bool)
    for row in np.flatnonzero(plain).tolist() if processors else ():
        sides = [int(n) for n in re.findall(r"\d+", grid[row] or "")]
        out[row] = bool(sides) and 100 * prod(sides) < config.min_fill_percent * processors
    return out


def _allowed(analysis: Analysis) -> bool:
    """Whether every convolution whose `allow_tf32` was recorded was allowed it."""
    ops = analysis.trace.table("ops")
    rows = np.flatnonzero(ops.text("name").where(lambda n: "convolution" in n))
    answers = {
        allows_tf32(ops.text("name")[o] or "", ops.text("concrete")[o] or "") for o in rows.tolist()
    }
    return True in answers and False not in answers


def _capability(analysis: Analysis) -> int:
    """Major compute capability of the analysed device; -1 where not recorded."""
    properties = analysis.trace.header.get("deviceProperties")
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and entry.get("id") == analysis.device:
            major = entry.get("computeMajor")
            return major if isinstance(major, int) else -1
    return -1


def _multiprocessors(analysis: Analysis) -> int:
    """Of the analysed device; 0 where not recorded."""
    properties = analysis.trace.header.get("deviceProperties")
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and entry.get("id") == analysis.device:
            number = entry.get("numSms")
            return number if isinstance(number, int) else 0
    return 0


def _cannot_judge(analysis: Analysis, rows: Ints) -> str | None:
    """Why nothing can be said about these float32 kernels."""
    count, steps = len(rows), max(len(analysis.steps), 1)
    spent = float(analysis.trace.table("gpu").ints("dur")[rows].sum()) / 1e6 / steps
    what = f"{count} in float32 take {spent:.2f} ms a step, but "
    if analysis.trace.vendor != "cuda":
        return what + "what a reduced precision saves on this vendor's GPUs is not known here"
    major = _capability(analysis)
    if major < 0:
        return what + "the recording does not say which GPU it is"
    if major >= 8 and device_peaks(analysis) is None:
        name = analysis.trace.device_names.get(analysis.device, "this GPU")
        return what + f"the TF32 throughput of {name} is not in the table"
    return None


def _draft(analysis: Analysis, family: str, new: dict[str, Faster], peaks: Peaks) -> Draft:
    gpu, count = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    rows = new["expected"].rows
    ops, op = analysis.trace.table("ops"), analysis.links.gpu_op[rows]
    now = gpu.ints("dur")[rows]
    spent, then = (float(d.sum()) / 1e6 / count for d in (now, new["expected"].ns))
    order = np.argsort(-now, kind="stable")
    known = bool(len(ops)) and bool(
        named(ops.text("dtypes"), op, lambda t: '"float"' in t).mean() > 0.5
    )
    words = _WORDS[family]
    names = dict.fromkeys(_short(gpu.text("name")[r] or "") for r in rows[order].tolist())
    return Draft(
        code=CODE,
        name=NAME,
        title=f"float32 {words} run without the tensor cores",
        insight=(
            f"{len(rows) / count:.3g} kernels of float32 {words} a step take {spent:.2f} ms on "
            "CUDA cores; "
            f"in TF32 about {then:.2f} ms."
        ),
        action=(
            'Call torch.set_float32_matmul_precision("high").'
            if family == "gemm"
            else "Set torch.backends.cudnn.allow_tf32 = True (the default)."
        ),
        impact=f"{peaks.device}: float32 {peaks.fp32:g} TFLOP/s, TF32 {peaks.tf32:g} TFLOP/s.",
        edits=new["expected"].edits,
        pessimistic=new["least"].edits,
        optimistic=new["most"].edits,
        evidence=Evidence(
            event_ids=tuple(int(i) for i in gpu.ints("id")[rows[order[:20]]]),
            counts={
                "kernels a step": round(len(rows) / count, 1),
                "GPU ms a step": round(spent, 3),
                "in TF32, GPU ms a step (estimate)": round(then, 3),
            },
            lines=tuple(list(names)[:3]),
        ),
        where=where_of(analysis, rows),
        fixes=(_GEMM if family == "gemm" else _CONVOLUTION, _BF16),
        confidence="high" if known else "medium",
    )


def _short(name: str) -> str:
    return name.removeprefix("void ").split("<")[0].split("(")[0][:80]


_ROUNDED = (
    "factors are rounded to 10 bits of mantissa (relative error about 5e-4 an element), sums stay "
    "in float32"
)
_GEMM = Fix(
    title="TF32 for matrix products",
    code='torch.set_float32_matmul_precision("high")     # once, before the model is built',
    applies_when="training and inference of networks; not solvers that need float32's last bits",
    numerics=_ROUNDED,
)
_CONVOLUTION = Fix(
    title="TF32 for convolutions",
    code="torch.backends.cudnn.allow_tf32 = True        # the default; something set it to False",
    applies_when="training and inference of networks",
    numerics=_ROUNDED,
)
_BF16 = Fix(
    title="bf16 autocast",
    code='with torch.autocast("cuda", torch.bfloat16):\n    loss = loss_of(model(x), y)',
    applies_when="the network trains in bf16: twice TF32's throughput and half the memory traffic",
    numerics="products of bf16 factors (8 bits of mantissa) in float32 sums; check the loss curve",
)
