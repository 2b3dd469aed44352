"""Text fixes for JSON that profilers write wrongly: each fixes one kind of fault.

`mend_safe` changes nothing a strict parser would have accepted, so it can run over a whole chunk;
`mend_event` also guesses where a string was meant to end, so it runs over one broken event only.
"""

from __future__ import annotations

import re
from collections import Counter

from tracekit.trace.layout import EVENT_KEYS

BACKSLASH = "a raw backslash in a string, kept as text"
CONTROL = "a control character in a string, read as a space"
UTF8 = "bytes that are not UTF-8, read as U+FFFD"
SURROGATE = "half of a surrogate pair, read as U+FFFD"
NOT_JSON_NUMBER = "N/A, NaN or Infinity, read as missing"
COMMA = "a comma too many"
QUOTE = "a raw quote in a string, kept as text"

_LINE_ENDS = b"\t\n\r"
_CONTROLS = bytes(32 if c < 32 and c not in _LINE_ENDS else c for c in range(256))
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.S)
_LINE = re.compile(rb"[\n\r\t]")
_ESCAPE = re.compile(
    rb'\\(?:["\\/bfnrt]|u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    rb"|(?![dD][89a-fA-F])[0-9a-fA-F]{4}))|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\"
)
_BARE = rb"(?:N/A|[-+]?(?:nan|inf(?:inity)?)|None|undefined|n/a)"
_BARE_VALUE = re.compile(rb'(":\s*)' + _BARE + rb"(?=\s*[,}])", re.I)
_BARE_ITEM = re.compile(rb"([\[,]\s*)" + _BARE + rb"(?=\s*[,\]])", re.I)
_COMMA_BEFORE_END = re.compile(rb",(?:\s*,)*(?=\s*[}\]])")
_COMMAS = re.compile(rb",(?:\s*,)+")
_ESCAPED_END = re.compile(rb'\\"(?=\s*(?:,\s*"' + EVENT_KEYS + rb'"\s*:|\}))')
_STRING_VALUE = re.compile(
    rb'("[^"\\]{1,60}"\s*:\s*")(.*?)("\s*(?=,\s*"[^"\\]{1,60}"\s*:|\}))', re.S
)
_QUOTE_INSIDE = re.compile(rb'\\.|"', re.S)


def mend_safe(text: bytes, done: Counter[str]) -> bytes:
    """Fixes backslashes, control characters, UTF-8 and bare N/A or NaN values."""
    if _CONTROL.search(text):
        text = text.translate(_CONTROLS)
        done[CONTROL] += 1
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode("utf-8")
        done[UTF8] += 1
    if b"\\" in text:
        text = _ESCAPE.sub(lambda m: _escape(m, done), text)
    text, count = _BARE_VALUE.subn(rb"\1null", text)
    done[NOT_JSON_NUMBER] += count
    return text


def mend_lines(text: bytes, done: Counter[str]) -> bytes:
    """Takes line ends and tabs out of strings, where they may not stand."""

    def inside(found: re.Match[bytes]) -> bytes:
        fixed, count = _LINE.subn(b" ", found[0])
        done[CONTROL] += count > 0
        return fixed

    return _STRING.sub(inside, text)


def mend_event(text: bytes, done: Counter[str]) -> bytes:
    """Fixes what only makes sense within one event: commas too many, bare items, raw quotes."""
    text = mend_safe(text, done)
    text, count = _BARE_ITEM.subn(rb"\1null", text)
    done[NOT_JSON_NUMBER] += count
    text, count = _COMMA_BEFORE_END.subn(b"", text)
    done[COMMA] += count
    text, count = _COMMAS.subn(b",", text)
    done[COMMA] += count
    return text


def mend_quotes(text: bytes, done: Counter[str]) -> bytes:
    """Escapes quotes within strings: a string ends at a quote that a comma and another key, or a
    closing brace, follow."""
    text, count = _ESCAPED_END.subn(rb'\\\\"', text)
    done[BACKSLASH] += count

    def inside(found: re.Match[bytes]) -> bytes:
        return found[1] + _QUOTE_INSIDE.sub(lambda m: _quote(m, done), found[2]) + found[3]

    return _STRING_VALUE.sub(inside, text)


def _escape(found: re.Match[bytes], done: Counter[str]) -> bytes:
    written = found[0]
    if written == b"\\":
        done[BACKSLASH] += 1
        return b"\\\\"
    if len(written) == 6 and written[2:4].lower() in _SURROGATES:
        done[SURROGATE] += 1
        return b"\\ufffd"
    return written


_SURROGATES = {b"d8", b"d9", b"da", b"db", b"dc", b"dd", b"de", b"df"}


def _quote(found: re.Match[bytes], done: Counter[str]) -> bytes:
    if found[0] != b'"':
        return found[0]
    done[QUOTE] += 1
    return b'\\"'
