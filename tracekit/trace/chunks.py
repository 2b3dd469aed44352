"""A stream of blocks as chunks of whole events, each a JSON array of its own.

Memory is bounded by the chunk: a file without any boundary is handed over in pieces of at most
`LONGEST` bytes, whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.trace.layout import Boundaries, Start, find_start
from tracekit.trace.other import known_other

LONGEST = 32 << 20
_SEPARATORS = b" \t\r\n,"


@dataclass
class Chunk:
    """Events `[{...}, ...]` cut from the stream."""

    text: bytes
    """the events in brackets; the last chunk also holds what follows the array, and no `]` of ours
    """
    offset: int
    """where the text behind its first bracket stands in the file"""
    last: bool


class Chunks:
    """Cuts blocks into chunks. `start` is None when no event array was found in `head`.

    Args:
        blocks: the text.
        offset: where it begins in the file; if not 0, it begins with an event.
        cut: whether the text ends behind an event, with more of the file to follow.
    """

    def __init__(self, blocks: Iterator[bytes], offset: int = 0, cut: bool = False) -> None:
        self._blocks = blocks
        self._carry = b""
        self._offset = offset
        self._cut = cut
        self.boundaries = Boundaries()
        self.head = b""
        self.start: Start | None = None
        if offset:
            self.start = Start(b"", 0)
            self._carry = next(blocks, b"")
            self.boundaries.learn(self._carry)
        else:
            self._open()

    def _open(self) -> None:
        text = b""
        for block in self._blocks:
            since = len(text)
            text += block
            self.start = find_start(text, since, False)
            if self.start is not None or len(text) >= LONGEST or known_other(text):
                break
        if self.start is None:
            self.start = find_start(text, 0, True)
        self.head = text if self.start is None else self.start.head
        if self.start is not None:
            self._offset = self.start.at
            self._carry = text[self.start.at :]
            self.boundaries.learn(self._carry)

    def push_back(self, text: bytes) -> None:
        """Puts the unfinished end of a chunk before what comes next."""
        self._carry = text + self._carry
        self._offset -= len(text)

    def rest(self, limit: int) -> bytes:
        """All that is left of the stream, of which at most `limit` bytes are kept."""
        kept = self._carry
        for block in self._blocks:
            if len(kept) < limit:
                kept += block
        self._carry = b""
        return kept[:limit]

    def __iter__(self) -> Iterator[Chunk]:
        if self._carry:
            first, self._carry = self._carry, b""
            yield from self._block(first)
        for block in self._blocks:
            yield from self._block(block)
        if self._carry:
            self._offset += len(self._carry)
            text, self._carry = self._carry.lstrip(_SEPARATORS), b""
            end = b"]" if self._cut else b""
            yield Chunk(b"[" + text + end, self._offset - len(text), not self._cut)

    def _block(self, block: bytes) -> Iterator[Chunk]:
        end = self.boundaries.last(block)
        if end < 0:
            self._carry += block
            if len(self._carry) < LONGEST:
                return
            # a boundary may straddle two blocks, which never matters unless all of them do
            block, self._carry = self._carry, b""
            end = self.boundaries.last(block)
            if end < 0:
                end = len(block)
        carry, self._carry = self._carry, block[end:]
        events = block[:end]
        size = len(carry) + len(events)
        carry = carry.lstrip(_SEPARATORS)
        if not carry:
            events = events.lstrip(_SEPARATORS)
        text = b"".join((b"[", carry, events, b"]"))
        self._offset += size
        yield Chunk(text, self._offset - len(text) + 2, False)
