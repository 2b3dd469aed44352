"""LAY001 layout-transpose: tensors converted between NCHW and NHWC around convolutions.

## What it detects
Two faults that differ in their fix. (1) Conversion kernels that the convolution library
launches itself: cuDNN's nchwToNhwcKernel / nhwcToNchwKernel, MIOpen's batched_transpose_* and
transpose_NCHW2CNHW: the model keeps its tensors in NCHW, the tensor-core kernels want NHWC.
(2) Hidden copies of a model that is already channels-last: inside
aten::convolution_backward, `aten::contiguous > aten::clone > aten::copy_` and
`aten::to > aten::_to_copy > aten::copy_` move the gradient or the saved input from NCHW to
NHWC, because an op before it (GroupNorm, a slice, a custom function) returned NCHW.

## Why it matters
A conversion reads and writes the whole activation and computes nothing. cuDNN's kernels run
near memory bandwidth; ATen's strided copy reaches about a fifth of it.

## How it is measured
By the kernel's class: the libraries' own kernel names, and copies whose recorded strides go
from one memory format to the other (inside aten::convolution_backward the chain decides where
strides were not recorded). In graph replays, which have no ops, a strided copy that runs
directly before a dgrad or wgrad kernel counts, with less confidence (checked on one model
recorded both ways: 71 of the 77 copies whose strides were recorded are found by order, 3.10 of
3.35 ms); there the best estimate keeps the copies at memory bandwidth. The price is the
replayed step without the kernels, and what the fix brings back is kept in it: where the
model normalises with GroupNorm or InstanceNorm, which return NCHW, channels_last brings about
as much as it removes (measured on an H200: layout kernels 5.4 -> 0 ms a step, copies, pointwise
and reductions +7 ms), so the best estimate is no gain; with BatchNorm the conversions go, and
norm kernels far below memory bandwidth in NCHW run at a share of it in NHWC.

## Example
    165 nchwToNhwc and 331 nhwcToNchw kernels a step, 5.4 ms of 26 ms of GPU time.

## Fix
model = model.to(memory_format=torch.channels_last), and the batch likewise. For hidden
copies: a norm that keeps the memory format (an NHWC GroupNorm kernel), no op that returns NCHW
between two convolutions.

## False positives
Below 1 % of GPU time nothing is said. fp32 on GPUs before sm_80 is often slower in NHWC: low
confidence. Conv1d has no channels_last: the fix differs. A Triton or fbgemm kernel that is
named transpose or permute is computing, and is never counted.

## References
https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import (
    Conversions,
    convolution_facts,
    dispatch_time,
    find_conversions,
)
from tracekit.analysis.norms import NHWC_EFFICIENCY, norm_work, slow_norms
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "LAY001"
NAME = "layout-transpose"


@dataclass(frozen=True)
class Config:
    """Thresholds of LAY001."""

    min_gpu_share_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the steps' GPU time",
            "source": "public traces: 1.5 % of a healthy model is its input's conversion",
        },
    )
    slow_norm_factor: float = field(
        default=2.0,
        metadata={
            "unit": "times the time at memory bandwidth",
            "source": "judgement; batch_norm_backward in NCHW ran far below it on an H200",
        },
    )
    nhwc_norm_efficiency: float = field(
        default=NHWC_EFFICIENCY,
        metadata={
            "unit": "share of the device's copy bandwidth",
            "source": "judgement: no recording of NHWC batch norm was at hand",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """Findings on layout conversions; see the module's documentation."""
    gpu = analysis.trace.table("gpu")
    if not len(gpu):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    found = find_conversions(analysis)
    in_steps = analysis.steps.gpu_step >= 0
    total = float(gpu.ints("dur")[in_steps].sum())
    enough = total * config.min_gpu_share_percent / 100
    drafts = []
    for rows, make in ((found.library, _library), (found.hidden, _hidden)):
        if len(rows) and float(gpu.ints("dur")[rows].sum()) >= max(enough, 1.0):
            drafts.append(make(analysis, config, found, rows, total))
    unclear = float(gpu.ints("dur")[found.unclear].sum())
    if len(found.unclear) and unclear >= max(enough, 1.0):
        per_step = unclear / 1e6 / len(analysis.steps)
        return Detection(
            tuple(drafts),
            (
                Undetermined(
                    CODE,
                    NAME,
                    f"strided copies of {per_step:.2f} ms a step have no recorded op, so whether "
                    "they change the memory format is not known",
                ),
            ),
        )
    return Detection(tuple(drafts))


def _evidence(analysis: Analysis, rows: Ints, total: float, *lines: str) -> Evidence:
    gpu, steps = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    duration = gpu.ints("dur")[rows]
    order = rows[np.argsort(-duration, kind="stable")]
    return Evidence(
        tuple(int(i) for i in gpu.ints("id")[order[:20]]),
        {
            "kernels a step": round(len(rows) / steps, 1),
            "GPU ms a step": round(float(duration.sum()) / 1e6 / steps, 3),
            "% of GPU time": round(float(duration.sum()) / total * 100, 1),
        },
        lines,
    )


def _library(
    analysis: Analysis, config: Config, found: Conversions, rows: Ints, total: float
) -> Draft:
    """The model is NCHW and the library converts."""
    facts = convolution_facts(analysis, rows)
    evidence = _evidence(analysis, rows, total, *found.describe(analysis, rows), *facts.lines)
    everything = Edits(remove_gpu=rows)
    best, confidence = everything, "medium"
    if facts.one_dimensional:
        confidence = "low"
        fixes: tuple[Fix, ...] = (_CONV1D,)
        action = "Write the 1-D convolution as a Conv2d of height 1 in channels_last."
    else:
        fixes = (_CHANNELS_LAST,)
        action = "Use channels_last for the model and its input."
    ms = evidence.counts["GPU ms a step"]
    impact = f"{ms} ms of GPU work a step converts and computes nothing."
    pessimistic: Edits | None = None
    if facts.norm_returns_nchw:
        # As much comes back elsewhere as goes here: GPU work as it is.
        best = pessimistic = Edits()
        fixes = (*fixes, _NHWC_NORM)
        impact += (
            " With channels_last alone about as much comes back, because the model's "
            f"{facts.norm} returns NCHW: the gradient is copied and the norm splits in two."
        )
    elif not facts.one_dimensional:
        work = norm_work(analysis)
        in_nchw = work.nchw & np.array([k == "batch_norm" for k in work.kind], bool)
        norms = slow_norms(
            analysis, work, in_nchw, config.slow_norm_factor, config.nhwc_norm_efficiency
        )
        if len(norms.rows):
            best = everything | Edits(resize_gpu=norms.rows, resize_ns=norms.ns)
            impact += (
                f" {norms.ms_per_step:.2f} ms a step of batch norm kernels run far below memory "
                "bandwidth in NCHW and gain with it."
            )
            pessimistic = everything
    if facts.fp32_before_sm80:
        confidence, pessimistic = "low", Edits()
        impact += " fp32 convolutions on this GPU may be slower in NHWC: measure first."
    elif facts.norm_returns_nchw:
        confidence = "medium"
    return Draft(
        CODE,
        NAME,
        "convolutions convert NCHW to NHWC and back",
        "The convolution library converts its inputs to NHWC and its results back to NCHW around "
        f"the convolutions, {evidence.counts['kernels a step']:g} kernels a step.",
        action,
        impact,
        best,
        evidence,
        where_of(
            analysis, rows, f"{evidence.counts['kernels a step']:g} kernels around convolutions"
        ),
        fixes,
        confidence,
        pessimistic,
        everything,
    )


def _hidden(
    analysis: Analysis, config: Config, found: Conversions, rows: Ints, total: float
) -> Draft:
    """The model is channels-last and something hands the convolution NCHW."""
    evidence = _evidence(analysis, rows, total, *found.describe(analysis, rows))
    removed = Edits(remove_gpu=rows, remove_host=dispatch_time(analysis, rows))
    guessed = bool(np.isin(rows, found.by_order).any())
    likely, careful = (
        Edits(resize_gpu=kept, resize_ns=ns)
        for kept, ns in (found.at_bandwidth(analysis, rows, share) for share in (1.0, 0.5))
    )
    facts = convolution_facts(analysis, rows)
    culprit = facts.norm if facts.norm_returns_nchw else "an op between two convolutions"
    how = (
        "by the order of the kernels of a graph replay: a strided copy directly before a "
        "convolution's gradient kernel"
        if guessed
        else "inside aten::convolution_backward"
    )
    return Draft(
        CODE,
        NAME,
        "hidden copies bring convolution gradients to NHWC",
        f"{evidence.counts['kernels a step']:g} copies a step move tensors from NCHW to NHWC, "
        f"{how}: {culprit} returns NCHW in a channels-last model.",
        "Keep the memory format from one convolution to the next.",
        f"{evidence.counts['GPU ms a step']} ms of GPU work a step copies and computes nothing.",
        likely if guessed and not likely.empty else removed,
        evidence,
        where_of(analysis, rows, f"{evidence.counts['kernels a step']:g} copies before gradients"),
        (_NHWC_NORM, _KEEP_FORMAT),
        "medium" if guessed else "high",
        careful if guessed else likely,
        removed,
    )


_CHANNELS_LAST = Fix(
    "channels_last model and batch",
    "model = model.to(memory_format=torch.channels_last)\n"
    "images = images.to(memory_format=torch.channels_last)",
    "2-D or 3-D convolutions (channels_last_3d) in bf16, fp16 or TF32; BatchNorm keeps the format, "
    "GroupNorm and InstanceNorm return NCHW and bring copies back",
    "sums in another order; differences of rounding size",
)
_NHWC_NORM = Fix(
    "a norm that keeps channels_last",
    "from apex.contrib.group_norm import GroupNorm  # NHWC in, NHWC out\n"
    'norm = GroupNorm(32, channels, act="silu")     # instead of torch.nn.GroupNorm and SiLU',
    "the norm between two convolutions is GroupNorm or InstanceNorm",
    "statistics in fp32; differences of rounding size",
)
_KEEP_FORMAT = Fix(
    "make the tensor channels-last where it is made",
    "y = op(x).contiguous(memory_format=torch.channels_last)  # once, where the next pointwise\n"
    "# kernel can write it in that format, instead of once for each gradient",
    "torch.compile fuses the conversion into the kernel that produces y",
    "nothing",
)
_CONV1D = Fix(
    "Conv1d as Conv2d of height 1",
    "conv = torch.nn.Conv2d(cin, cout, (1, k), padding=(0, p)).to(\n"
    "    memory_format=torch.channels_last)\n"
    "conv.weight.data.copy_(conv1d.weight.data.unsqueeze(2)); conv.bias = conv1d.bias\n"
    "y = conv(x.unsqueeze(2)).squeeze(2)",
    "1-D convolutions, which have no channels_last of their own; a long run of them, so that the "
    "conversion at its ends is paid once",
    "sums in another order; differences of rounding size",
)
