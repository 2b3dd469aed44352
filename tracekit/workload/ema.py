"""Exponential moving average of the weights, with a warm-up that a CUDA graph cannot freeze.

A plain EMA that starts at the random initial weights needs a decay that grows during training, and
a decay that changes every step is a Python number that a captured graph would repeat for ever
(``torch._foreach_lerp_`` takes no tensor weight). So the running average starts at zero, uses one
constant decay d, and is divided by ``1 - d**n`` when it is read, as Adam does with its moments.
That is exactly the average with the growing effective decay ``1 - (1 - d) / (1 - d**n)``: after
one update it is the weights themselves, then nearly their plain mean, then the EMA of decay d.
Only the count n changes, and it lives on the device, incremented inside the graph.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["EMA"]


class EMA:
    """The averages of ``parameters``, in float32 and in each parameter's memory format.

    One multi-tensor kernel chain an update; nothing is read back to the host.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float = 0.999) -> None:
        self.parameters = list(parameters)
        self.decay = decay
        # zeros_like keeps the strides: equal strides are what the multi-tensor kernels ask for.
        self.averages = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        device = self.parameters[0].device
        self.updates = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self) -> None:
        """Take the present weights into the average."""
        torch._foreach_lerp_(self.averages, self.parameters, 1 - self.decay)
        self.updates.add_(1)

    @torch.no_grad()
    def weights(self) -> list[Tensor]:
        """The averaged weights, in the order of ``parameters``; the weights if never updated.

        Waits for the device.
        """
        updates = float(self.updates)
        if updates == 0:
            return [p.detach().clone() for p in self.parameters]
        scale = 1 / (1 - self.decay**updates)
        return [average * scale for average in self.averages]

    def state(self) -> dict[str, object]:
        """What a checkpoint keeps: the raw averages and the number of updates."""
        return {"averages": self.averages, "updates": self.updates, "decay": self.decay}

    @torch.no_grad()
    def load(self, averages: list[Tensor], updates: Tensor, decay: float) -> None:
        """Take over a checkpoint's state in place, so that a captured graph keeps its addresses."""
        for mine, saved in zip(self.averages, averages, strict=True):
            mine.copy_(saved)
        self.updates.copy_(updates)
        self.decay = decay
