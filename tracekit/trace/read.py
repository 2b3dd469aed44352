"""`read(path)`: a profiler trace file into a `Trace`."""

from __future__ import annotations

import os
import re
from typing import BinaryIO

from tracekit.trace.assemble import assemble
from tracekit.trace.chunks import Chunks
from tracekit.trace.columns import EventSink
from tracekit.trace.errors import TraceError
from tracekit.trace.header import parse_header
from tracekit.trace.model import Trace
from tracekit.trace.parallel import SMALLEST, Fork, Half, can_fork, halfway
from tracekit.trace.reader import MOST_DAMAGE, Reader
from tracekit.trace.refuse import no_events, not_a_trace
from tracekit.trace.sources import Progress, Source


def read(source: str | os.PathLike[str] | BinaryIO, *, progress: Progress | None = None) -> Trace:
    """Reads a torch.profiler (Kineto) trace.

    Args:
        source: a `.json`, `.json.gz` or `.json.zst` file (told by content, not by name), "-" for
            standard input, or a binary file object.
        progress: called with (bytes read, size of the file or 0) every two megabytes or so.

    Returns:
        The tables. A damaged file is read as far as it goes: see `Trace.health`.

    Raises:
        TraceError: the file cannot be opened, or no event of it can be read.
    """
    stream = Source(source, progress)
    try:
        return _read(stream, progress)
    finally:
        stream.close()


def _read(stream: Source, progress: Progress | None) -> Trace:
    chunks = Chunks(iter(stream))
    if chunks.start is None:
        raise TraceError(not_a_trace(stream, chunks.head))
    reader = _in_halves(stream, chunks, progress)
    if reader is None:
        reader = Reader(chunks)
        reader.run()
    sink, health = reader.sink, reader.health
    if chunks.start.damaged:
        reader.damaged(0, chunks.start.damaged, first=True)
    if not sink.events:
        raise TraceError(no_events(stream, sum(sink.skipped.values()), chunks.head))
    _second_trace(reader, stream.bytes)
    header, whole = parse_header(chunks.head, reader.tail)
    if stream.damage:
        reader.damaged(stream.bytes, stream.damage)
    elif reader.tail is None:
        reader.damaged(stream.bytes, "the file ends before its list of events does")
    elif not whole:
        reader.damaged(stream.bytes, "the header is not readable in full")

    t0, tables, threads = assemble(sink)
    health.events = sink.events
    health.events_skipped = sum(sink.skipped.values())
    health.skipped_by_cause = dict(sink.skipped)
    health.ignored_by_kind = dict(sink.ignored)
    health.altered = dict(sink.altered)
    base = header.get("baseTimeNanoseconds", 0)
    if isinstance(base, int):
        t0 += base
    return Trace(stream.name, stream.bytes, header, t0, tables, health, threads)


def _second_trace(reader: Reader, size: int) -> None:
    """Counts what a second trace holds that was written behind the first."""
    tail = reader.tail or b""
    found = re.search(rb'\{[^{}]*"traceEvents"\s*:\s*\[', tail)
    if found:
        reader.tail = tail[: found.start()]
        lost = tail.count(b'"ph"', found.start())
        reader.sink.skipped["in a second trace behind the first"] += lost
        at = size - len(tail) + found.start()
        reader.damaged(at, "a second trace follows the first, and is not read", lost)


def _in_halves(stream: Source, chunks: Chunks, progress: Progress | None) -> Reader | None:
    """Reads a large plain file with a second process; None where that cannot be done, with
    `chunks` as they were."""
    if stream.packed or stream.size < SMALLEST or not stream.path or not can_fork():
        return None
    path = stream.path
    middle = halfway(path, stream.size, chunks.boundaries)
    if middle is None:
        return None

    def second() -> tuple[EventSink, Half]:
        part = Source(path, start=middle)
        other = Reader(Chunks(iter(part), middle))
        other.run()
        return other.sink, Half(other.tail, other.health, part.bytes)

    fork = Fork(second)
    try:
        part = Source(path, _doubled(progress), stop=middle)
        reader = Reader(Chunks(iter(part), cut=True))
        reader.run()
        if reader.tail is not None or reader.unfinished:
            return None  # the list of events ended early, or the cut was no boundary
        half = fork.receive(reader.sink)
    finally:
        fork.close()
    if half is None:
        return None
    stream.bytes = part.bytes + half.bytes
    reader.tail = half.tail
    reader.health.tolerant |= half.health.tolerant
    reader.health.damage += half.health.damage[: MOST_DAMAGE - len(reader.health.damage)]
    return reader


def _doubled(progress: Progress | None) -> Progress | None:
    """Progress of both halves, told by one."""
    if progress is None:
        return None
    return lambda done, size: progress(min(2 * done, size), size)
