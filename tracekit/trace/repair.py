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

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.S)
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
            otherwise is then an object among an event's args.
    """
    out = Repaired()
    starts = _starts(text, gap)
    if not starts:
        end = _END.match(text.lstrip())
        if end or not text.strip(b" \t\r\n\0,]"):
            out.tail = text.lstrip().removeprefix(b"]") if last or end else None
        else:
            out.first = 0
            out.lost.append((0, "" if not last else _junk_or_cut(text)))
        return out
    if text[: starts[0]].strip(b" \t\r\n,"):
        out.first = 0
        out.lost.append((0, ""))
    starts.append(len(text))
    index = 0
    while index < len(starts) - 1:
        index = _segment(text, starts, index, last, out)
        if out.tail is not None or out.rest:
            break
    return out


def _junk_or_cut(text: bytes) -> str:
    return "the file ends in the middle of an event" if text.lstrip().startswith(b"{") else ""


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


def _segment(text: bytes, starts: list[int], index: int, last: bool, out: Repaired) -> int:
    """Reads the event at starts[index]; the index of the next one to read."""
    start, stop = starts[index], starts[index + 1]
    hole = text.find(_HOLE, start, stop)
    if hole >= 0:
        _with_hole(text[start:hole].rstrip(b" \t\r\n,"), start, hole, out)
        return index + 1
    body = text[start:stop].rstrip(b" \t\r\n,")
    if _readable(body):
        out.events.append(body)
        if stop < len(text) and not text[start + len(body) : stop].strip():
            _fault(out, start + len(body))
            out.mended["a comma missing between events"] += 1
        return index + 1
    end, in_string = _balanced(text, start, stop)
    if end < 0 and not in_string and text[start:stop].rstrip().endswith(b"["):
        # an array of objects among its args: what looked like the next event is part of this one
        end, _ = _balanced(text, start, min(len(text), start + _LONGEST_EVENT))
        while end > 0 and index + 1 < len(starts) - 1 and starts[index + 1] < end:
            index += 1
        stop = starts[index + 1]
    if end > 0:
        after = text[end:stop]
        clean = _clean(text[start:end], out)
        if clean:
            if clean != text[start:end]:
                _fault(out, start)
            out.events.append(clean)
            _after(text, end, after, stop == len(text), last, out)
            return index + 1
    if stop == len(text) and not last and start > 0 and stop - start < _LONGEST_EVENT:
        # perhaps cut at a boundary that was none; read again with what follows
        out.rest = text[start:]
        return index + 1
    _fault(out, start)
    ending = _END.search(body)
    event = body[: ending.start()].rstrip() if ending else body
    clean = _clean(event, out) or _cut(event, out)
    if not clean and b'"ph"' not in event:
        out.lost.append((start, ""))  # not even part of one
    else:
        out.events.append(clean)
    if not clean and b'"ph"' in event:
        whole = event.endswith(b"}") or not (last and stop == len(text))
        out.lost.append((start, LOST if whole else "the file ends in the middle of an event"))
    if ending:
        out.tail = text[start + ending.start() + 1 :]
    return index + 1


def _with_hole(body: bytes, start: int, hole: int, out: Repaired) -> None:
    """An event behind which a run of NUL bytes stands, as a lost block of a disk leaves it: what
    follows the run belongs to another event."""
    _fault(out, hole)
    clean = body if _readable(body) else _cut(body, out)
    out.events.append(clean)
    out.lost.append((hole, "" if clean else LOST))


def _after(text: bytes, end: int, after: bytes, at_end: bool, last: bool, out: Repaired) -> None:
    """Judges what stands between an event and the next."""
    mark = after.strip()
    if mark == b"," or (not mark and at_end):
        return
    listed = mark.lstrip(b", \t\r\n")
    if listed.startswith(b"]") and (_END.match(listed) or (last and _is_tail(listed[1:]))):
        if mark != listed:
            _fault(out, end)
            out.mended[mend.COMMA] += 1
        out.tail = text[text.index(b"]", end) + 1 :]
        return
    _fault(out, end)
    if listed:
        out.lost.append((end, ""))
    else:
        out.mended[mend.COMMA if mark else "a comma missing between events"] += 1


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


def _fault(out: Repaired, at: int) -> None:
    if out.first < 0:
        out.first = at


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


def _clean(event: bytes, out: Repaired) -> bytes:
    """The event as valid JSON of the expected types, mended where need be; b"" if it cannot be."""
    if _readable(event):
        return event
    for fixes in _FIXES:
        done: Counter[str] = Counter()
        fixed = event
        for fix in fixes:
            fixed = fix(fixed, done)
        if _readable(fixed):
            out.mended.update(+done)
            return fixed
        coerced = coerce(fixed, done)
        if coerced and _readable(coerced):
            out.mended.update(+done)
            return coerced
    return b""


def _cut(event: bytes, out: Repaired) -> bytes:
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
    out.mended.update(+done)
    out.mended[CUT_ARGS] += 1
    for end in reversed([m.start() for m in re.finditer(b",", inner[:65536])][:400]):
        whole = front[:-1] + b', "args": {' + inner[:end] + b"}}"
        if _readable(whole):
            return whole
    return front
