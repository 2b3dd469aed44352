"""What the recording ran on: versions, GPU and its clocks, rank. Read, never changed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass

from tracekit.profiler import device
from tracekit.profiler.manifest import Gpu

_QUERY = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
}


@dataclass(frozen=True)
class Rank:
    """This process's place in a distributed job (0 of 1 outside one)."""

    rank: int
    world_size: int


def rank() -> Rank:
    """Read from RANK and WORLD_SIZE, which torchrun sets."""
    try:
        return Rank(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    except ValueError:
        return Rank(0, 1)


def versions() -> dict[str, str | None]:
    """Versions of what ran; None for what is absent. Imports nothing that was not imported."""
    import tracekit

    found: dict[str, str | None] = {
        "tracekit": getattr(tracekit, "__version__", None),
        "python": platform.python_version(),
        "torch": None,
        "cuda": None,
        "cudnn": None,
        "triton": None,
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        found["cuda"] = torch.version.cuda
        if device.cuda_in_use() and torch.backends.cudnn.is_available():
            found["cudnn"] = _cudnn(torch.backends.cudnn.version())
    triton = sys.modules.get("triton")
    if triton is not None:
        found["triton"] = getattr(triton, "__version__", None)
    return found


def _cudnn(number: int) -> str:
    """91900 to "9.19.0"; before version 9 the number had one digit less (8902 is 8.9.2)."""
    unit = 10_000 if number >= 90_000 else 1_000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def gpu() -> Gpu | None:
    """The current CUDA device with its clocks as found, or None where CUDA is not in use."""
    if not device.cuda_in_use():
        return None
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(getattr(properties, "uuid", "") or "")
    found = _nvidia_smi(uuid)
    return Gpu(
        name=properties.name,
        memory_bytes=int(properties.total_memory),
        multiprocessors=int(properties.multi_processor_count),
        compute_capability=f"{properties.major}.{properties.minor}",
        driver=found.pop("driver_version", None),
        found={key: float(value) for key, value in found.items()},
    )


def _nvidia_smi(uuid: str) -> dict[str, str]:
    """Clocks in MHz, power limit in W, temperature; empty where nvidia-smi does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    fields = [*_QUERY.values(), "driver_version"]
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if uuid:
        command.append(f"--id={uuid if uuid.startswith('GPU-') else 'GPU-' + uuid}")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = answer.stdout.strip().splitlines()
    if len(lines) != 1:
        return {}
    values = [value.strip() for value in lines[0].split(",")]
    if len(values) != len(fields):
        return {}
    found = {}
    for key, value in zip([*_QUERY, "driver_version"], values, strict=True):
        if key == "driver_version" or _is_number(value):
            found[key] = value
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
