"""Denoising diffusion: the noise schedule, the training loss and the two samplers.

Notation of Ho et al. 2020 (arXiv:2006.11239): x0 an image in [-1, 1], t in 0..T-1, noise ~ N(0, I),
``x_t = sqrt(alpha_bar_t) x0 + sqrt(1 - alpha_bar_t) noise``. The network predicts the noise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tracekit.workload.errors import WorkloadError

__all__ = ["TIMESTEPS", "Denoiser", "Schedule", "denoising_loss", "sample_ddim", "sample_ddpm"]

TIMESTEPS = 1000

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""Images ``[B, 3, H, W]`` and times ``[B]`` to the predicted noise ``[B, 3, H, W]``."""


class Schedule:
    """The linear schedule: beta from 1e-4 to 0.02 over 1000 steps, as float32 tables ``[T]``."""

    def __init__(self, device: torch.device | str) -> None:
        # Products of 1000 factors near one: in float64, then rounded once.
        beta = torch.linspace(1e-4, 0.02, TIMESTEPS, dtype=torch.float64)
        alpha_bar = torch.cumprod(1 - beta, dim=0)
        self.beta = beta.float().to(device)
        self.alpha_bar = alpha_bar.float().to(device)
        self.signal = alpha_bar.sqrt().float().to(device)
        self.noise = (1 - alpha_bar).sqrt().float().to(device)

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """``x_t`` of each image: ``[B, 3, H, W]``, ``[B, 3, H, W]``, ``[B]``."""
        signal = self.signal[t][:, None, None, None]
        return signal * x0 + self.noise[t][:, None, None, None] * noise


def denoising_loss(
    model: Denoiser,
    schedule: Schedule,
    x0: Tensor,
    t: Tensor,
    noise: Tensor,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Mean squared error of the predicted noise: a float32 scalar.

    ``autocast`` runs the network in that type; the noising and the error stay in float32.
    """
    x_t = schedule.add_noise(x0, noise, t)
    with torch.autocast(x0.device.type, dtype=autocast, enabled=autocast is not None):
        predicted = model(x_t, t)
    return F.mse_loss(predicted.float(), noise)


@torch.no_grad()
def sample_ddpm(
    model: Denoiser,
    schedule: Schedule,
    shape: tuple[int, int, int, int],
    generator: torch.Generator,
) -> Tensor:
    """Images ``shape`` in [-1, 1] by all 1000 ancestral steps (Ho et al. 2020, algorithm 2).

    The variance is beta_t; the predicted x0 is clipped to [-1, 1] at every step.
    """
    device = schedule.beta.device
    x = torch.randn(shape, generator=generator, device=device)
    for step in range(TIMESTEPS - 1, -1, -1):
        t = torch.full((shape[0],), step, device=device, dtype=torch.int64)
        x0 = predicted_x0(model, schedule, x, t)
        if step == 0:
            return x0
        beta, bar = schedule.beta[step], schedule.alpha_bar[step]
        before = schedule.alpha_bar[step - 1]
        # Posterior mean of x_{t-1} given x_t and the predicted x0 (equation 7).
        mean = (before.sqrt() * beta * x0 + (1 - beta).sqrt() * (1 - before) * x) / (1 - bar)
        x = mean + beta.sqrt() * torch.randn(shape, generator=generator, device=device)
    return x


@torch.no_grad()
def sample_ddim(
    model: Denoiser,
    schedule: Schedule,
    shape: tuple[int, int, int, int],
    generator: torch.Generator,
    steps: int = 50,
) -> Tensor:
    """Images ``shape`` in [-1, 1] by ``steps`` deterministic steps (Song et al. 2021, eta = 0).

    Raises ``WorkloadError`` unless 1 <= steps <= 1000.
    """
    if not 1 <= steps <= TIMESTEPS:
        raise WorkloadError(f"DDIM takes 1 to {TIMESTEPS} steps, not {steps}.")
    device = schedule.beta.device
    x = torch.randn(shape, generator=generator, device=device)
    times = torch.linspace(TIMESTEPS - 1, 0, steps, dtype=torch.float64).round().long().tolist()
    for step, following in zip(times, [*times[1:], -1], strict=True):
        t = torch.full((shape[0],), step, device=device, dtype=torch.int64)
        x0 = predicted_x0(model, schedule, x, t)
        if following < 0:
            return x0
        noise = (x - schedule.signal[step] * x0) / schedule.noise[step]
        x = schedule.signal[following] * x0 + schedule.noise[following] * noise
    return x


def predicted_x0(model: Denoiser, schedule: Schedule, x: Tensor, t: Tensor) -> Tensor:
    """The clean image that the model sees in ``x`` at time ``t``, clipped to [-1, 1]."""
    noise = model(x, t).float()
    signal = schedule.signal[t][:, None, None, None]
    return ((x - schedule.noise[t][:, None, None, None] * noise) / signal).clamp(-1, 1)
