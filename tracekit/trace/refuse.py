"""The sentence a file without a trace gets: what it is, as far as its first bytes tell."""

from __future__ import annotations

import re

from tracekit.trace.other import BINARY, known_other
from tracekit.trace.sources import Source

_WANTED = 'tracekit reads what torch.profiler exports: JSON with a list "traceEvents"'


def not_a_trace(stream: Source, head: bytes) -> str:
    """Why no event array was found."""
    kind = f" inside {stream.packed}" if stream.packed else ""
    if not head:
        if stream.damage:
            return f"{stream.name}: nothing can be unpacked, {stream.damage}."
        if stream.packed:
            return f"{stream.name}: is empty (a {stream.packed} stream of 0 bytes)."
        return f"{stream.name}: is empty (0 bytes)."
    for magic, what in BINARY:
        if head.startswith(magic):
            return f"{stream.name}: is {what}{kind}, not a trace; {_WANTED}."
    sample = head[: 1 << 16]
    other = known_other(sample)
    if other:
        return f"{stream.name}: looks like {other}, not a profiler trace; {_WANTED}."
    if not head.strip(b" \t\r\n\0"):
        return f"{stream.name}: holds only blanks or NUL bytes{kind} ({len(head)} bytes)."
    lead = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if lead in (b"{", b"["):
        keys = re.findall(rb'"([^"\\]{1,40})"\s*:', sample)[:3]
        seen = ", ".join(dict.fromkeys(k.decode("utf-8", "replace") for k in keys))
        what = f"its first keys are {seen}" if seen else "it has no keys"
        return f'{stream.name}: is JSON, but has no list "traceEvents" ({what}); {_WANTED}.'
    if sum(c < 9 or c > 126 for c in sample) > len(sample) // 10:
        return f"{stream.name}: is binary data{kind}, not a trace; {_WANTED}."
    return f"{stream.name}: is no JSON object or list; {_WANTED}."


def no_events(stream: Source, lost: int, head: bytes) -> str:
    """Why an event array gave nothing."""
    if stream.damage:
        return f"{stream.name}: no event can be read, {stream.damage} at byte {stream.bytes}."
    if lost:
        events = "1 event is" if lost == 1 else f"{lost} events are"
        return (
            f"{stream.name}: no event can be read, the {events} damaged "
            f"(the list begins at byte {len(head)})."
        )
    return f'{stream.name}: its list "traceEvents" (byte {len(head)}) holds no event.'
