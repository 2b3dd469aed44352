"""What a device can do at most: memory bandwidth and dense matrix throughput, with sources.

Dense figures only (vendors' sparse ones are twice as high). `copy_gbs` is a measured
device-to-device copy, read plus write, where we know one; otherwise `copy_bandwidth` takes 0.90 of
the data sheet: judgement, from the one device measured, an H200, which reaches 0.89. An unknown
device gives None, and what depends on it is undetermined or a range.
"""

from __future__ import annotations

from dataclasses import dataclass

_COPY_SHARE = 0.90


@dataclass(frozen=True)
class Peaks:
    """One device's limits. TFLOP/s are dense; None where the device has no such unit."""

    device: str
    memory_gbs: float
    """data-sheet memory bandwidth, 1e9 bytes/s"""
    copy_gbs: float | None
    """measured copy, read + write, 1e9 bytes/s"""
    fp32: float
    tf32: float | None
    bf16: float | None
    fp16: float | None
    fp8: float | None
    source: str

    @property
    def copy_bandwidth(self) -> float:
        """What a good elementwise kernel moves, bytes a ns (1 GB/s is 1 byte a ns): measured, else
        0.90 of the data sheet."""
        return self.copy_gbs or self.memory_gbs * _COPY_SHARE


# Checked against vendors' documents as quoted on public pages: H200, H100, A100, MI300X. The
# others are from the named documents, not checked a second time.
_NVIDIA = "NVIDIA data sheet"
_AMD = "AMD Instinct data sheet"

# First entry whose words all occur in the product name. More specific names come first.
_TABLE: tuple[tuple[tuple[str, ...], Peaks], ...] = (
    (
        ("h200", "nvl"),
        Peaks("H200 NVL", 4800, None, 60, 417.5, 835.5, 835.5, 1671, f"{_NVIDIA} (H200 NVL)"),
    ),
    (
        ("h200",),
        Peaks(
            "H200 SXM", 4800, 4260, 67, 494.5, 989.5, 989.5, 1979,
            f"{_NVIDIA} (H200); copy measured with torch 2.11",
        ),
    ),
    (
        ("h100", "nvl"),
        Peaks("H100 NVL", 3938, None, 60, 417.5, 835.5, 835.5, 1671, f"{_NVIDIA} (H100 NVL)"),
    ),
    (
        ("h100", "pcie"),
        Peaks("H100 PCIe", 2039, None, 51, 378, 756, 756, 1513, f"{_NVIDIA} (H100 PCIe)"),
    ),
    (
        ("h100",),
        Peaks("H100 SXM", 3352, None, 67, 494.5, 989.5, 989.5, 1979, f"{_NVIDIA} (H100 SXM)"),
    ),
    (
        ("gh200",),
        Peaks("GH200", 4000, None, 67, 494.5, 989.5, 989.5, 1979, f"{_NVIDIA} (GH200, HBM3)"),
    ),
    (
        ("b200",),
        Peaks("B200", 8000, None, 80, 1125, 2250, 2250, 4500, f"{_NVIDIA} (HGX B200)"),
    ),
    (
        ("a100", "80gb", "pcie"),
        Peaks("A100 PCIe 80GB", 1935, None, 19.5, 156, 312, 312, None, f"{_NVIDIA} (A100)"),
    ),
    (
        ("a100", "80gb"),
        Peaks("A100 SXM 80GB", 2039, None, 19.5, 156, 312, 312, None, f"{_NVIDIA} (A100)"),
    ),
    (
        ("a100",),
        Peaks("A100 40GB", 1555, None, 19.5, 156, 312, 312, None, f"{_NVIDIA} (A100)"),
    ),
    (("v100",), Peaks("V100", 900, None, 15.7, None, None, 125, None, f"{_NVIDIA} (V100 SXM2)")),
    (("a10g",), Peaks("A10G", 600, None, 31.5, 35, 70, 70, None, "AWS G5 / NVIDIA A10G brief")),
    (("l40s",), Peaks("L40S", 864, None, 91.6, 183, 362, 362, 733, f"{_NVIDIA} (L40S)")),
    (("l4",), Peaks("L4", 300, None, 30.3, 60, 121, 121, 242.5, f"{_NVIDIA} (L4)")),
    (("t4",), Peaks("T4", 320, None, 8.1, None, None, 65, None, f"{_NVIDIA} (T4)")),
    (
        ("rtx", "4090"),
        Peaks("RTX 4090", 1008, None, 82.6, 82.6, 165.2, 165.2, 330.3, "NVIDIA Ada whitepaper"),
    ),
    (
        ("rtx", "4070"),
        Peaks("RTX 4070", 504, None, 29.1, 29.1, 58.3, 58.3, 116.6, "NVIDIA Ada whitepaper"),
    ),
    (
        ("rtx", "3090"),
        Peaks("RTX 3090", 936, None, 35.6, 35.6, 71, 71, None, "NVIDIA GA102 whitepaper"),
    ),
    (
        ("mi355",),
        Peaks("MI355X", 8000, None, 157.3, None, 2516, 2516, 5033, f"{_AMD} (MI355X)"),
    ),
    (
        ("mi325",),
        Peaks("MI325X", 6000, None, 163.4, 653.7, 1307.4, 1307.4, 2614.9, f"{_AMD} (MI325X)"),
    ),
    (
        ("mi300x",),
        Peaks("MI300X", 5300, None, 163.4, 653.7, 1307.4, 1307.4, 2614.9, f"{_AMD} (MI300X)"),
    ),
    (
        ("mi250x",),
        # One of the card's two dies is one device to a program.
        Peaks("MI250X (one die)", 1638, None, 23.9, None, 191.5, 191.5, None, f"{_AMD} (MI250X)"),
    ),
    (
        ("mi250",),
        Peaks("MI250 (one die)", 1638, None, 22.6, None, 181, 181, None, f"{_AMD} (MI250)"),
    ),
)  # fmt: skip


# Words that make another product of the same number.
_VARIANTS = {"laptop", "ti", "super", "mobile", "max"}


def peaks_of(product: str | None) -> Peaks | None:
    """The limits of a device by its recorded product name; None for an unknown device."""
    words = set((product or "").lower().replace("-", " ").replace("_", " ").split())
    if words & _VARIANTS:
        return None
    for wanted, found in _TABLE:
        if all(any(word.startswith(w) for word in words) for w in wanted):
            return found
    return None
