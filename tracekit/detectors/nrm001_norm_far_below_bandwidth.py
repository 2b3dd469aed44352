"""NRM001 norm-far-below-bandwidth: normalisation kernels that take several times what their bytes
need.

## What it detects
Batch, group, layer and RMS norms (forward and backward) whose kernels take more than
`slow_factor` times as long as moving their tensors would at the device's copy bandwidth.

## Why it matters
A norm computes next to nothing: reading and writing its activation is all it has to do. The
kernels for NCHW give each channel to one block, which leaves most of the GPU idle where
channels are few and pixels are many. On an H200 the gain of channels_last for a stack of
convolutions with BatchNorm was 64 % where the transposes were 16 % of the GPU's time, because
batch_norm_backward ran far below memory bandwidth in NCHW.

## How it is measured
Bytes from the recorded shape and type of the activation: a batch or group norm goes over it 3
times forward, a layer or RMS norm twice, all 5 times backward; plus 4 us for each kernel, which
no kernel is shorter than. The price is the replayed step with these kernels at
`good_efficiency` of the copy bandwidth. LAY001 prices NCHW batch norms the same way as part of
its own fix; where both report, the same milliseconds are meant, and the combined saving counts
them once.

## Example
    12 x native_batch_norm_backward of [10, 64, 56, 56] in bf16: 86 us each, 8 us at bandwidth.

## Fix
For batch norm in NCHW: channels_last. For others: a fused norm, or torch.compile.

## False positives
Small norms take a few microseconds whatever they do: the 4 us for each kernel keep them out.
A norm that is slow by less than the factor has kernels of its own making that go over the
tensor more often. An unknown device, shapes that were not recorded, and norms that
Inductor fused into other kernels cannot be judged.

## References
https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import device_peaks, find_conversions
from tracekit.analysis.norms import NHWC_EFFICIENCY, NormWork, SlowNorms, norm_work, slow_norms
from tracekit.analysis.opargs import tensors
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of_ops
from tracekit.replay.edits import Edits
from tracekit.trace.table import Bools

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "NRM001"
NAME = "norm-far-below-bandwidth"


@dataclass(frozen=True)
class Config:
    """Thresholds of NRM001."""

    slow_factor: float = field(
        default=3.0,
        metadata={
            "unit": "times the time at copy bandwidth and 4 us a kernel",
            "source": "judgement; torch's group and RMS norms on an H200 take 0.7 to 2.3 times it",
        },
    )
    good_efficiency: float = field(
        default=NHWC_EFFICIENCY,
        metadata={
            "unit": "share of the device's copy bandwidth",
            "source": "judgement; _fused_rms_norm_backward reaches 0.56 on an H200",
        },
    )
    min_gpu_share_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the steps' GPU time that would go",
            "source": "judgement: less is not worth a change of the model",
        },
    )
    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, in GPU time that would go",
            "source": "judgement: under what a step time repeats to",
        },
    )
    blind_share_percent: float = field(
        default=3.0,
        metadata={
            "unit": "% of the steps' GPU time in norms that cannot be judged",
            "source": "judgement: the least that a medium finding saves",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """One finding for each kind of norm and layout; see the module's documentation."""
    gpu = analysis.trace.table("gpu")
    if not len(gpu):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    work = norm_work(analysis)
    total = float(gpu.ints("dur")[analysis.steps.gpu_step >= 0].sum())
    enough = max(total * config.min_gpu_share_percent / 100, 1.0)
    step_ns = analysis.steps.median_ns * max(len(analysis.steps), 1)
    enough = max(enough, step_ns * config.min_step_share_percent / 100)
    kinds = np.array(work.kind, "U16")
    drafts = []
    for kind in sorted(set(work.kind)):
        for layout in (True, False):
            # Only batch norm keeps the memory format it is given.
            wanted = (kinds == kind) & ((work.nchw & (kind == "batch_norm")) == layout)
            slow = slow_norms(analysis, work, wanted, config.slow_factor, config.good_efficiency)
            if float((gpu.ints("dur")[slow.rows] - slow.ns).sum()) >= enough:
                drafts.append(_draft(analysis, config, work, wanted, kind, layout, slow))
    return Detection(tuple(drafts), _unclear(analysis, config, work, total))


def _unclear(
    analysis: Analysis, config: Config, work: NormWork, total: float
) -> tuple[Undetermined, ...]:
    count = max(len(analysis.steps), 1)
    blind, why = work.blind_ns, "the shapes were not recorded"
    if device_peaks(analysis) is None:
        blind += float(work.spent.sum())
        why = "the device's memory bandwidth is not known here"
    if blind < max(total * config.blind_share_percent / 100, 1.0):
        return ()
    text = f"normalisation kernels of {blind / 1e6 / count:.2f} ms a step: {why}"
    return (Undetermined(CODE, NAME, text),)


def _draft(
    analysis: Analysis,
    config: Config,
    work: NormWork,
    wanted: Bools,
    kind: str,
    layout: bool,
    slow: SlowNorms,
) -> Draft:
    gpu, count = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    order = slow.rows[np.argsort(-gpu.ints("dur")[slow.rows], kind="stable")]
    mine = np.isin(work.op, slow.ops)
    now, then = slow.ms_per_step, float(slow.ns.sum()) / 1e6 / count
    reached = float(work.bytes[mine].sum() / work.spent[mine].sum())
    peaks = device_peaks(analysis)
    share = 100 * reached / peaks.copy_bandwidth if peaks is not None else 0.0
    name = kind.replace("_", " ")
    half = (config.good_efficiency + share / 100) / 2
    careful = slow_norms(analysis, work, wanted & mine, config.slow_factor, half)
    full = slow_norms(analysis, work, wanted & mine, config.slow_factor, 0.9)
    where = " in NCHW" if layout else ""
    action = _COMPILE_ACTION
    fixes: tuple[Fix, ...] = (_COMPILE,)
    if layout:
        action, fixes = "Use channels_last for the model and its input.", (_CHANNELS_LAST, _COMPILE)
        if len(find_conversions(analysis).library):
            action += " The conversions around the convolutions go with the same change (LAY001)."
    return Draft(
        CODE,
        NAME,
        f"{name} kernels{where} run far below memory bandwidth",
        f"{len(slow.ops) / count:.0f} {name} ops a step move {reached:.0f} GB/s, "
        f"{share:.0f} % of what the device copies.",
        action,
        f"{now:.2f} ms of GPU time a step would be about {then:.2f} ms.",
        _edits(slow),
        Evidence(
            tuple(int(i) for i in gpu.ints("id")[order[:20]]),
            {
                "ops a step": round(len(slow.ops) / count, 1),
                "GPU ms a step": round(now, 3),
                "MB moved a step": round(float(work.bytes[mine].sum()) / 1e6 / count, 2),
                "GB/s reached": round(reached),
                "% of copy bandwidth": round(share, 1),
            },
            _worst(analysis, work, mine),
        ),
        where_of_ops(analysis, slow.ops, f"{len(slow.ops) / count:.0f} {name} ops{where}"),
        fixes,
        "medium" if layout else "low",
        _edits(careful),
        _edits(full),
    )


def _edits(slow: SlowNorms) -> Edits:
    return Edits(resize_gpu=slow.rows, resize_ns=slow.ns)


def _worst(analysis: Analysis, work: NormWork, mine: Bools) -> tuple[str, ...]:
    """The costliest ops by name and shape: '24 x native_batch_norm [10, 64, 56, 56], 53 us'."""
    ops = analysis.trace.table("ops")
    spent: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for i in np.flatnonzero(mine).tolist():
        row: int = int(work.op[i])
        name = (ops.text("name")[row] or "").removeprefix("aten::")
        found = tensors(ops.text("shapes")[row] or "", ops.text("dtypes")[row] or "")
        key = (name, str(list(found[0].shape)))
        spent[key] += int(work.spent[i])
        times[key] += 1
    return tuple(
        f"{times[key]} x {key[0]} {key[1]}, {ns / 1e3 / times[key]:.0f} us each"
        for key, ns in spent.most_common(4)
    )


_COMPILE_ACTION = "Use a fused norm, or torch.compile the part of the model around it."
_CHANNELS_LAST = Fix(
    "channels_last model and batch",
    "model = model.to(memory_format=torch.channels_last)\n"
    "images = images.to(memory_format=torch.channels_last)",
    "the batch norms are between 2-D or 3-D convolutions (channels_last_3d) in bf16, fp16 or TF32; "
    "elsewhere measure first, as convolutions may be slower in NHWC",
    "sums in another order; differences of rounding size",
)
_COMPILE = Fix(
    "torch.compile the model",
    "model = torch.compile(model)  # norms become Triton kernels, fused with what surrounds them",
    "shapes that do not change from step to step (else dynamic=True)",
    "sums in another order; differences of rounding size",
)
