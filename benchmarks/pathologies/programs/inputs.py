"""The next batch comes late: pageable copies and loaders that sleep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.pathologies.case import Build, Case, Program, fused_adamw, half, mlp, on


class Prefetcher:
    """Copies the next batch from pinned memory on a stream of its own while this one is used."""

    def __init__(self, host: Tensor, device: torch.device) -> None:
        self.host = host.pin_memory()
        self.stream = torch.cuda.Stream(device)
        self.buffers = [torch.empty(host.shape, dtype=host.dtype, device=device) for _ in range(2)]
        self.ready = [torch.cuda.Event() for _ in range(2)]
        self.free = [torch.cuda.Event() for _ in range(2)]
        self.turn = 0
        # the buffers' memory may still be in use by earlier work of the current stream
        self.stream.wait_stream(torch.cuda.current_stream(device))
        self._fetch(0)

    def _fetch(self, slot: int) -> None:
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.free[slot])
            self.buffers[slot].copy_(self.host, non_blocking=True)
            self.ready[slot].record()

    def next(self) -> Tensor:
        """The batch that was fetched last; starts fetching the one after it."""
        slot, self.turn = self.turn, 1 - self.turn
        # the last work that reads the other buffer is queued: it is free when that is done
        self.free[self.turn].record()
        self._fetch(self.turn)
        torch.cuda.current_stream().wait_event(self.ready[slot])
        return self.buffers[slot]


def pageable(variant: str, device: torch.device) -> Case:
    """32 MB a step from pageable memory, or prefetched from pinned memory."""
    depth, width, batch = on(device, cuda=(8, 2048, 4096), cpu=(2, 16, 8))
    model = mlp(depth, width, device, half(device))
    optimizer = fused_adamw(model)
    y = torch.randn(batch, width, device=device, dtype=half(device))
    host = torch.randn(batch, width)
    prefetcher = (
        Prefetcher(host, device) if variant == "healthy" and device.type == "cuda" else None
    )

    def step() -> Tensor:
        x = prefetcher.next() if prefetcher else host.to(device)
        loss = F.mse_loss(model(x.to(half(device))), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Case(step)


class Batches(IterableDataset[Tensor]):
    """The same batch again and again, after `seconds` of what would be reading and decoding."""

    def __init__(self, batch: Tensor, seconds: float) -> None:
        self.batch = batch
        self.seconds = seconds

    def __iter__(self) -> Iterator[Tensor]:
        return self

    def __next__(self) -> Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        return self.batch


def sleeping(size: tuple[int, int, int], seconds: float, *, data_loader: bool = False) -> Build:
    """A loader that sleeps before each batch; the copy itself is pinned and asynchronous."""

    def build(variant: str, device: torch.device) -> Case:
        depth, width, batch = on(device, cuda=size, cpu=(2, 16, 8))
        model = mlp(depth, width, device, half(device))
        optimizer = fused_adamw(model)
        y = torch.randn(batch, width, device=device, dtype=half(device))
        host = torch.randn(batch, width, dtype=half(device))
        if device.type == "cuda":
            host = host.pin_memory()
        pause = on(device, cuda=seconds, cpu=0.001) if variant == "faulty" else 0.0
        batches: Iterator[Any] = iter(Batches(host, pause))
        if data_loader:
            batches = iter(DataLoader(Batches(host, pause), batch_size=None))

        def step() -> Tensor:
            x = next(batches).to(device, non_blocking=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return Case(step)

    return build


MEDIUM = (8, 2048, 4096)

PROGRAMS = (
    Program(
        "pageable_copy",
        "batch.to(device) of 32 MB from pageable memory",
        ("SYN002",),
        "The driver stages the copy through its own pinned buffer, and the host waits meanwhile.",
        pageable,
    ),
    Program(
        "sleeping_loader",
        "an iterator that sleeps 4 ms a batch",
        ("GAP001",),
        "No event is recorded while it sleeps: a host gap that ends in the input's copy.",
        sleeping(MEDIUM, 0.004),
    ),
    Program(
        "sleeping_data_loader",
        "a DataLoader without workers over a dataset that sleeps 4 ms a batch",
        ("GAP001",),
        "The same, inside the DataLoader's __next__.",
        sleeping(MEDIUM, 0.004, data_loader=True),
    ),
    Program(
        "sleeping_loader_hidden",
        "an iterator that sleeps 0.5 ms a batch under a long GPU step",
        ("GAP001",),
        "The host runs ahead, so the GPU never notices: a note at most.",
        sleeping((6, 4096, 8192), 0.0005),
    ),
)
