"""`read(path)`: a profiler trace file into a `Trace`."""

from __future__ import annotations

import os
from typing import BinaryIO

from tracekit.trace.assemble import assemble
from tracekit.trace.chunks import Chunks
from tracekit.trace.errors import TraceError
from tracekit.trace.header import parse_header
from tracekit.trace.model import Trace
from tracekit.trace.reader import Reader
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
    chunks = Chunks(iter(stream))
    if chunks.start is None:
        raise TraceError(not_a_trace(stream, chunks.head))
    reader = Reader(chunks)
    if chunks.start.damaged:
        reader.damaged(0, chunks.start.damaged)
    reader.run()
    sink, health = reader.sink, reader.health
    if not sink.events:
        raise TraceError(no_events(stream, sum(sink.skipped.values()), chunks.head))
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
