"""The second half of a large plain file, read by a forked process at the same time.

A fork shares the text already cached and starts at once (a new interpreter needs 0.2 s for numpy
alone). It is only made where that is safe: on Linux, from a process with one thread and without
torch, whose own threads and device handles do not survive a fork. Whatever goes wrong in the
other process, the caller reads that half itself.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tracekit.trace.columns import EventSink
from tracekit.trace.layout import Boundaries
from tracekit.trace.model import ReadHealth

SMALLEST = 24 << 20
"""Below this, one process is as fast."""
_LOOK = 4 << 20


@dataclass
class Half:
    """What the other process read, without its columns."""

    tail: bytes | None
    health: ReadHealth
    bytes: int


def can_fork() -> bool:
    """Whether a second process may help here."""
    return (
        sys.platform == "linux"
        and threading.active_count() == 1
        and "torch" not in sys.modules
        and len(os.sched_getaffinity(0)) > 1
        and os.environ.get("TRACEKIT_PROCESSES") != "1"
    )


def halfway(path: str, size: int, boundaries: Boundaries) -> int | None:
    """Where an event ends near the middle of a file; None if that cannot be told."""
    with Path(path).open("rb") as file:
        file.seek(size // 2)
        text = file.read(_LOOK)
    end = boundaries.last(text, usual_only=True)
    return size // 2 + end if end > 0 else None


class Fork:
    """A forked process that runs `work` and sends back what it read."""

    def __init__(self, work: Callable[[], tuple[EventSink, Half]]) -> None:
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            # Python counts numpy's idle BLAS threads; the child never calls BLAS
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(ours)
                with os.fdopen(theirs, "wb", buffering=0) as pipe:
                    _send(pipe, *work())
                status = 0
            finally:
                os._exit(status)
        os.close(theirs)
        self._pipe = os.fdopen(ours, "rb", buffering=1 << 20)

    def receive(self, into: EventSink) -> Half | None:
        """Appends the other half to `into`; None (and nothing appended) if there is none."""
        try:
            return _receive(self._pipe, into)
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):
            return None

    def close(self) -> None:
        """Ends the process, if it has not ended by itself."""
        if self._pid:
            self._pipe.close()
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
            os.waitpid(self._pid, 0)
            self._pid = 0


def _send(pipe: Any, sink: EventSink, half: Half) -> None:
    arrays = {kind: columns.arrays() for kind, columns in sink.tables.items()}
    shapes = {
        kind: {column: (data.dtype.str, len(data)) for column, data in found.items()}
        for kind, found in arrays.items()
    }
    texts = {kind: columns.texts() for kind, columns in sink.tables.items()}
    counts = (sink.position, sink.events, sink.ignored, sink.skipped, sink.altered)
    lead = pickle.dumps((half, shapes, texts, counts, sink.ids.texts), protocol=5)
    _write(pipe, len(lead).to_bytes(8, "little"))
    _write(pipe, lead)
    for found in arrays.values():
        for data in found.values():
            _write(pipe, np.ascontiguousarray(data).view(np.uint8).data)


def _write(pipe: Any, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while len(view):
        view = view[pipe.write(view) :]


def _receive(pipe: BinaryIO, into: EventSink) -> Half:
    size = int.from_bytes(_exactly(pipe, 8), "little")
    half, shapes, texts, counts, id_texts = pickle.loads(_exactly(pipe, size))
    arrays: dict[str, dict[str, Any]] = {}
    for kind, columns in shapes.items():
        arrays[kind] = {}
        for column, (dtype, length) in columns.items():
            data = np.empty(length, dtype)
            view = data.view(np.uint8).data
            while len(view):
                got = pipe.readinto(view)  # type: ignore[attr-defined]
                if not got:
                    raise EOFError
                view = view[got:]
            arrays[kind][column] = data
    for kind, found in arrays.items():
        into.tables[kind].absorb(found, texts[kind], into.position)
    position, events, ignored, skipped, altered = counts
    into.position += position
    into.events += events
    into.ignored.update(ignored)
    into.skipped.update(skipped)
    into.altered.update(altered)
    into.ids.texts.update(id_texts)
    assert isinstance(half, Half)
    return half


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) != size:
        raise EOFError
    return data
