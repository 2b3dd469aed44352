"""The average of the weights against its closed form."""

from __future__ import annotations

import pytest
import torch

from tracekit.workload.ema import EMA


def test_warm_up_is_the_growing_decay_in_closed_form() -> None:
    weight = torch.zeros(4)
    ema = EMA([weight], decay=0.999)
    expected = torch.zeros(4)
    for n in range(1, 301):
        weight.copy_(torch.full((4,), float(n)))
        ema.update()
        effective = 1 - (1 - 0.999) / (1 - 0.999**n)
        expected = effective * expected + (1 - effective) * weight
    torch.testing.assert_close(ema.weights()[0], expected, rtol=1e-4, atol=0)


def test_the_first_update_forgets_the_initial_weights() -> None:
    weight = torch.tensor([5.0])
    ema = EMA([weight], decay=0.999)
    weight.fill_(-3.0)
    ema.update()
    assert ema.weights()[0].item() == pytest.approx(-3, rel=1e-4)


def test_early_it_is_nearly_the_mean_and_late_the_plain_average() -> None:
    weight = torch.zeros(1)
    ema = EMA([weight], decay=0.9)
    for n in range(3):
        weight.fill_(float(n))
        ema.update()
    assert ema.weights()[0].item() == pytest.approx(1, abs=0.1)
    for _ in range(200):
        weight.fill_(7.0)
        ema.update()
    assert ema.weights()[0].item() == pytest.approx(7, rel=1e-5)


def test_before_any_update_it_is_the_weights() -> None:
    weight = torch.tensor([2.0])
    assert EMA([weight]).weights()[0].item() == 2


def test_the_update_reads_no_number_that_a_graph_would_freeze() -> None:
    # Replaying the recorded operations is what a CUDA graph does: the same constants each time.
    from torch.fx.experimental.proxy_tensor import make_fx

    def update(average: torch.Tensor, count: torch.Tensor, weight: torch.Tensor) -> None:
        ema = EMA([weight], decay=0.9)
        ema.averages, ema.updates = [average], count
        ema.update()

    average, count = torch.zeros(2), torch.zeros((), dtype=torch.float64)
    replay = make_fx(update)(average.clone(), count.clone(), torch.ones(2))
    for value in (1.0, 2.0, 3.0):
        replay(average, count, torch.full((2,), value))
    ema = EMA([torch.zeros(2)], decay=0.9)
    ema.load([average], count, 0.9)
    plain = (1.0 * 0.81 + 2.0 * 0.9 + 3.0) * 0.1 / (1 - 0.9**3)
    assert ema.weights()[0][0].item() == pytest.approx(plain)


def test_keeps_the_memory_format() -> None:
    weight = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert EMA([weight]).averages[0].is_contiguous(memory_format=torch.channels_last)
