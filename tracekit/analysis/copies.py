"""Copies between host and device memory: which are pageable, and how fast they could be.

A pageable copy goes through the driver's own pinned buffer piece by piece. Its call blocks the
host until the last piece has been handed over, which may be shortly before the copy itself ends, so
that `analysis.waits` does not always see it as a wait; `.to(device)` adds a synchronize after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import at, device_peaks
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

BLOCKING_BYTES = 65_537
"""from this size on a pageable copy blocks the host; up to 64 KB are staged at once"""
PINNED_SHARE = 0.8
"""of a PCIe link's raw bandwidth that a pinned copy reaches: 50.3 of 63 GB/s in H200 recordings
(`memory bandwidth (GB/s)` of copies of 1.5 MB)"""
_OBSERVED_BYTES = 1_000_000
"""copies from this size on show what the link can do"""

# Raw bandwidth in one direction, GB/s, of the PCIe x16 generation in the device's data sheet.
_GEN3, _GEN4, _GEN5 = 15.75, 31.5, 63.0
_LINKS = (
    ("H200", _GEN5), ("H100", _GEN5), ("B200", _GEN5), ("A100", _GEN4), ("A10G", _GEN4),
    ("L40S", _GEN4), ("L4", _GEN4), ("RTX", _GEN4), ("V100", _GEN3), ("T4", _GEN3),
)  # fmt: skip


@dataclass(frozen=True)
class HostCopies:
    """Copies of one direction inside the steps; arrays are aligned."""

    direction: str
    """'HtoD' or 'DtoH'"""
    rows: Ints
    """rows of `gpu`"""
    calls: Ints
    """rows of `launches` that started them"""
    bytes: Ints

    def __len__(self) -> int:
        return len(self.rows)


def pageable_copies(analysis: Analysis, direction: str, min_bytes: int) -> HostCopies:
    """Copies between pageable memory and the device, of at least `min_bytes`."""
    return _copies(analysis, direction, "Pageable", min_bytes)


def unknown_copies(analysis: Analysis, direction: str, min_bytes: int) -> HostCopies:
    """Copies of which the recording does not say whether the host's memory was pinned (ROCm); those
    of unknown size are among them."""
    return _copies(analysis, direction, "Host", min_bytes, sized=False)


def _copies(
    analysis: Analysis, direction: str, memory: str, min_bytes: int, *, sized: bool = True
) -> HostCopies:
    gpu, launch = analysis.trace.table("gpu"), analysis.links.gpu_launch
    wanted = gpu.text("kind").where(lambda k: k == "memcpy")
    wanted &= gpu.text("name").where(lambda n: direction in n and memory in n)
    wanted &= (analysis.steps.gpu_step >= 0) & (launch >= 0) & ~analysis.implausible
    rows = np.flatnonzero(wanted)
    calls = launch[rows]
    # ROCm writes the size on the call.
    size = gpu.ints("bytes")[rows]
    size = np.where(size > 0, size, at(analysis.trace.table("launches").ints("bytes"), calls))
    keep = (size >= min_bytes) | ((size <= 0) & (not sized))
    return HostCopies(direction, rows[keep], calls[keep], size[keep])


def waits_for(analysis: Analysis, copies: HostCopies) -> Ints:
    """Waiting calls (rows of `launches`) that the copies make: their own, where they waited, and
    the synchronize that follows inside the same op."""
    call, launch_op = analysis.waits.call, analysis.links.launch_op
    op = launch_op[copies.calls]
    same_op = np.isin(launch_op[call], op[op >= 0]) & (launch_op[call] >= 0)
    return np.sort(call[same_op | np.isin(call, copies.calls)])


def pinned_speed(analysis: Analysis, direction: str) -> tuple[float, str] | None:
    """Bytes a ns of a pinned copy, and where the figure is from: the trace's own pinned copies,
    else the device's link; None for an unknown device."""
    gpu = analysis.trace.table("gpu")
    pinned = gpu.text("name").where(lambda n: direction in n and "Pinned" in n)
    rows = np.flatnonzero(pinned & (gpu.ints("bytes") >= _OBSERVED_BYTES) & (gpu.ints("dur") > 0))
    if len(rows):
        best = float((gpu.ints("bytes")[rows] / gpu.ints("dur")[rows]).max())
        return best, "pinned copies of this trace"
    peaks = device_peaks(analysis)
    for start, raw in _LINKS:
        if peaks is not None and peaks.device.startswith(start):
            return raw * PINNED_SHARE, f"{PINNED_SHARE:.0%} of the PCIe link of {peaks.device}"
    return None
