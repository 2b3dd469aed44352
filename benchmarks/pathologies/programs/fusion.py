"""Elementwise chains that each go through memory, and what graph breaks do to fused ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.pathologies.case import Build, Case, Program, compiled, fused_adamw, half, on


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return F.silu(gate) * up


def add_rms_norm(residual: Tensor, update: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm of the sum by hand, in float32."""
    h = (residual + update).float()
    h = h * (h.pow(2).mean(dim=-1, keepdim=True) + 1e-6).rsqrt()
    return h.to(residual.dtype) * weight


class FeedForward(nn.Module):
    """Gate and up projection, SwiGLU, down projection, residual and RMSNorm."""

    def __init__(
        self,
        width: int,
        activate: Callable[..., Tensor],
        normalise: Callable[..., Tensor],
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, width, bias=False)
        self.down = nn.Linear(width, width, bias=False)
        self.weight = nn.Parameter(torch.ones(width))
        self.activate = activate
        self.normalise = normalise

    def forward(self, x: Tensor) -> Tensor:
        h = self.activate(self.gate(x), self.up(x))
        return self.normalise(x, self.down(h), self.weight)


def tail(*, training: bool) -> Build:
    """Two feed-forward blocks whose elementwise tails are eager, or compiled."""

    def build(variant: str, device: torch.device) -> Case:
        tokens, width = on(device, cuda=(16384, 2048), cpu=(8, 16))
        activate, normalise = swiglu, add_rms_norm
        if variant == "healthy":
            activate, normalise = compiled(swiglu, device), compiled(add_rms_norm, device)
        with device:
            model = nn.Sequential(*(FeedForward(width, activate, normalise) for _ in range(2)))
        model = model.to(half(device))
        x = torch.randn(tokens, width, device=device, dtype=half(device))
        if not training:

            def infer() -> Tensor:
                with torch.no_grad():
                    return model(x)

            return Case(infer)
        optimizer = fused_adamw(model)
        y = torch.randn_like(x)

        def step() -> Tensor:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return Case(step)

    return build


def group_norm(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GroupNorm with a single group."""
    return F.group_norm(h, 1, weight, bias)


def slow_group_norm(variant: str, device: torch.device) -> Case:
    """GroupNorm of few, large groups: one block of threads each, or Inductor's split reduction.

    Linear layers between the norms, not convolutions, which would bring layout conversions.
    """
    channels, batch, image = on(device, cuda=(64, 4, 256), cpu=(4, 2, 8))
    with device:
        layers = [nn.Linear(image, image).to(half(device)) for _ in range(3)]
        norms = [nn.GroupNorm(1, channels).to(half(device)) for _ in range(3)]
    x = torch.randn(batch, channels, image, image, device=device, dtype=half(device))
    normalise = compiled(group_norm, device) if variant == "healthy" else group_norm

    def step() -> Tensor:
        h = x
        with torch.no_grad():
            for layer, norm in zip(layers, norms, strict=True):
                h = F.relu(normalise(layer(h), norm.weight, norm.bias))
        return h

    return Case(step)


def stage(h: Tensor, weight: Tensor) -> Tensor:
    """A few elementwise ops and a norm: one or two kernels once compiled."""
    return F.layer_norm(h + F.gelu(h) * weight, h.shape[-1:])


@torch.compiler.disable
def log_shape(h: Tensor) -> None:
    """Stands for a log call, which the compiler must leave its graph for."""
    assert h.dim() == 2


# Two functions, not one with an argument: compiled code belongs to the function, and the variant
# without breaks would run what was compiled for the other. Written out: a break inside a loop
# would make Dynamo give up on the whole function.
def six_stages(h: Tensor, weight: Tensor) -> Tensor:
    """Six stages and a loss."""
    h = stage(h, weight)
    h = stage(h, weight)
    h = stage(h, weight)
    h = stage(h, weight)
    h = stage(h, weight)
    h = stage(h, weight)
    return h.square().mean()


def six_logged_stages(h: Tensor, weight: Tensor) -> Tensor:
    """The same with a log call after each stage."""
    h = stage(h, weight)
    log_shape(h)
    h = stage(h, weight)
    log_shape(h)
    h = stage(h, weight)
    log_shape(h)
    h = stage(h, weight)
    log_shape(h)
    h = stage(h, weight)
    log_shape(h)
    h = stage(h, weight)
    log_shape(h)
    return h.square().mean()


def graph_breaks(variant: str, device: torch.device) -> Case:
    """Six stages compiled as one region, or cut into seven by a log call after each."""
    rows, width = on(device, cuda=(2048, 1024), cpu=(8, 16))
    weight = nn.Parameter(torch.ones(width, device=device))
    x = torch.randn(rows, width, device=device)
    optimizer = torch.optim.AdamW([weight], lr=1e-4, fused=True)
    healthy = variant == "healthy"
    run = compiled(six_stages if healthy else six_logged_stages, device, fullgraph=healthy)

    def step() -> Tensor:
        loss = run(x, weight)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Case(step)


PROGRAMS = (
    Program(
        "eager_tail",
        "eager SwiGLU and RMSNorm, forward and backward",
        ("FUS001",),
        "Each op of the tail reads and writes the whole activation.",
        tail(training=True),
    ),
    Program(
        "eager_tail_inference",
        "eager SwiGLU and RMSNorm, forward only",
        ("FUS001",),
        "The same chain without autograd's saved tensors.",
        tail(training=False),
    ),
    Program(
        "slow_group_norm",
        "GroupNorm with one group on four images",
        ("NRM001",),
        "Four blocks of threads reduce 32 MB while the rest of the GPU waits.",
        slow_group_norm,
    ),
    Program(
        "graph_breaks",
        "six graph breaks in a compiled function",
        ("CMP002",),
        "Seven small regions: nothing fuses across them, and each pays guards and autograd.",
        graph_breaks,
    ),
)
