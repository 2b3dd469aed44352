"""What the ladder ran on: device, versions, and the clocks as they were found."""

from __future__ import annotations

import platform
import shutil
import subprocess
from typing import Any

import torch

from tracekit.analysis.device_peaks import peaks_of

__all__ = ["describe_machine", "peak_tflops"]

CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "power.limit")
"""Fields asked of nvidia-smi: MHz and watts."""


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Names, versions and clocks; ``gpu`` is None on the CPU, ``clocks`` without nvidia-smi."""
    on_gpu = device.type == "cuda"
    gpu = torch.cuda.get_device_name(device) if on_gpu else None
    peaks = peaks_of(gpu)
    return {
        "gpu": gpu,
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,  # type: ignore[no-untyped-call]
        "clocks": clocks(device.index or 0) if on_gpu else None,
        "peak_tflops": peaks.bf16 if peaks else None,
        "peak_source": f"dense bf16, {peaks.source}" if peaks else None,
    }


def peak_tflops(gpu: str | None) -> float | None:
    """Dense bf16 TFLOP/s of the device; None for an unknown one."""
    peaks = peaks_of(gpu)
    return peaks.bf16 if peaks else None


def clocks(index: int) -> dict[str, str] | None:
    """``CLOCKS`` as nvidia-smi reports them with units; None where it does not run."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, f"--id={index}", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(CLOCKS, (value.strip() for value in answer.stdout.split(",")), strict=False))
