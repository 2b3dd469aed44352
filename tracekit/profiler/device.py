"""The accelerator as the recorder needs it: drained, timed, never initialised by us."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def cuda_in_use() -> bool:
    """True where the program has initialised CUDA in this process.

    Never initialises it: that would break a program that forks workers later, or that sets
    CUDA_VISIBLE_DEVICES itself.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):
        return False
    return bool(torch.cuda.is_initialized())


def capturing() -> bool:
    """True while the current stream is being captured into a CUDA graph (nothing runs then)."""
    if not cuda_in_use():
        return False
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


def drain() -> None:
    """Wait until every GPU this process uses has finished its work; nothing without CUDA."""
    if not cuda_in_use():
        return
    import torch

    current = torch.cuda.current_device()
    torch.cuda.synchronize(current)
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return
    for index in range(torch.cuda.device_count()):
        if index != current and has_context(index):
            torch.cuda.synchronize(index)


def activities() -> list[torch.profiler.ProfilerActivity]:
    """What this process can record: the CPU always, the GPU where the program uses it."""
    from torch.profiler import ProfilerActivity, supported_activities

    wanted = [ProfilerActivity.CPU]
    available = supported_activities()  # type: ignore[no-untyped-call]
    if cuda_in_use() and ProfilerActivity.CUDA in available:
        wanted.append(ProfilerActivity.CUDA)
    return wanted


def mark() -> Any:
    """A timing event in the current stream, or None without CUDA. Does not synchronise."""
    if not cuda_in_use():
        return None
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
