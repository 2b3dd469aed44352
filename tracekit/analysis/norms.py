"""Normalisation ops: what they take, and what their bytes need at the device's bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import at, device_peaks, named, signatures
from tracekit.analysis.opargs import memory_format
from tracekit.trace.table import Bools, Floats, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

# Times that each op goes over its activation in memory. Batch and group norm read it for the
# statistics and again to normalise; layer and RMS norm hold a row on the chip. Every
# backward reads activation and gradient for the sums, and again for the input's gradient.
_PASSES: dict[str, tuple[str, int]] = {
    f"aten::{name}{suffix}": (kind, 5 if suffix else forward)
    for name, kind, forward in (
        ("native_batch_norm", "batch_norm", 3),
        ("cudnn_batch_norm", "batch_norm", 3),
        ("miopen_batch_norm", "batch_norm", 3),
        ("native_group_norm", "group_norm", 3),
        ("native_layer_norm", "layer_norm", 2),
        ("_fused_rms_norm", "rms_norm", 2),
    )
    for suffix in ("", "_backward")
}
NHWC_EFFICIENCY = 0.6
"""share of copy bandwidth that a good norm kernel reaches: judgement; LAY001 and NRM001 share it,
so that they price one kernel alike"""
LAUNCH_NS = 4_000
"""ns that a kernel takes however small its tensor: judgement, from the shortest norm kernels of the
H100 and MI300 recordings (4 to 6 us)"""


@dataclass(frozen=True)
class NormWork:
    """One entry a norm op inside the steps whose shapes are recorded."""

    op: Ints
    """row of `ops`"""
    kind: tuple[str, ...]
    """batch_norm, group_norm, layer_norm or rms_norm"""
    nchw: Bools
    """a 4- or 5-dimensional activation that is not channels-last"""
    spent: Floats
    """ns of its kernels"""
    bytes: Floats
    """that it must move"""
    kernels: Ints
    rows: Ints
    """rows of `gpu` of all of these ops"""
    entry: Ints
    """[rows] which entry each belongs to"""
    blind_ns: float
    """ns of norm ops whose shapes are not recorded"""

    def needed(self, bandwidth: float) -> Floats:
        """ns that each op needs at `bandwidth` bytes a ns."""
        out: Floats = self.bytes / bandwidth + LAUNCH_NS * self.kernels
        return out


def norm_work(analysis: Analysis) -> NormWork:
    """Every normalisation op inside the steps."""
    ops, gpu = analysis.trace.table("ops"), analysis.trace.table("gpu")
    rows = np.flatnonzero((analysis.links.gpu_op >= 0) & (analysis.steps.gpu_step >= 0))
    op = analysis.links.gpu_op[rows] if len(ops) else rows[:0]
    rows, parent = rows[: len(op)], analysis.links.op_parent
    names = ops.text("name")
    up = op
    while (up >= 0).any():  # to the norm around the op, if there is one
        up = np.where(named(names, up, _is_norm), -1, np.where(up >= 0, at(parent, up), -1))
        op = np.where(up >= 0, up, op)
    is_norm = named(names, op, _is_norm)
    rows, op = rows[is_norm], op[is_norm]
    which, entry = np.unique(op, return_inverse=True)
    entry = entry.reshape(-1)
    duration = gpu.ints("dur")[rows]
    spent = np.bincount(entry, weights=duration, minlength=len(which)).astype(np.float64)
    moved, nchw = np.zeros(len(which)), np.zeros(len(which), bool)
    passes = names.map(lambda n: _PASSES.get(n, ("", 0))[1], np.int64)
    for found, same in signatures(ops, which):
        if not found or not found[0].item_bytes:
            continue
        shape, strides = found[0].shape, found[0].strides
        moved[same] = found[0].elements * found[0].item_bytes * passes[which[same]]
        last = strides is not None and memory_format(shape, strides) == "channels_last"
        nchw[same] = len(shape) >= 4 and not last
    known = moved > 0
    position = np.cumsum(known) - 1
    kept = known[entry]
    return NormWork(
        op=which[known],
        kind=tuple(_PASSES[names[r] or ""][0] for r in which[known].tolist()),
        nchw=nchw[known],
        spent=spent[known],
        bytes=moved[known],
        kernels=np.bincount(entry, minlength=len(which))[known],
        rows=rows[kept],
        entry=position[entry[kept]],
        blind_ns=float(spent[~known].sum()),
    )


def _is_norm(name: str) -> bool:
    return name in _PASSES


@dataclass(frozen=True)
class SlowNorms:
    """Norm kernels far below memory bandwidth, with what they would take."""

    rows: Ints
    ns: Ints
    ms_per_step: float
    """what they take now"""
    ops: Ints
    """rows of `ops`"""


def slow_norms(
    analysis: Analysis,
    work: NormWork,
    wanted: Bools,
    factor: float,
    efficiency: float,
) -> SlowNorms:
    """Those of the `wanted` norms that take more than `factor` times what they need at the device's
    copy bandwidth, and the durations of their kernels at `efficiency` of it. None for an unknown
    device."""
    peaks, none = device_peaks(analysis), np.empty(0, np.int64)
    if peaks is None or not len(work.op):
        return SlowNorms(none, none, 0.0, none)
    slow = wanted & (work.spent > factor * work.needed(peaks.copy_bandwidth))
    ratio = work.needed(peaks.copy_bandwidth * efficiency) / np.maximum(work.spent, 1)
    mine = slow[work.entry]
    rows = work.rows[mine]
    duration = analysis.trace.table("gpu").ints("dur")[rows]
    new = (duration * np.minimum(ratio[work.entry[mine]], 1.0)).astype(np.int64)
    ms = float(duration.sum()) / 1e6 / max(len(analysis.steps), 1)
    return SlowNorms(rows, new, ms, work.op[slow])
