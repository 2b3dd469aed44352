"""Steps of tiny kernels, where the GPU waits for launches; and steps where it does not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.pathologies.case import (
    Case,
    Program,
    captured,
    compiled,
    fused_adamw,
    half,
    mlp,
    on,
)


class Block(nn.Module):
    """A transformer block: attention and MLP, each after a LayerNorm."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


def tiny_mlp(variant: str, device: torch.device) -> Case:
    """A training step of kernels of 2 us, launched one by one or as one CUDA graph."""
    depth, width, batch = on(device, cuda=(6, 128, 64), cpu=(2, 16, 8))
    model = mlp(depth, width, device, torch.float32)
    return training(model, (batch, width), torch.float32, device, graph=variant == "healthy")


def big_mlp(variant: str, device: torch.device) -> Case:
    """A healthy eager training step of large GEMMs; the twin under one CUDA graph."""
    depth, width, batch = on(device, cuda=(6, 4096, 8192), cpu=(2, 16, 8))
    model = mlp(depth, width, device, half(device))
    return training(model, (batch, width), half(device), device, graph=variant == "twin")


def gpt(variant: str, device: torch.device) -> Case:
    """Two compiled GPT blocks in bf16 on 8,192 tokens; the twin under one CUDA graph."""
    width, heads, batch, length = on(device, cuda=(2048, 16, 8, 1024), cpu=(16, 2, 2, 4))
    with device:
        model = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(2)))
    model = model.to(half(device))
    shape = (batch, length, width)
    return training(model, shape, half(device), device, graph=variant == "twin", compile_it=True)


def training(
    model: nn.Module,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    *,
    graph: bool,
    compile_it: bool = False,
) -> Case:
    """Forward, backward and fused AdamW on one static batch."""
    optimizer = fused_adamw(model, capturable=True)
    x = torch.randn(*shape, device=device, dtype=dtype)
    y = torch.randn_like(x)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(model(x), y)

    forward = compiled(loss_of, device) if compile_it else loss_of

    def step() -> Tensor:
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Case(captured(step, device) if graph else step)


def tiny_inference(variant: str, device: torch.device) -> Case:
    """Four transformer blocks on 16 tokens, launched one by one or as one CUDA graph."""
    width, heads, length = on(device, cuda=(512, 8, 16), cpu=(16, 2, 4))
    with device:
        model = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(4)))
    model = model.to(half(device))
    x = torch.randn(1, length, width, device=device, dtype=half(device))

    def step() -> Tensor:
        with torch.no_grad():
            return model(x)

    return Case(captured(step, device) if variant == "healthy" else step)


PROGRAMS = (
    Program(
        "tiny_mlp",
        "a training step of tiny kernels launched one by one",
        ("LCH001",),
        "Launching takes several times as long as computing.",
        tiny_mlp,
    ),
    Program(
        "tiny_inference",
        "a small transformer's forward pass launched op by op",
        ("LCH001",),
        "The same without autograd and optimizer.",
        tiny_inference,
    ),
    Program(
        "healthy_mlp",
        "none: eager GEMMs of 0.4 ms",
        (),
        "Eager is no fault where the GPU is the limit.",
        big_mlp,
        twin_tests=("LCH001",),
    ),
    Program(
        "healthy_gpt",
        "none: compiled GPT blocks in bf16, fused AdamW",
        (),
        "The GPU is the limit, and its kernels are the right ones.",
        gpt,
        twin_tests=("LCH001",),
    ),
)
