"""How a trace's text is laid out: where its event array begins, and what stands between events.

Kineto writes a header, `"traceEvents": [`, an event a few lines, and more header keys. Other tools
write the same compactly, or indented otherwise, with keys in another order, or just the array.
Nothing here parses JSON: it looks for marks in raw bytes, so damage elsewhere does not matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EVENT_KEYS = rb"(?:ph|name|cat|pid|tid|ts|dur|tdur|tts|args|id|bp|s|cname)"
EVENT_START = re.compile(rb'\{(\s*)"' + EVENT_KEYS + rb'"\s*:')
"""Where an event may begin. An `args` object can look the same; a colon stands before that one."""
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_ANY_BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"' + EVENT_KEYS + rb'"\s*:)')
_SURE_EVENT = re.compile(rb'\{(?:[^{}"]|"[^"\n]*")*?"ph"\s*:\s*"[A-Za-z]"')
_LEAD = re.compile(rb"[\xef\xbb\xbf \t\r\n\0]*")
_FIRST = re.compile(rb'\s*(\{\s*"' + EVENT_KEYS + rb'"\s*:)')


@dataclass
class Start:
    """Where events begin in the text's first bytes."""

    head: bytes
    """the text before the array, up to and with its `[`"""
    at: int
    """where the first event is looked for"""
    damaged: str | None = None


def find_start(text: bytes, since: int, complete: bool) -> Start | None:
    """Where the events of a trace begin; None when `text` does not tell.

    Args:
        text: the first bytes of the file.
        since: how many of them were looked through before.
        complete: whether these are all of its bytes (or as many as one cares to look through).
    """
    lead = _LEAD.match(text)
    at = lead.end() if lead else 0
    if text.startswith(b"[", at):
        at += 1
        if _FIRST.match(text, at) or (complete and not text[at:].strip(b" \t\r\n]")):
            return Start(text[:at], at)
        if not complete:
            return None
    found = _ARRAY.search(text, max(0, since - 64))
    if found:
        return Start(text[: found.end()], found.end())
    if not complete or b'"ph"' not in text:
        return None
    sure = _SURE_EVENT.search(text)
    if sure is None:
        return None
    return Start(b"", sure.start(), "the text before the first event is damaged")


class Boundaries:
    """Finds the last place of a block where one event ends and the next begins."""

    def __init__(self) -> None:
        self._usual: bytes | None = None
        self.gap: bytes | None = None
        """what stands between an event's brace and its first key"""

    def learn(self, text: bytes) -> None:
        """Takes the bytes between the first two events as the usual ones."""
        first = _FIRST.match(text)
        if first is None:
            return
        self.gap = first[1][1 : first[1].index(b'"')]
        found = re.search(rb"\}\s*,\s*" + re.escape(first[1]), text)
        if found:
            self._usual = found[0]

    def last(self, text: bytes, usual_only: bool = False) -> int:
        """Where the last whole event of `text` ends (just behind its brace); -1 if none does."""
        if self._usual is not None:
            at = text.rfind(self._usual)
            if at >= 0:
                return at + 1
        if usual_only:
            return -1
        end = -1
        # near the end first: all of it only where that finds nothing
        for start in (max(0, len(text) - (64 << 10)), 0):
            for found in _ANY_BOUNDARY.finditer(text, start):
                end = found.start() + 1
            if end >= 0:
                break
        return end
