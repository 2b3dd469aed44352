"""The tolerant path: a chunk that is not valid JSON, event by event.

The chunk is split where events begin; an event that decodes is left alone. One that does not is
mended, or cut before the damage if that lies in its `args`, or counted as lost. What comes out is
clean JSON again, so the same strict decoder reads it, and times are read the same way. An event
is never put together from two halves of the damage: its name, time and duration must stand in one
undamaged piece.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from tracekit.trace import mend
from tracekit.trace.coerce import coerce
from tracekit.trace.event import FAULTS, decode_event
from tracekit.trace.layout import EVENT_START

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.S)
_ARGS = re.compile(rb',\s*"args"\s*:\s*\{')
_LONGEST_EVENT = 1 << 20
_HEADER_KEY = (
    rb"(?:traceName|displayTimeUnit|baseTimeNanoseconds|schemaVersion|deviceProperties"
    rb"|distributedInfo|trace_id|record_shapes|with_\w+|profile_memory|metadata|INFO|ERROR|WARNING"
    rb"|\w+_version|tracekit)"
)
_END = re.compile(rb'\]\s*(?:,\s*"' + _HEADER_KEY + rb'"\s*:|\}\s*\Z)')
_FIXES = (
    (mend.mend_safe,),
    (mend.mend_safe, mend.mend_lines),
    (mend.mend_event,),
    (mend.mend_event, mend.mend_quotes),
    (mend.mend_event, mend.mend_quotes, mend.mend_lines),
)
_HOLE = b"\0" * 8
_MORE_KEYS = re.compile(rb'\]\s*,\s*"[^"\\]{1,60}"\s*:')
_BETWEEN = b" \t\r\n,"
CUT_SHORT = "the file ends in the middle of an event"
NO_COMMA = "a comma missing between events"
LOST = "unreadable event"
CUT_ARGS = "args unreadable from the damage on"


@dataclass
class Repaired:
    """What could be read of a damaged chunk."""

    events: list[bytes] = field(default_factory=list)
    """clean JSON, an event each; b"" where one was lost"""
    lost: list[tuple[int, str]] = field(default_factory=list)
    """offset in the chunk and cause of each loss; a cause of "" is junk that is no event"""
    mended: Counter[str] = field(default_factory=Counter)
    first: int = -1
    """offset in the chunk of the first fault"""
    rest: bytes = b""
    """the unfinished end of the chunk, to go before the next one"""
    tail: bytes | None = None
    """what follows the event array, once it has ended"""


def mended_chunks(text: bytes) -> Iterator[tuple[bytes, Counter[str]]]:
    """The whole chunk with the faults fixed that a fix cannot make worse, lightest first. One such
    fault in every event is common (Windows paths), and this is a hundred times faster."""
    if _HOLE in text:
        return
    done: Counter[str] = Counter()
    mended = mend.mend_safe(text, done)
    if mended != text:
        yield mended, +done
    lines = mend.mend_lines(mended, done)
    if lines != mended:
        yield lines, +done


def first_difference(one: bytes, other: bytes) -> int:
    """Offset of the first byte in which two texts differ."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def repair(text: bytes, last: bool, gap: bytes | None = None) -> Repaired:
    """Every readable event of a chunk.

    Args:
        text: the chunk, without the brackets around it.
        last: whether the file ends with it.
        gap: what this file writes between an event's brace and its first key; what begins
            otherwise is first taken for an object among an event's args.
    """
    return _Repair(text, last, gap).run()


class _Repair:
    """The repair of one chunk; `inner` if of a part of one, which nothing continues."""

    def __init__(self, text: bytes, last: bool, gap: bytes | None, inner: bool = False) -> None:
        self._text = text
        self._last = last
        self._gap = gap
        self._inner = inner
        self._starts = _starts(text, gap)
        self._out = Repaired()

    def run(self) -> Repaired:
        text, out = self._text, self._out
        if not self._starts:
            self._no_event()
            return out
        if text[: self._starts[0]].strip(_BETWEEN):
            self._junk(0)
        self._starts.append(len(text))
        index = 0
        while index < len(self._starts) - 1 and out.tail is None and not out.rest:
            index = self._segment(index)
        return out

    def _no_event(self) -> None:
        text = self._text
        end = _END.match(text.lstrip())
        if end or not text.strip(b" \t\r\n\0,]"):
            if end or self._last:
                self._out.tail = text.lstrip().removeprefix(b"]")
        elif self._last and text.lstrip().startswith(b"{"):
            self._fault(0)
            self._out.lost.append((0, CUT_SHORT))
        else:
            self._junk(0)

    def _segment(self, index: int) -> int:
        """Reads the event at starts[index]; the index of the next one to read."""
        text, out = self._text, self._out
        start, stop = self._starts[index], self._starts[index + 1]
        hole = text.find(_HOLE, start, stop)
        if hole >= 0:
            self._before_hole(start, hole)
            return index + 1
        body = text[start:stop].rstrip(_BETWEEN)
        if _readable(body):
            out.events.append(body)
            if stop < len(text) and not text[start + len(body) : stop].strip():
                self._fault(start + len(body))
                out.mended[NO_COMMA] += 1
            return index + 1
        end, in_string = _balanced(text, start, stop)
        if end < 0 and not in_string and body.endswith(b"["):
            # an array of objects among its args: the next event's start is still part of this one
            end, _ = _balanced(text, start, min(len(text), start + _LONGEST_EVENT))
            while index + 1 < len(self._starts) - 1 and self._starts[index + 1] < end:
                index += 1
            stop = self._starts[index + 1]
        if end > 0:
            clean = self._clean(text[start:end])
            if clean:
                if clean != text[start:end]:
                    self._fault(start)
                out.events.append(clean)
                self._after(end, stop)
                return index + 1
        continued = stop == len(text) and not self._last and not self._inner
        if continued and start > 0 and stop - start < _LONGEST_EVENT:
            # perhaps cut at a boundary that was none; read again with what follows
            out.rest = text[start:]
            return index + 1
        self._broken(start, stop)
        return index + 1

    def _broken(self, start: int, stop: int) -> None:
        """An event that is damaged in itself, up to the next one's start."""
        text, out = self._text, self._out
        self._fault(start)
        body = text[start:stop].rstrip(_BETWEEN)
        ending = _END.search(body)
        event = body[: ending.start()].rstrip() if ending else body
        clean = self._clean(event)
        if not clean:
            others = [at for at in _starts(event, None) if at > 0] if self._gap is not None else []
            if others:
                self._broken(start, start + others[0])
                self._part(start + others[0], stop)
                return
            clean = self._cut(event)
        if clean or b'"ph"' in event:
            out.events.append(clean)
        if not clean and b'"ph"' in event:
            cut_short = self._last and stop == len(text) and not event.endswith(b"}")
            out.lost.append((start, CUT_SHORT if cut_short else LOST))
        elif not clean:
            out.lost.append((start, ""))  # not even part of an event
        if ending:
            out.tail = text[start + ending.start() + 1 :]

    def _before_hole(self, start: int, hole: int) -> None:
        """An event behind which a run of NUL bytes stands, as a lost block of a disk leaves it:
        what follows the run belongs to another event."""
        self._fault(hole)
        body = self._text[start:hole].rstrip(_BETWEEN)
        clean = body if _readable(body) else self._cut(body)
        self._out.events.append(clean)
        self._out.lost.append((hole, "" if clean else LOST))

    def _after(self, end: int, stop: int) -> None:
        """Judges what stands between an event and the next."""
        text, out = self._text, self._out
        mark = text[end:stop].strip()
        if mark == b"," or (not mark and stop == len(text)):
            return
        listed = mark.lstrip(_BETWEEN)
        if listed.startswith(b"]") and self._ends_list(listed):
            if mark != listed:
                self._fault(end)
                out.mended[mend.COMMA] += 1
            out.tail = text[text.index(b"]", end) + 1 :]
        elif not listed:
            self._fault(end)
            out.mended[mend.COMMA if mark else NO_COMMA] += 1
        elif self._gap is not None and _starts(listed, None):
            self._part(end, stop)
        else:
            self._junk(end)

    def _ends_list(self, text: bytes) -> bool:
        """Whether the `]` before `text` closes the event array, not an array among some args."""
        if _END.match(text):
            return True
        if self._gap is not None and b"\n" in self._gap and _MORE_KEYS.match(text):
            return True  # where events take several lines, what just closed was one of them
        return self._last and not self._inner and _is_tail(text[1:])

    def _part(self, start: int, stop: int) -> None:
        """Events laid out in another way than the file's others (a merged file)."""
        text, out = self._text, self._out
        part = _Repair(text[start:stop], self._last and stop == len(text), None, inner=True).run()
        out.events += part.events
        out.lost += [(start + at, cause) for at, cause in part.lost]
        out.mended.update(part.mended)
        if part.first >= 0:
            self._fault(start + part.first)
        if part.tail is not None:
            out.tail = part.tail + text[stop:]

    def _fault(self, at: int) -> None:
        if self._out.first < 0:
            self._out.first = at

    def _junk(self, at: int) -> None:
        self._fault(at)
        self._out.lost.append((at, ""))

    def _clean(self, event: bytes) -> bytes:
        """The event as valid JSON of the expected types, mended where need be; b"" if it cannot
        be."""
        if _readable(event):
            return event
        for fixes in _FIXES:
            done: Counter[str] = Counter()
            fixed = event
            for fix in fixes:
                fixed = fix(fixed, done)
            if not _readable(fixed):
                fixed = coerce(fixed, done)
            if fixed and _readable(fixed):
                self._out.mended.update(+done)
                return fixed
        return b""

    def _cut(self, event: bytes) -> bytes:
        """The event with what its args hold before the damage; b"" if the damage lies elsewhere."""
        args = _ARGS.search(event)
        if args is None:
            return b""
        done: Counter[str] = Counter()
        front = mend.mend_event(event[: args.start()] + b"}", done)
        if not _readable(front):
            front = mend.mend_quotes(front, done)
            if not _readable(front):
                return b""
        inner = event[args.end() :]
        self._out.mended.update(+done)
        self._out.mended[CUT_ARGS] += 1
        for comma in reversed([m.start() for m in re.finditer(b",", inner[:65536])][:400]):
            whole = front[:-1] + b', "args": {' + inner[:comma] + b"}}"
            if _readable(whole):
                return whole
        return front


def _starts(text: bytes, gap: bytes | None) -> list[int]:
    """Offsets where events begin: not the `{` of an args object, which a colon precedes."""
    found = []
    for match in EVENT_START.finditer(text):
        at = match.start()
        if gap is not None and match[1] != gap:
            continue
        before = text[max(0, at - 64) : at].rstrip()
        if not before.endswith(b":"):
            found.append(at)
    return found if found or gap is None else _starts(text, None)


def _is_tail(text: bytes) -> bool:
    """Whether the rest of the file may follow its event array: more keys, or nothing."""
    rest = text.strip()
    if rest in (b"", b"}"):
        return True
    try:
        msgspec.json.decode(b"{" + rest.removeprefix(b","), type=dict[str, msgspec.Raw])
    except FAULTS:
        return False
    return rest.startswith(b",")


def _readable(body: bytes) -> bool:
    try:
        return decode_event(body).ph != ""
    except FAULTS:
        return False


def _balanced(text: bytes, start: int, stop: int) -> tuple[int, bool]:
    """Where the object at `start` closes (-1 if not before `stop`), and whether a string is open
    there."""
    depth, at = 0, start
    for token in _TOKEN.finditer(text, start, stop):
        if b'"' in text[at : token.start()]:
            return -1, True
        at = token.end()
        mark = text[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth <= 0:
                return at, False
    return -1, b'"' in text[at:stop]
