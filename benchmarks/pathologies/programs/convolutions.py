"""Convolutions in the wrong memory order, and a convolutional network with nothing wrong."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.pathologies.case import (
    Build,
    Case,
    Program,
    captured,
    compiled,
    fused_adamw,
    on,
)

Norm = Callable[[int], nn.Module]


def network(channels: int, depth: int, norm: Norm) -> nn.Sequential:
    """Convolution, norm, ReLU, `depth` times at one resolution; then a mean and a classifier."""
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
    for _ in range(depth):
        layers += [
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            norm(channels),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def group_norm(channels: int) -> nn.Module:
    """GroupNorm with 8 channels a group at the GPU's size."""
    return nn.GroupNorm(min(32, channels // 2), channels)


def memory_order(norm: Norm) -> Build:
    """NCHW as built, or channels-last; bf16 autocast both times."""

    def build(variant: str, device: torch.device) -> Case:
        channels, depth, batch, image = on(device, cuda=(256, 4, 128, 32), cpu=(8, 2, 4, 8))
        order = torch.channels_last if variant == "healthy" else torch.contiguous_format
        model = network(channels, depth, norm).to(device).to(memory_format=order)
        optimizer = fused_adamw(model)
        x = torch.randn(batch, 3, image, image, device=device).to(memory_format=order)
        y = torch.arange(batch, device=device) % 10

        def step() -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return Case(step)

    return build


def healthy_network(variant: str, device: torch.device) -> Case:
    """Large batch, channels-last, bf16, compiled, fused AdamW; the twin under one CUDA graph."""
    channels, depth, batch, image = on(device, cuda=(256, 4, 256, 32), cpu=(8, 1, 4, 8))
    model = network(channels, depth, nn.BatchNorm2d).to(device)
    model = model.to(memory_format=torch.channels_last)
    optimizer = fused_adamw(model, capturable=True)
    x = torch.randn(batch, 3, image, image, device=device).to(memory_format=torch.channels_last)
    y = torch.arange(batch, device=device) % 10

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return F.cross_entropy(model(x), y)

    forward = compiled(loss_of, device)

    def step() -> Tensor:
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Case(captured(step, device) if variant == "twin" else step)


PROGRAMS = (
    Program(
        "nchw_batch_norm",
        "NCHW convolutions with BatchNorm",
        ("LAY001",),
        "cuDNN converts around each convolution, and BatchNorm's backward is slow in NCHW.",
        memory_order(nn.BatchNorm2d),
    ),
    Program(
        "nchw_group_norm",
        "NCHW convolutions with GroupNorm",
        ("LAY001",),
        "GroupNorm returns NCHW: channels-last trades conversions for copies around every norm.",
        memory_order(group_norm),
    ),
    Program(
        "healthy_convolutions",
        "none: channels-last, bf16, compiled, fused AdamW",
        (),
        "The GPU is the limit, and its kernels are the right ones.",
        healthy_network,
        twin_tests=("LCH001",),
    ),
)
