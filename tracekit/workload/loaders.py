"""Three ways to bring batches to the device; all give the same images in the same order.

``resident``: the whole set lives on the device as uint8 (150 MB for CIFAR-10) and each batch is
picked, flipped and normalised there without a copy from the host or a wait. ``dataloader``:
``torch.utils.data.DataLoader`` with workers and pinned memory. ``ffcv``: FFCV's loader, where the
package is installed. Which images come at which step is a function of (seed, epoch, position), so
a checkpoint keeps three integers and resumes exactly.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tracekit.workload.data import ImageSet
from tracekit.workload.errors import WorkloadError

__all__ = ["LOADERS", "Loader", "make_loader"]


class Loader(Protocol):
    """An endless stream of batches."""

    def next(self) -> Tensor:
        """The next batch: float32 ``[B, 3, 32, 32]`` in [-1, 1] on the device."""
        ...

    def state(self) -> dict[str, int]:
        """Where the stream stands: ``seed``, ``epoch``, and ``position`` in batches of it."""
        ...

    def load_state(self, state: dict[str, int]) -> None:
        """Continue where a stream with this state stood."""
        ...


class Order:
    """The order of an epoch, from seed and epoch: int64 ``[2, N]``, indices above flip flags."""

    def __init__(self, images: int, batch: int, seed: int) -> None:
        if images < batch:
            raise WorkloadError(
                f"The data set has {images} images, fewer than one batch of {batch}."
            )
        self.images, self.batch, self.seed = images, batch, seed
        self.batches = images // batch
        self.epoch = 0
        self.position = 0

    def draw(self) -> Tensor:
        """This epoch's order, the same on every device because it is drawn on the CPU."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        indices = torch.randperm(self.images, generator=generator)
        flips = torch.randint(0, 2, (self.images,), generator=generator)
        return torch.stack((indices, flips))

    def slice(self) -> slice:
        """The columns of the present batch."""
        return slice(self.position * self.batch, (self.position + 1) * self.batch)

    def advance(self) -> bool:
        """Go to the next batch; True where a new epoch begins. The ragged last batch is dropped."""
        self.position += 1
        if self.position < self.batches:
            return False
        self.epoch, self.position = self.epoch + 1, 0
        return True

    def state(self) -> dict[str, int]:
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state(self, state: dict[str, int]) -> None:
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]


def prepared(images: Tensor, flips: Tensor, memory_format: torch.memory_format) -> Tensor:
    """uint8 ``[B, 3, 32, 32]`` flipped where ``flips`` ``[B]`` is not 0, as float32 in [-1, 1]."""
    flipped = torch.where(flips.bool()[:, None, None, None], images.flip(3), images)
    return flipped.to(torch.float32, memory_format=memory_format).mul_(2 / 255).sub_(1)


class ResidentLoader:
    """The set on the device; a batch is four small kernels and no wait."""

    def __init__(
        self, data: ImageSet, order: Order, device: torch.device, memory_format: torch.memory_format
    ) -> None:
        self.images = torch.from_numpy(data.images).to(device)
        self.order, self.device, self.memory_format = order, device, memory_format
        self.columns = self.upload()

    def upload(self) -> Tensor:
        order = self.order.draw()
        if self.device.type == "cuda":
            # From pinned memory the copy queues behind the running step and nobody waits for it.
            return order.pin_memory().to(self.device, non_blocking=True)
        return order.to(self.device)

    def next(self) -> Tensor:
        indices, flips = self.columns[:, self.order.slice()]
        batch = prepared(self.images.index_select(0, indices), flips, self.memory_format)
        if self.order.advance():
            self.columns = self.upload()
        return batch

    def state(self) -> dict[str, int]:
        return self.order.state()

    def load_state(self, state: dict[str, int]) -> None:
        self.order.load_state(state)
        self.columns = self.upload()


class Batches(torch.utils.data.Dataset[Tensor]):
    """A data set indexed by whole batches: ``[2, B]`` columns of ``Order`` to a prepared batch."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __getitem__(self, columns: Tensor) -> Tensor:
        indices, flips = columns
        return prepared(self.images[indices], flips, torch.contiguous_format)


class Columns(torch.utils.data.Sampler[Tensor]):
    """Every batch's columns from where ``Order`` stands, without end, for the worker processes."""

    def __init__(self, order: Order) -> None:
        self.start = order
        self.images, self.batch = order.images, order.batch

    def __iter__(self) -> Iterator[Tensor]:
        ahead = Order(self.images, self.batch, self.start.seed)
        ahead.load_state(self.start.state())
        columns = ahead.draw()
        while True:
            yield columns[:, ahead.slice()]
            if ahead.advance():
                columns = ahead.draw()


class HostLoader:
    """``DataLoader``: workers prepare batches, pinned memory, a copy that nobody waits for."""

    def __init__(
        self,
        data: ImageSet,
        order: Order,
        device: torch.device,
        memory_format: torch.memory_format,
        workers: int,
    ) -> None:
        self.order, self.device, self.memory_format = order, device, memory_format
        self.loader = torch.utils.data.DataLoader(
            Batches(torch.from_numpy(data.images)),
            sampler=Columns(order),
            batch_size=None,
            num_workers=workers,
            pin_memory=device.type == "cuda",
        )
        self.iterator = iter(self.loader)

    def next(self) -> Tensor:
        batch: Tensor = next(self.iterator).to(self.device, non_blocking=True)
        self.order.advance()
        return batch.contiguous(memory_format=self.memory_format)

    def state(self) -> dict[str, int]:
        return self.order.state()

    def load_state(self, state: dict[str, int]) -> None:
        self.order.load_state(state)
        self.iterator = iter(self.loader)


class FFCVLoader:
    """FFCV (https://ffcv.io): a memory-mapped file of the raw images, read by compiled code.

    The file is written once into a temporary folder; flip and normalisation run on the device.
    """

    def __init__(
        self,
        data: ImageSet,
        order: Order,
        device: torch.device,
        memory_format: torch.memory_format,
        workers: int,
    ) -> None:
        import numpy as np
        from ffcv.fields import NDArrayField  # type: ignore[import-not-found]
        from ffcv.fields.decoders import NDArrayDecoder  # type: ignore[import-not-found]
        from ffcv.loader import Loader as Reader  # type: ignore[import-not-found]
        from ffcv.loader import OrderOption
        from ffcv.transforms import ToDevice, ToTensor  # type: ignore[import-not-found]
        from ffcv.writer import DatasetWriter  # type: ignore[import-not-found]

        self.order, self.device, self.memory_format = order, device, memory_format
        self.folder = tempfile.TemporaryDirectory(prefix="tracekit-ffcv-")
        path = str(Path(self.folder.name) / "images.beton")
        field = NDArrayField(dtype=np.dtype(np.uint8), shape=data.images.shape[1:])
        writer = DatasetWriter(path, {"image": field}, num_workers=max(1, workers))
        writer.from_indexed_dataset([(image,) for image in data.images])
        decode: list[Any] = [NDArrayDecoder(), ToTensor()]
        if device.type == "cuda":
            decode.append(ToDevice(device, non_blocking=True))
        self.reader = Reader(
            path,
            batch_size=order.batch,
            num_workers=max(1, workers),
            order=OrderOption.SEQUENTIAL,
            pipelines={"image": decode},
            drop_last=True,
        )
        self.start_epoch()

    def start_epoch(self) -> None:
        """Hand FFCV the rest of this epoch's order; SEQUENTIAL reads the indices as they stand."""
        self.columns = self.order.draw()
        first = self.order.position * self.order.batch
        self.reader.traversal_order.indices = self.columns[0, first:].numpy()
        self.iterator = iter(self.reader)

    def next(self) -> Tensor:
        (images,) = next(self.iterator)
        flips = self.columns[1, self.order.slice()].to(self.device, non_blocking=True)
        batch = prepared(images.to(self.device, non_blocking=True), flips, self.memory_format)
        if self.order.advance():
            self.start_epoch()
        return batch

    def state(self) -> dict[str, int]:
        return self.order.state()

    def load_state(self, state: dict[str, int]) -> None:
        self.order.load_state(state)
        self.start_epoch()


LOADERS = ("resident", "dataloader", "ffcv")


def make_loader(
    kind: str,
    data: ImageSet,
    batch: int,
    seed: int,
    device: torch.device,
    memory_format: torch.memory_format,
    workers: int = 4,
) -> Loader:
    """The loader named ``kind`` (one of ``LOADERS``).

    Raises ``WorkloadError`` for an unknown name, FFCV where it is not installed, and a data set
    smaller than one batch.
    """
    order = Order(len(data.images), batch, seed)
    if kind == "resident":
        return ResidentLoader(data, order, device, memory_format)
    if kind == "dataloader":
        return HostLoader(data, order, device, memory_format, workers)
    if kind == "ffcv":
        if importlib.util.find_spec("ffcv") is None:
            raise WorkloadError(
                "The ffcv loader needs FFCV, which is not installed (https://ffcv.io)."
            )
        return FFCVLoader(data, order, device, memory_format, workers)
    raise WorkloadError(f"There is no loader {kind!r}; the loaders are {', '.join(LOADERS)}.")
