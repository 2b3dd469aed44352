"""What float32 products would take in TF32: PRE001's price.

A matrix product keeps its kernel, which gets faster. A convolution changes its algorithm: in
float32 cuDNN picks FFT, Winograd or NCHW kernels, with conversions around them, where in TF32 it
runs one implicit GEMM a product. So all kernels that a convolution op launched go, and its
products take their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.device_peaks import Peaks
from tracekit.analysis.matmul import products_of, work_of
from tracekit.analysis.opargs import memory_format, tensors
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis


LEAST_NS = 3_000
"""no product takes less, however small (H200 recordings: 3.3 us for 64 x 128 x 128)"""


@dataclass(frozen=True)
class Faster:
    """Kernels in float32 and how long they take in TF32."""

    keep: Ints
    """rows of `gpu` that stay, one a product or one a convolution op"""
    ns: Ints
    """how long each of `keep` takes then"""
    gone: Ints
    """rows of `gpu` that no longer run"""

    @property
    def rows(self) -> Ints:
        """All rows that change."""
        return np.concatenate([self.keep, self.gone])

    @property
    def edits(self) -> Edits:
        """The same as edits of the step."""
        return Edits(remove_gpu=self.gone, resize_gpu=self.keep, resize_ns=self.ns)


def faster(
    analysis: Analysis, rows: Ints, peaks: Peaks, share: float, blind_share: float
) -> Faster:
    """`rows` of `gpu` in TF32.

    Args:
        share: of the TF32 peak that they reach then.
        blind_share: of the float32 peak that kernels of unknown shape reach now.
    """
    ops, op = analysis.trace.table("ops"), analysis.links.gpu_op
    duration = analysis.trace.table("gpu").ints("dur")
    assert peaks.tf32 is not None
    reached = share * peaks.tf32
    least = peaks.fp32 / peaks.tf32  # no kernel gains more than the peaks differ
    keep, ns, gone = [], [], []
    of_op: dict[int, list[int]] = {}
    for row in rows.tolist():
        of_op.setdefault(int(op[row]), []).append(row)
    for o, mine in of_op.items():
        name, shapes, dtypes, concrete = (
            (ops.text(c)[o] or "" if o >= 0 else "")
            for c in ("name", "shapes", "dtypes", "concrete")
        )
        work = work_of(name, shapes, dtypes, concrete)
        if work is not None and "convolution" in name:
            # 1 TFLOP/s is 1,000 operations a ns.
            once = max(work.flops / (1_000 * reached), work.bytes / peaks.copy_bandwidth)
            all_of_it = np.flatnonzero((op == o) & ~analysis.implausible)
            now = float(duration[all_of_it].sum())
            then = products_of(name, concrete) * once
            then += _conversions(analysis, o, all_of_it, work.bytes / peaks.copy_bandwidth)
            main = _main(analysis, all_of_it, np.array(mine, np.int64))
            # The floor is that of the product alone: what stands around it may go altogether.
            floor = float(duration[mine].sum()) * least
            keep.append(main)
            ns.append(min(max(then, floor, LEAST_NS), now))
            gone += [r for r in all_of_it.tolist() if r != main]
            continue
        for row in mine:
            now = float(duration[row])
            then = now * blind_share * peaks.fp32 / reached
            if work is not None:
                then = max(work.flops / (1_000 * reached), work.bytes / peaks.copy_bandwidth)
            keep.append(row)
            ns.append(min(max(then, now * least, LEAST_NS), now))
    return Faster(
        np.array(keep, np.int64),
        np.array(ns, np.float64).astype(np.int64),
        np.array(gone, np.int64),
    )


def _conversions(analysis: Analysis, op: int, rows: Ints, once: float) -> float:
    """ns of layout conversions that a convolution op still needs: TF32 kernels work in NHWC.

    0 where its tensors are channels-last; where they are not, at least what it takes to write
    each of them once more; where that is not recorded, as many as now.
    """
    ops = analysis.trace.table("ops")
    found = tensors(*((ops.text(c)[op] or "") for c in ("shapes", "dtypes", "strides")))
    formats = {memory_format(t.shape, t.strides) for t in found if t.strides and len(t.shape) >= 4}
    if "channels_last" in formats and "channels_first" not in formats:
        return 0.0
    layout = rows[analysis.classes.rows("layout")[rows]]
    now = float(analysis.trace.table("gpu").ints("dur")[layout].sum())
    return max(now, 2 * once) if "channels_first" in formats else now


def _main(analysis: Analysis, rows: Ints, plain: Ints) -> int:
    """The row that stands for the op then: its longest product, best on the stream that the rest
    of the step runs on (cuDNN's own streams are joined by events that would go)."""
    gpu = analysis.trace.table("gpu")
    stream = gpu.ints("stream")
    usual = np.bincount(np.maximum(stream[analysis.device_rows], 0)).argmax()
    products = rows[analysis.classes.rows("convolution", "gemm")[rows]]
    for some in (products[stream[products] == usual], plain):
        if len(some):
            return int(some[np.argmax(gpu.ints("dur")[some])])
    return int(rows[0])
