"""A network small enough to train in a test, and a Trainer around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tracekit.workload.data import ImageSet
from tracekit.workload.rungs import Rung, rung
from tracekit.workload.train_step import Preset, Trainer
from tracekit.workload.unet import UNetConfig

SMALL = Preset(
    "tiny",
    UNetConfig((16, 16), 1, (16,), heads=2, groups=4, time_channels=32, dropout=0.0),
    batch=4,
    images=64,
)


def images(count: int = 32) -> ImageSet:
    """Random images, each different."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return ImageSet(pixels, "random pixels")


def trainer(key: str | int | Rung, **given: Any) -> Trainer:
    """A small Trainer on the CPU in float32."""
    chosen = key if isinstance(key, Rung) else rung(key)
    settings: dict[str, Any] = {
        "device": torch.device("cpu"),
        "batch": SMALL.batch,
        "compile_backend": "aot_eager",
        "autocast": None,
        "workers": 0,
    }
    return Trainer(chosen, given.pop("preset", SMALL), images(), **(settings | given))
