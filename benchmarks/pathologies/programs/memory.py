"""The caching allocator emptied every step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.pathologies.case import Case, Program, fused_adamw, half, mlp, on


def empty_cache(variant: str, device: torch.device) -> Case:
    """`torch.cuda.empty_cache()` at the end of each step, or not."""
    depth, width, batch = on(device, cuda=(8, 2048, 8192), cpu=(2, 16, 8))
    model = mlp(depth, width, device, half(device))
    optimizer = fused_adamw(model)
    x = torch.randn(batch, width, device=device, dtype=half(device))
    y = torch.randn_like(x)

    def step() -> Tensor:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if variant == "faulty":
            torch.cuda.empty_cache()
        return loss.detach()

    return Case(step)


PROGRAMS = (
    Program(
        "empty_cache",
        "torch.cuda.empty_cache() every step",
        ("MEM001",),
        "cudaFree waits for the GPU, and the next step asks the driver for all its memory again.",
        empty_cache,
    ),
)
