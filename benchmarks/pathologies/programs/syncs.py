"""The host waits for the GPU in every step: `.item()`, norms read one by one, masks, branches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.pathologies.case import Build, Case, Program, fused_adamw, half, mlp, on

Size = tuple[int, int, int]
"""layers, width, batch"""

SMALL: Size = (4, 256, 256)  # the host is the limit: about 40 kernels of 2 to 4 us
BALANCED: Size = (10, 1024, 4096)  # host and GPU take about as long
LARGE: Size = (6, 4096, 8192)  # the GPU is the limit: GEMMs of 0.4 ms
TINY: Size = (2, 16, 8)


def item(size: Size) -> Build:
    """The loss is read with `.item()` every step, or summed on the device."""

    def build(variant: str, device: torch.device) -> Case:
        depth, width, batch = on(device, cuda=size, cpu=TINY)
        model = mlp(depth, width, device, half(device))
        optimizer = fused_adamw(model)
        x = torch.randn(batch, width, device=device, dtype=half(device))
        y = torch.randn_like(x)
        on_device = torch.zeros((), device=device)
        on_host = [0.0]

        def step() -> Tensor:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if variant == "faulty":
                on_host[0] += loss.item()
            else:
                on_device.add_(loss.detach())
            return loss.detach()

        return Case(step)

    return build


def gradient_norms(variant: str, device: torch.device) -> Case:
    """`float(p.grad.norm())` of 74 parameters, or all norms at once, left on the device."""
    depth, width, batch = on(device, cuda=(37, 1536, 8192), cpu=(37, 8, 4))
    model = mlp(depth, width, device, half(device))
    optimizer = fused_adamw(model)
    parameters = list(model.parameters())
    x = torch.randn(batch, width, device=device, dtype=half(device))
    y = torch.randn_like(x)

    def step() -> Tensor:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        if variant == "faulty":
            norms = torch.tensor([float(g.norm()) for g in gradients])
        else:
            norms = torch.stack(torch._foreach_norm(gradients))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norms

    return Case(step)


def boolean_mask(variant: str, device: torch.device) -> Case:
    """The mean loss of the rows that count, through `rows[mask]` or through `torch.where`."""
    depth, width, batch = on(device, cuda=BALANCED, cpu=TINY)
    model = mlp(depth, width, device, half(device))
    optimizer = fused_adamw(model)
    x = torch.randn(batch, width, device=device, dtype=half(device))
    y = torch.randn_like(x)
    mask = torch.arange(batch, device=device) % 8 != 0

    def step() -> Tensor:
        rows = F.mse_loss(model(x), y, reduction="none").mean(dim=1)
        if variant == "faulty":
            loss = rows[mask].mean()
        else:
            loss = torch.where(mask, rows, 0.0).sum() / mask.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Case(step)


def nan_branch(size: Size) -> Build:
    """`if loss.isnan(): raise` between forward and backward, or a flag kept on the device."""

    def build(variant: str, device: torch.device) -> Case:
        depth, width, batch = on(device, cuda=size, cpu=TINY)
        model = mlp(depth, width, device, half(device))
        optimizer = fused_adamw(model)
        x = torch.randn(batch, width, device=device, dtype=half(device))
        y = torch.randn_like(x)
        bad = torch.zeros((), device=device, dtype=torch.bool)

        def step() -> Tensor:
            loss = F.mse_loss(model(x), y)
            if variant == "faulty":
                if loss.isnan():
                    raise FloatingPointError("the loss is not a number")
            else:
                bad.logical_or_(loss.isnan())  # read once an epoch
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return Case(step)

    return build


PROGRAMS = (
    Program(
        "item_balanced",
        "loss.item() every step",
        ("SYN001",),
        "Host and GPU take about as long, so without the wait they work side by side.",
        item(BALANCED),
    ),
    Program(
        "item_host_bound",
        "loss.item() every step, small step",
        ("SYN001",),
        "The GPU waits for the host anyway: without the wait little is saved.",
        item(SMALL),
    ),
    Program(
        "item_gpu_bound",
        "loss.item() every step, large step",
        ("SYN001",),
        "The GPU idles only until the next step's first launches arrive: a note at most.",
        item(LARGE),
    ),
    Program(
        "gradient_norms",
        "float(p.grad.norm()) of 74 parameters",
        ("SYN001", "FUS003"),
        "The GPU is empty after the first read, and each of the others is a round trip.",
        gradient_norms,
        steps=2,
    ),
    Program(
        "boolean_mask",
        "rows[mask].mean()",
        ("SYN001",),
        "The size of rows[mask] is known only on the GPU: nonzero waits, before the backward pass.",
        boolean_mask,
    ),
    Program(
        "nan_branch",
        "if loss.isnan()",
        ("SYN001",),
        "The branch waits for the forward pass before the backward pass can be launched.",
        nan_branch(BALANCED),
    ),
    Program(
        "nan_branch_gpu_bound",
        "if loss.isnan(), large step",
        ("SYN001",),
        "The same wait under GEMMs of 0.4 ms: the GPU idles for two launches.",
        nan_branch(LARGE),
    ),
)
