"""The profiler's JSON to the finished files: manifest inserted, written whole or not at all.

torch's `add_metadata_json` does not escape its value (a quote in a command line makes the file
invalid JSON), so the manifest goes in by rewriting the exported file, as a stream: no more than
a few MB are held. Everything is written under a temporary name beside the target and renamed at
the end; a reader never sees half a trace.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from tracekit.profiler.destination import Destination, reason
from tracekit.profiler.errors import RecordError
from tracekit.profiler.manifest import KEY, Manifest, shown

CHUNK = 1 << 20
TAIL = 1 << 14
GZIP_LEVEL = 6
INTERRUPTED = "Interrupted step#"
_NOT_WHOLE = "the profiler could not write the whole trace to {} (is the disk full?)"
_TEMPORARY = ("raw.json", "trace.part", "manifest.part")
_TRACE_NAME = re.compile(rb'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')


def write(
    destination: Destination,
    manifest: Manifest,
    export: Callable[[str], object],
    *,
    unfinished: int | None = None,
) -> None:
    """Export with `export(path)` (the profiler's own), then write the trace and the manifest.

    `unfinished` is the number of the ProfilerStep# mark whose step did not end: it is renamed to
    `Interrupted step#N`, so that every reader counts whole steps only.

    Raises `RecordError` where the disk is full or the profiler's file is not whole; what was at
    the target before is then still there, and no temporary file is left.
    """
    folder = destination.trace.parent
    raw, done, beside = (folder / f".tracekit-{os.getpid()}.{end}" for end in _TEMPORARY)
    try:
        # the program may have emptied its output folder since
        folder.mkdir(parents=True, exist_ok=True)
        with _for_the_profiler(raw) as name:
            export(name)
        if not raw.exists():
            raise RecordError(_NOT_WHOLE.format(folder))
        with raw.open("rb") as source, _sink(done, destination.compressed) as sink:
            for piece in _rewritten(source, manifest, destination.trace.name, unfinished):
                sink.write(piece)
        raw.unlink()
        beside.write_text(manifest.to_json(indent=2) + "\n", encoding="utf-8")
        done.replace(destination.trace)
        beside.replace(destination.manifest)
    except OSError as error:
        raise RecordError(f"cannot write {destination.shown}: {reason(error)}") from error
    finally:
        # the profiler itself writes to a `.tmp` first
        for path in (raw, raw.with_name(raw.name + ".tmp"), done, beside):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _for_the_profiler(path: Path) -> Iterator[str]:
    """A name by which the profiler can write `path`: it takes a backslash for a separator, and
    no name that is not UTF-8."""
    if str(path).isascii() and "\\" not in str(path):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def _sink(path: Path, compressed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        if compressed:
            # no name and no time inside: the same recording gives the same bytes
            with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield file
        file.flush()
        os.fsync(file.fileno())


def _rewritten(
    source: IO[bytes], manifest: Manifest, name: str, unfinished: int | None
) -> Iterator[bytes]:
    """The exported JSON with the manifest as first key and the file's final name as its name."""

    def renamed(piece: bytes) -> bytes:
        if unfinished is None:
            return piece
        old, new = f'"ProfilerStep#{unfinished}"', f'"{INTERRUPTED}{unfinished}"'
        return piece.replace(old.encode(), new.encode())

    head = source.read(CHUNK)
    start = head.find(b"{")
    if start < 0 or head[:start].strip():
        raise RecordError("the profiler exported no trace (its file does not start with an object)")
    yield head[: start + 1] + f'\n"{KEY}": {manifest.to_json()},\n'.encode()
    held = renamed(head[start + 1 :])
    while chunk := source.read(CHUNK):
        # a name cut in two by a chunk's end lies in the held part of the next round
        whole = renamed(held + chunk)
        yield whole[:-TAIL]
        held = whole[-TAIL:]
    tail = held[-TAIL:]
    yield held[: len(held) - len(tail)]
    closing = tail[tail.rfind(b'"ph"') + 1 :]
    if not tail.rstrip().endswith(b"}") or b'"traceName"' not in closing:
        raise RecordError(_NOT_WHOLE.format(Path(source.name).parent))
    # the profiler writes the path it was given there, unescaped
    label = json.dumps(shown(name)).encode()
    cut = tail.rfind(b'"traceName"')
    ending = tail[cut:].replace(b'"' + os.fsencode(source.name) + b'"', label)
    if ending == tail[cut:]:
        ending = _TRACE_NAME.sub(lambda m: m.group(1) + label, ending)
    yield tail[:cut] + ending
