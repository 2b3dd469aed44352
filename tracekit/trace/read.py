"""`read(path)`: a profiler trace file into a `Trace`."""

from __future__ import annotations

import os
from typing import BinaryIO

import msgspec

from tracekit.trace.assemble import assemble
from tracekit.trace.columns import EventSink
from tracekit.trace.errors import TraceError
from tracekit.trace.event import decode_events, decode_text_time_events
from tracekit.trace.model import ReadHealth, Trace
from tracekit.trace.sources import Progress, Source
from tracekit.trace.times import NeedsText


def read(
    source: str | os.PathLike[str] | BinaryIO, *, progress: Progress | None = None
) -> Trace:
    """Reads a trace; first version: whole text."""
    src = Source(source, progress)
    text = b"".join(src)
    lead = text.lstrip()[:1]
    try:
        if lead == b"[":
            header, raw = {}, text
        else:
            header = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            raw = bytes(header.pop("traceEvents"))
            header = {k: msgspec.json.decode(v) for k, v in header.items()}
        events = decode_events(raw)
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError) as e:
        raise TraceError(f"{src.name}: not a readable trace ({e})") from e
    sink = EventSink()
    try:
        sink.take(events)
    except NeedsText:
        sink.take(decode_text_time_events(raw))
    t0, tables, threads = assemble(sink)
    if not sink.events:
        raise TraceError(f"{src.name}: no readable event")
    base = header.get("baseTimeNanoseconds", 0)
    return Trace(
        src.name, src.bytes, header, t0 + base, tables,
        ReadHealth(sink.events, sum(sink.skipped.values()), dict(sink.skipped),
                   dict(sink.ignored)),
        threads,
    )
