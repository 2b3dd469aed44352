"""Reads a stream chunk by chunk into columns; only a damaged chunk takes the tolerant path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from tracekit.trace.chunks import Chunk, Chunks
from tracekit.trace.columns import EventSink
from tracekit.trace.event import FAULTS, Event, decode_events, decode_text_time_events
from tracekit.trace.model import Damage, ReadHealth
from tracekit.trace.repair import Repaired, first_difference, mended_chunks, repair
from tracekit.trace.table import Ints
from tracekit.trace.times import NeedsText

MOST_DAMAGE = 1000
_TAIL_LIMIT = 64 << 20
_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Decode = Callable[[bytes], list[Any]]


class Reader:
    """Reads all chunks of a stream into `sink`; `tail` is the text behind the event array."""

    def __init__(self, chunks: Chunks) -> None:
        self.sink = EventSink()
        self.tail: bytes | None = None
        self.health = ReadHealth()
        self.unfinished = False
        """whether an event was left open where the stream ends at a cut"""
        self._chunks = chunks
        self._decode: Decode = decode_events

    def run(self) -> None:
        """Reads to the end of the stream."""
        for chunk in self._chunks:
            self.unfinished = False
            self._chunk(chunk)
            if self.tail is not None:
                break
        if self.tail is not None:
            self.tail += self._chunks.rest(_TAIL_LIMIT)

    def damaged(self, offset: int, cause: str, events: int = 0, first: bool = False) -> None:
        """Notes a place that could not be read."""
        self.health.tolerant = True
        if first:
            self.health.damage.insert(0, Damage(offset, cause, events))
        elif len(self.health.damage) < MOST_DAMAGE:
            self.health.damage.append(Damage(offset, cause, events))

    def _chunk(self, chunk: Chunk) -> None:
        try:
            if chunk.last:
                self._last(chunk.text)
            else:
                self._take(chunk.text)
        except FAULTS:
            self._tolerant(chunk)

    def _take(self, text: bytes, positions: Ints | None = None) -> None:
        events = self._decode(text)
        try:
            self.sink.take(events, positions)
        except NeedsText:
            self._decode = decode_text_time_events
            self.sink.take(self._decode(text), positions)

    def _last(self, text: bytes) -> None:
        """The end of a sound file: some events, the array's end, and header keys."""
        if text.rstrip().endswith(b"]"):
            self._take(text)
            self.tail = b""
            return
        keys = _decode_top(b'{"traceEvents":' + text)
        self._take(bytes(keys.pop("traceEvents")))
        self.tail = msgspec.json.encode(keys)[1:]

    def _tolerant(self, chunk: Chunk) -> None:
        text = chunk.text[1:] if chunk.last else chunk.text[1:-1]
        for mended, done in () if chunk.last else mended_chunks(text):
            try:
                self._take(b"[" + mended + b"]")
            except FAULTS:
                continue
            self._note(done, chunk.offset + first_difference(text, mended))
            return
        out = repair(text, chunk.last, self._chunks.boundaries.gap)
        self._events(out)
        if out.first >= 0 or out.lost:
            self.health.tolerant = True
        for at, cause in out.lost:
            if cause:
                self.damaged(chunk.offset + at, cause, 1)
            else:
                self.damaged(chunk.offset + at, "text that is no event")
        if out.mended:
            self._note(out.mended, chunk.offset + max(out.first, 0))
        if out.rest:
            self._chunks.push_back(out.rest)
            self.unfinished = True
        if out.tail is not None:
            self.tail = out.tail

    def _events(self, out: Repaired) -> None:
        kept = np.array([bool(e) for e in out.events], bool)
        text = b"[" + b",".join(e for e in out.events if e) + b"]"
        before = self.sink.position
        self._take(text, np.flatnonzero(kept))
        for _, cause in out.lost:
            if cause:
                self.sink.skipped[cause] += 1
        self.sink.position = before + len(out.events)

    def _note(self, done: dict[str, int], offset: int) -> None:
        self.sink.altered.update(done)
        self.damaged(offset, "; ".join(sorted(done)))


__all__ = ["MOST_DAMAGE", "Event", "Reader"]
