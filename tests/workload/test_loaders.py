"""The three loaders agree, and resume where they stood."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.workload.small import images
from tracekit.workload.data import ImageSet
from tracekit.workload.errors import WorkloadError
from tracekit.workload.loaders import Loader, make_loader


def loader(kind: str, seed: int = 3, count: int = 22, workers: int = 0) -> Loader:
    return make_loader(
        kind, images(count), 4, seed, torch.device("cpu"), torch.contiguous_format, workers
    )


def take(source: Loader, count: int) -> list[Tensor]:
    return [source.next().clone() for _ in range(count)]


@pytest.mark.parametrize("kind", ["dataloader", "ffcv"])
def test_loaders_agree_over_epochs(kind: str) -> None:
    if kind == "ffcv":
        pytest.importorskip("ffcv")
    expected = take(loader("resident"), 12)  # 5 batches an epoch
    for mine, reference in zip(take(loader(kind), 12), expected, strict=True):
        assert torch.equal(mine, reference)


def test_an_epoch_shows_each_image_once_flipped_or_not() -> None:
    source = images(20)
    batches = torch.cat(take(loader("resident", count=20), 5))
    assert batches.shape == (20, 3, 32, 32)
    assert batches.dtype == torch.float32
    pixels = ((batches + 1) * 127.5).round().to(torch.uint8).numpy()
    shown, flipped = set(), 0
    for picture in pixels:
        plain = np.flatnonzero((source.images == picture).all((1, 2, 3)))
        mirrored = np.flatnonzero((source.images == picture[:, :, ::-1]).all((1, 2, 3)))
        shown |= {*plain, *mirrored}
        flipped += len(mirrored)
    assert shown == set(range(20))
    assert 3 < flipped < 17


def test_range_is_minus_one_to_one() -> None:
    ends = np.zeros((8, 3, 32, 32), dtype=np.uint8)
    ends[::2] = 255
    source = make_loader("resident", ImageSet(ends, "ends"), 8, 0, torch.device("cpu"),
                         torch.contiguous_format)  # fmt: skip
    assert {*source.next().flatten().tolist()} == {-1.0, 1.0}


def test_the_seed_decides_the_order() -> None:
    first, again, other = (take(loader("resident", seed), 2) for seed in (1, 1, 2))
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


@pytest.mark.parametrize("kind", ["resident", "dataloader", "ffcv"])
def test_resumes_in_the_middle_of_an_epoch(kind: str) -> None:
    if kind == "ffcv":
        pytest.importorskip("ffcv")
    running = loader(kind)
    take(running, 7)
    state = running.state()
    assert state == {"seed": 3, "epoch": 1, "position": 2}
    resumed = loader(kind, seed=99)
    resumed.load_state(state)
    for mine, reference in zip(take(resumed, 6), take(running, 6), strict=True):
        assert torch.equal(mine, reference)


def test_channels_last_batches() -> None:
    for kind in ("resident", "dataloader"):
        source = make_loader(
            kind, images(), 4, 0, torch.device("cpu"), torch.channels_last, workers=0
        )
        assert source.next().is_contiguous(memory_format=torch.channels_last)


def test_refusals() -> None:
    with pytest.raises(WorkloadError, match="3 images, fewer than one batch of 4"):
        loader("resident", count=3)
    with pytest.raises(WorkloadError, match="no loader 'tape'; the loaders are resident"):
        loader("tape")


def test_ffcv_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WorkloadError, match="FFCV, which is not installed"):
        loader("ffcv")
