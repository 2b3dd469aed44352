"""Noising, loss and sampling, against closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tracekit.workload.diffusion import Schedule, denoising_loss, sample_ddim, sample_ddpm
from tracekit.workload.errors import WorkloadError

SHAPE = (2, 3, 8, 8)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return Schedule("cpu")


def test_the_schedule_runs_from_almost_clean_to_almost_noise(schedule: Schedule) -> None:
    assert schedule.beta[0].item() == pytest.approx(1e-4)
    assert schedule.beta[-1].item() == pytest.approx(0.02)
    assert schedule.signal[0].item() == pytest.approx((1 - 1e-4) ** 0.5)
    assert schedule.alpha_bar[-1].item() == pytest.approx(4.04e-5, rel=0.01)
    torch.testing.assert_close(schedule.signal**2 + schedule.noise**2, torch.ones(1000))


def test_noised_images_keep_their_variance(schedule: Schedule) -> None:
    torch.manual_seed(0)
    x0, noise = torch.randn(1000, 3, 8, 8), torch.randn(1000, 3, 8, 8)
    x_t = schedule.add_noise(x0, noise, torch.arange(1000))
    assert x_t.var().item() == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(x_t[0], x0[0] * (1 - 1e-4) ** 0.5 + noise[0] * 0.01)


def test_the_loss_is_the_error_of_the_predicted_noise(schedule: Schedule) -> None:
    x0, noise, t = torch.zeros(SHAPE), torch.full(SHAPE, 3.0), torch.tensor([0, 9])
    loss = denoising_loss(lambda x, t: torch.ones_like(x), schedule, x0, t, noise)
    assert loss.item() == pytest.approx(4.0)


class Oracle:
    """Knows the image, so predicts exactly the noise that hides it."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.image = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)) * 2 - 1
        self.calls = 0

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        self.calls += 1
        signal, noise = (table[t][:, None, None, None] for table in (
            self.schedule.signal, self.schedule.noise))  # fmt: skip
        return (x - signal * self.image) / noise


@pytest.mark.parametrize("steps", [1, 7, 50])
def test_ddim_finds_the_image_that_the_model_knows(schedule: Schedule, steps: int) -> None:
    oracle = Oracle(schedule)
    found = sample_ddim(oracle, schedule, SHAPE, torch.Generator().manual_seed(0), steps)
    assert oracle.calls == steps
    torch.testing.assert_close(found, oracle.image, rtol=0, atol=1e-3)


def test_ddpm_finds_the_image_that_the_model_knows(schedule: Schedule) -> None:
    oracle = Oracle(schedule)
    found = sample_ddpm(oracle, schedule, SHAPE, torch.Generator().manual_seed(0))
    assert oracle.calls == 1000
    torch.testing.assert_close(found, oracle.image, rtol=0, atol=1e-3)


def test_samples_stay_in_range_whatever_the_model_says(schedule: Schedule) -> None:
    random = torch.Generator().manual_seed(0)
    found = sample_ddim(lambda x, t: 9 * x, schedule, SHAPE, random, 5)
    assert found.shape == SHAPE
    assert found.abs().max() <= 1


@pytest.mark.parametrize("steps", [0, 1001])
def test_ddim_refuses_impossible_step_counts(schedule: Schedule, steps: int) -> None:
    with pytest.raises(WorkloadError, match=f"1 to 1000 steps, not {steps}"):
        sample_ddim(lambda x, t: x, schedule, SHAPE, torch.Generator(), steps)
