"""The denoising UNet: predicts the noise in a noised image.

Four stages of 128/256/256/256 channels at 32, 16, 8 and 4 pixels, two residual blocks a stage on
the way down and on the way up, self-attention once a stage at 16, 8 and 4 pixels (after the
stage's last block), and a block-attention-block middle. Skips come from the residual blocks only,
not from the input or the strided convolutions. After Ho et al. 2020 (arXiv:2006.11239) with the
scale-and-shift time conditioning of Dhariwal and Nichol 2021 (arXiv:2105.05233).
31,794,691 parameters; 9.85 GFLOP an image forward, of which attention 0.15 (a multiply-add is two).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["UNet", "UNetConfig", "flops_per_image", "parameter_count"]


@dataclass(frozen=True)
class UNetConfig:
    """The shape of the network. ``attention_at`` holds feature-map sizes in pixels."""

    channels: tuple[int, ...] = (128, 256, 256, 256)
    blocks: int = 2
    attention_at: tuple[int, ...] = (16, 8, 4)
    heads: int = 4
    groups: int = 32
    time_channels: int = 512
    dropout: float = 0.1
    image_size: int = 32
    image_channels: int = 3


class ResidualBlock(nn.Module):
    """norm-SiLU-conv, then norm scaled and shifted by the time embedding, SiLU, dropout, conv.

    ``[B, c_in, H, W]`` and ``[B, time_channels]`` to ``[B, c_out, H, W]``.
    """

    def __init__(self, c_in: int, c_out: int, config: UNetConfig) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(config.groups, c_in)
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.film = nn.Linear(config.time_channels, 2 * c_out)
        self.norm2 = nn.GroupNorm(config.groups, c_out)
        self.dropout = nn.Dropout(config.dropout)
        self.conv2 = zeroed(nn.Conv2d(c_out, c_out, 3, padding=1))
        self.shortcut = nn.Identity() if c_in == c_out else nn.Conv2d(c_in, c_out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        w, b = self.film(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        h = (w + 1) * self.norm2(h) + b
        h = self.conv2(self.dropout(F.silu(h)))
        out: Tensor = h + self.shortcut(x)
        return out


class Attention(nn.Module):
    """Multi-head self-attention over the pixels of ``[B, C, H, W]``, added to its input."""

    def __init__(self, channels: int, config: UNetConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = nn.GroupNorm(config.groups, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        # [B, 3C, H, W] -> three of [B, heads, H*W, C/heads]; in NHWC memory this moves nothing.
        qkv: Tensor = self.qkv(self.norm(x)).flatten(2).transpose(1, 2)
        qkv = qkv.reshape(x.shape[0], height * width, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v)
        h = h.transpose(1, 2).flatten(2).transpose(1, 2).reshape(x.shape)
        out: Tensor = x + self.out(h)
        return out


class Stage(nn.Module):
    """The residual blocks of one stage, with attention after the last where configured."""

    def __init__(self, c_ins: list[int], c_out: int, size: int, config: UNetConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock(c_in, c_out, config) for c_in in c_ins)
        attends = size in config.attention_at
        self.attention = Attention(c_out, config) if attends else nn.Identity()


class DownStage(Stage):
    """``[B, c_in, H, W]`` to ``[B, c_out, H, W]`` and the skip of every block, before attention."""

    def forward(self, h: Tensor, time: Tensor) -> tuple[Tensor, list[Tensor]]:
        skips = []
        for block in self.blocks:
            h = block(h, time)
            skips.append(h)
        return self.attention(h), skips


class UpStage(Stage):
    """Each block reads the skip of its mirror block, last first, beside what comes from below."""

    def forward(self, h: Tensor, time: Tensor, skips: list[Tensor]) -> Tensor:
        for block, skip in zip(self.blocks, reversed(skips), strict=True):
            h = block(torch.cat((h, skip), dim=1), time)
        out: Tensor = self.attention(h)
        return out


class UNet(nn.Module):
    """Predicts the noise: images ``[B, 3, 32, 32]`` and times ``[B]`` (int) to ``[B, 3, 32, 32]``.

    Runs in the memory format of its weights and inputs.
    """

    def __init__(self, config: UNetConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or UNetConfig()
        channels, blocks = config.channels, config.blocks
        sizes = [config.image_size >> level for level in range(len(channels))]
        self.time = nn.Sequential(
            nn.Linear(channels[0], config.time_channels),
            nn.SiLU(),
            nn.Linear(config.time_channels, config.time_channels),
        )
        self.stem = nn.Conv2d(config.image_channels, channels[0], 3, padding=1)
        self.down = nn.ModuleList()
        self.downsample = nn.ModuleList()
        for level, c_out in enumerate(channels):
            c_in = channels[max(level - 1, 0)]
            self.down.append(
                DownStage([c_in] + [c_out] * (blocks - 1), c_out, sizes[level], config)
            )
        for c in channels[:-1]:
            self.downsample.append(nn.Conv2d(c, c, 3, stride=2, padding=1))
        self.middle1 = ResidualBlock(channels[-1], channels[-1], config)
        self.middle_attention = Attention(channels[-1], config)
        self.middle2 = ResidualBlock(channels[-1], channels[-1], config)
        self.up = nn.ModuleList()
        self.upsample = nn.ModuleList()
        above = [channels[-1], *reversed(channels)]
        for (c_in, c_out), size in zip(pairwise(above), reversed(sizes), strict=True):
            c_ins = [c_in + c_out] + [2 * c_out] * (blocks - 1)
            self.up.append(UpStage(c_ins, c_out, size, config))
        for c in reversed(channels[1:]):
            self.upsample.append(nn.Conv2d(c, c, 3, padding=1))
        self.out_norm = nn.GroupNorm(config.groups, channels[0])
        self.out_conv = zeroed(nn.Conv2d(channels[0], config.image_channels, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(timestep_embedding(t, self.config.channels[0]))
        h = self.stem(x)
        skips: list[list[Tensor]] = []
        for level, stage in enumerate(self.down):
            h, kept = stage(h, time)
            skips.append(kept)
            if level < len(self.downsample):
                h = self.downsample[level](h)
        h = self.middle2(self.middle_attention(self.middle1(h, time)), time)
        for level, stage in enumerate(self.up):
            h = stage(h, time, skips.pop())
            if level < len(self.upsample):
                h = self.upsample[level](F.interpolate(h, scale_factor=2.0, mode="nearest"))
        out: Tensor = self.out_conv(F.silu(self.out_norm(h)))
        return out


def timestep_embedding(t: Tensor, channels: int) -> Tensor:
    """Sines and cosines of the time at ``channels / 2`` frequencies: ``[B]`` to ``[B, channels]``.

    Frequencies fall geometrically from 1 to 1/10000, as in Vaswani et al. 2017.
    """
    half = channels // 2
    steps = torch.arange(half, dtype=torch.float32, device=t.device)
    angles = t.float()[:, None] * torch.exp(steps * (-math.log(10_000.0) / half))[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def zeroed(conv: nn.Conv2d) -> nn.Conv2d:
    """``conv`` with zero weights: each residual branch, and the network, starts as a zero."""
    nn.init.zeros_(conv.weight)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


def parameter_count(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@cache
def flops_per_image(config: UNetConfig, *, backward: bool) -> int:
    """Operations for one image, a multiply-add being two: convolutions, matrix products, attention.

    Counted by torch's ``FlopCounterMode`` on the meta device, so nothing is computed. Attention is
    counted as its two matrix products (and their four in backward), whichever fused kernel runs.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model = UNet(config)
        x = torch.empty(1, config.image_channels, config.image_size, config.image_size)
        t = torch.empty(1, dtype=torch.int64)
    # The fused attention kernels hide from the counter on some devices; the math path never does.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        out = model(x, t)
        if backward:
            out.sum().backward()
    total: int = counter.get_total_flops()
    return total
