"""Optimizers that launch too much or pass over memory too often."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.pathologies.case import Build, Case, Program, mlp, on

Size = tuple[int, int, int]
"""layers, width, batch"""


def adamw(size: Size, faulty: dict[str, Any]) -> Build:
    """AdamW with the faulty arguments, or fused; float32, so that both round alike."""

    def build(variant: str, device: torch.device) -> Case:
        depth, width, batch = on(device, cuda=size, cpu=(3, 16, 8))
        model = mlp(depth, width, device, torch.float32)
        arguments: dict[str, Any] = faulty if variant == "faulty" else {"fused": True}
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **arguments)
        x = torch.randn(batch, width, device=device)
        y = torch.randn_like(x)

        def step() -> Tensor:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return Case(step)

    return build


PROGRAMS = (
    Program(
        "single_tensor_optimizer",
        "AdamW(foreach=False)",
        ("FUS002",),
        "About ten launches for each of 16 parameters, where two would do for all.",
        adamw((8, 512, 256), {"foreach": False}),
    ),
    Program(
        "foreach_optimizer_small",
        "AdamW(foreach=True), small parameters",
        ("FUS002",),
        "A dozen foreach calls, each with host work over all parameters.",
        adamw((8, 512, 256), {"foreach": True}),
    ),
    Program(
        "foreach_optimizer_large",
        "AdamW(foreach=True), 67 M parameters",
        ("FUS002",),
        "Every foreach call passes over all parameters in memory: about 20 passes, fused 7.",
        adamw((4, 4096, 128), {"foreach": True}),
    ),
)
