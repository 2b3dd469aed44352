"""float32 matrix work that the tensor cores could do in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.pathologies.case import Case, Program, fused_adamw, mlp, on


@contextmanager
def matmul_tf32(allow: bool) -> Iterator[None]:
    """TF32 for float32 GEMMs inside, as before outside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allow else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def convolution_tf32(allow: bool) -> Iterator[None]:
    """TF32 for cuDNN's float32 convolutions inside, as before outside."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allow
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def gemm(variant: str, device: torch.device) -> Case:
    """An MLP in float32."""
    depth, width, batch = on(device, cuda=(2, 4096, 2048), cpu=(2, 16, 8))
    model = mlp(depth, width, device, torch.float32)
    optimizer = fused_adamw(model)
    x = torch.randn(batch, width, device=device)
    y = torch.randn_like(x)

    def step() -> Tensor:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    if device.type != "cuda":
        return Case(step, nullcontext)
    return Case(step, lambda: matmul_tf32(variant == "healthy"))


def convolution(variant: str, device: torch.device) -> Case:
    """Four 3x3 convolutions in float32, channels-last so that no layout conversion is involved."""
    channels, batch, image = on(device, cuda=(128, 64, 32), cpu=(4, 2, 8))
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Conv2d(channels, channels, 3, padding=1, device=device), nn.ReLU()]
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    optimizer = fused_adamw(model)
    x = torch.randn(batch, channels, image, image, device=device)
    x = x.to(memory_format=torch.channels_last)

    def step() -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    if device.type != "cuda":
        return Case(step, nullcontext)
    return Case(step, lambda: convolution_tf32(variant == "healthy"))


PROGRAMS = (
    Program(
        "fp32_gemm",
        "float32 GEMMs without TF32",
        ("PRE001",),
        "float32 GEMMs run outside the tensor cores until TF32 is allowed.",
        gemm,
    ),
    Program(
        "fp32_convolution",
        "float32 convolutions without TF32",
        ("PRE001",),
        "cuDNN allows TF32 by default; here it was switched off.",
        convolution,
    ),
)
