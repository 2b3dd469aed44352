"""From a checkpoint to a grid of images: sampling with the EMA weights, and a PNG writer."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from tracekit.workload.checkpoint import read_checkpoint
from tracekit.workload.diffusion import Schedule, sample_ddim, sample_ddpm
from tracekit.workload.errors import WorkloadError
from tracekit.workload.train_step import PRESETS
from tracekit.workload.unet import UNet

__all__ = ["grid", "png", "sample_checkpoint"]


def sample_checkpoint(
    path: str | Path,
    count: int = 64,
    *,
    sampler: str = "ddim",
    steps: int = 50,
    seed: int = 0,
    device: str = "cpu",
) -> npt.NDArray[np.uint8]:
    """``count`` images uint8 ``[count, 3, 32, 32]`` from the checkpoint's averaged weights.

    ``sampler`` is ``ddim`` (``steps`` steps) or ``ddpm`` (all 1000). Raises ``WorkloadError``.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise WorkloadError("No CUDA GPU was found; --device cpu samples without one.")
    state = read_checkpoint(path)
    config = PRESETS[state["preset"]].unet
    model = UNet(config)
    model.load_state_dict(state["model"])
    updates = float(state["ema"]["updates"])
    if updates:
        scale = 1 / (1 - state["ema"]["decay"] ** updates)  # as in EMA.weights
        with torch.no_grad():
            for parameter, average in zip(
                model.parameters(), state["ema"]["averages"], strict=True
            ):
                parameter.copy_(average * scale)
    model.to(device).eval()
    schedule = Schedule(device)
    generator = torch.Generator(device).manual_seed(seed)
    shape = (count, config.image_channels, config.image_size, config.image_size)
    if sampler == "ddpm":
        images = sample_ddpm(model, schedule, shape, generator)
    else:
        images = sample_ddim(model, schedule, shape, generator, steps)
    pixels = ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    out: npt.NDArray[np.uint8] = pixels.cpu().numpy()
    return out


def grid(images: npt.NDArray[np.uint8], columns: int | None = None) -> npt.NDArray[np.uint8]:
    """``[N, 3, H, W]`` laid out as one picture ``[rows * H, columns * W, 3]``, missing ones black.

    ``columns`` defaults to the smallest square that holds them.
    """
    count, channels, height, width = images.shape
    columns = columns or int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    cells = np.zeros((rows * columns, channels, height, width), dtype=np.uint8)
    cells[:count] = images
    cells = cells.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    return cells.reshape(rows * height, columns * width, channels)


def png(picture: npt.NDArray[np.uint8]) -> bytes:
    """An 8-bit RGB picture ``[H, W, 3]`` as PNG (ISO/IEC 15948), without an imaging library."""
    height, width, _ = picture.shape

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)

    # Each row is led by its filter type, 0: none.
    rows = np.concatenate(
        (np.zeros((height, 1), np.uint8), picture.reshape(height, 3 * width)), axis=1
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )
