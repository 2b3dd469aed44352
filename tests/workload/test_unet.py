"""The network: its size, its cost, its memory format."""

from __future__ import annotations

import torch

from tests.workload.small import SMALL
from tracekit.workload.unet import (
    UNet,
    UNetConfig,
    flops_per_image,
    parameter_count,
    timestep_embedding,
)


def test_parameter_count() -> None:
    with torch.device("meta"):
        assert parameter_count(UNet()) == 31_794_691


def test_forward_flops_with_and_without_attention() -> None:
    forward = flops_per_image(UNetConfig(), backward=False)
    assert forward == 9_853_337_600
    # By hand: at H*W pixels, 2 products of 2 * pixels^2 * 256 operations, down and up once each,
    # and the middle once more at 16 pixels.
    attention = sum(2 * 2 * pixels**2 * 256 * n for pixels, n in ((256, 2), (64, 2), (16, 3)))
    assert round((forward - attention) / 1e9, 1) == 9.7


def test_backward_costs_twice_the_forward_but_for_the_stem() -> None:
    forward = flops_per_image(UNetConfig(), backward=False)
    both = flops_per_image(UNetConfig(), backward=True)
    # The first convolution and the time embedding's first layer have no input to differentiate.
    stem = 2 * 32 * 32 * 3 * 9 * 128 + 2 * 128 * 512
    assert both == 3 * forward - stem


def test_predicts_nothing_at_first_in_the_shape_of_the_images() -> None:
    model = UNet(SMALL.unet)
    out = model(torch.randn(2, 3, 32, 32), torch.tensor([0, 999]))
    assert out.shape == (2, 3, 32, 32)
    assert not out.any()


def test_channels_last_stays_channels_last_and_means_the_same() -> None:
    torch.manual_seed(0)
    model = UNet(SMALL.unet).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x, t = torch.randn(2, 3, 32, 32), torch.tensor([3, 500])
    plain = model(x, t)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    out = model(x.to(memory_format=torch.channels_last), t)
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, plain, rtol=1e-3, atol=1e-3)


def test_each_time_has_its_own_embedding() -> None:
    embedding = timestep_embedding(torch.arange(1000), 128)
    assert embedding.shape == (1000, 128)
    torch.testing.assert_close(embedding[0], torch.cat((torch.zeros(64), torch.ones(64))))
    assert torch.pdist(embedding).min() > 0.1
