"""The file's top-level keys other than its events, from the text around the event array."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from tracekit.trace.event import FAULTS
from tracekit.trace.mend import mend_event

_SCALAR = re.compile(
    rb'"([A-Za-z_]\w{1,60})"\s*:\s*(-?\d+(?:\.\d+)?|"(?:[^"\\]++|\\.)*+")\s*(?=[,}\n])'
)
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*(\{[^{}]*\})')
_ARRAY_KEY = re.compile(rb'"traceEvents"\s*:\s*\[\s*\Z')


def parse_header(head: bytes, tail: bytes | None) -> tuple[dict[str, Any], bool]:
    """The header, and whether it was readable in full.

    Args:
        head: the text up to and with the event array's `[`.
        tail: the text behind its `]`; None where the file ended before.
    """
    head = head.lstrip(b"\xef\xbb\xbf \t\r\n\0")
    if head == b"[":
        return {}, not (tail or b"").strip()
    before, before_ok = _keys(_ARRAY_KEY.sub(b"", head), b"}") if head else ({}, True)
    after, after_ok = ({}, True) if tail is None else _keys(b"{" + tail.lstrip(b" \t\r\n,"), b"")
    return {**before, **after}, before_ok and after_ok


def _keys(text: bytes, end: bytes) -> tuple[dict[str, Any], bool]:
    whole = text.rstrip(b" \t\r\n,") + end
    try:
        return msgspec.json.decode(whole, type=dict[str, Any]), True
    except FAULTS:
        pass
    try:
        return msgspec.json.decode(mend_event(whole, Counter()), type=dict[str, Any]), False
    except FAULTS:
        return _scalars(text), False


def _scalars(text: bytes) -> dict[str, Any]:
    """What can be told of a damaged header: numbers and texts, and the job's ranks."""
    found: dict[str, Any] = {}
    ranks = _DISTRIBUTED.search(text)
    if ranks:
        try:
            found["distributedInfo"] = msgspec.json.decode(ranks[1])
        except FAULTS:
            ranks = None
    for key, value in _SCALAR.findall(text):
        try:
            found.setdefault(key.decode(), msgspec.json.decode(value))
        except FAULTS:
            continue
    return found
