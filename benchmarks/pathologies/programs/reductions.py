"""Many small reductions where one over all tensors would do."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.pathologies.case import Case, Program, fused_adamw, half, mlp, on


def per_tensor_sums(variant: str, device: torch.device) -> Case:
    """Clipping by the total norm, summed tensor by tensor or with one foreach norm."""
    depth, width, batch = on(device, cuda=(10, 1024, 2048), cpu=(3, 16, 8))
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
            total = torch.zeros((), device=device)
            for gradient in gradients:
                total += gradient.square().sum()
            norm = total.sqrt()
        else:
            norms = torch._foreach_norm(gradients)
            norm = torch.linalg.vector_norm(torch.stack(norms).float())
        torch._foreach_mul_(gradients, (1.0 / norm).clamp(max=1.0).to(half(device)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    return Case(step)


def separate_sums(variant: str, device: torch.device) -> Case:
    """2,000 tensors summed one by one, or as the rows of one."""
    count, size = on(device, cuda=(2000, 4096), cpu=(20, 16))
    table = torch.randn(count, size, device=device)
    tensors = list(table.unbind())

    def step() -> Tensor:
        if variant == "faulty":
            return torch.stack([tensor.sum() for tensor in tensors])
        return table.sum(dim=1)

    return Case(step)


PROGRAMS = (
    Program(
        "per_tensor_sums",
        "gradient.square().sum() of 20 gradients one by one",
        ("FUS003",),
        "Three launches a gradient, where a foreach norm takes three for all.",
        per_tensor_sums,
    ),
    Program(
        "separate_sums",
        "2,000 separate sums",
        ("FUS003",),
        "2,000 launches of kernels of 2 us: the step is nothing but launches.",
        separate_sums,
        steps=1,
    ),
)
