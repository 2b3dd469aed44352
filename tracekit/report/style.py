"""Text for a terminal: colours, widths, and names from a trace made harmless.

Everything a trace says (kernel names, annotations, file names) goes through `clean` before it is
written anywhere a terminal may show it.
"""

from __future__ import annotations

import os
import shutil
import textwrap
import unicodedata
from typing import TextIO

MAX_WIDTH, MIN_WIDTH = 100, 80

_CODES = {
    "bold": "1",
    "dim": "2",
    "high": "1;31",
    "medium": "33",
    "low": "36",
    "note": "2",
    "good": "32",
    "warn": "33",
    "code": "36",
    "price": "1;32",
}


class Style:
    """Paints words when colour is on; leaves them alone when it is off."""

    def __init__(self, *, color: bool = False, width: int = MAX_WIDTH) -> None:
        self.color = color
        self.width = max(MIN_WIDTH, min(MAX_WIDTH, width))

    def paint(self, text: str, role: str) -> str:
        """The text in the role's colour. The text must already be `clean`."""
        return f"\x1b[{_CODES[role]}m{text}\x1b[0m" if self.color and text else text


def style_for(stream: TextIO, color: str = "auto") -> Style:
    """The style that fits a stream.

    Args:
        stream: where the text will go.
        color: 'always', 'never', or 'auto': colour on a terminal unless NO_COLOR is set or TERM
            is 'dumb'.
    """
    terminal = stream.isatty()
    on = color == "always" or (
        color == "auto"
        and terminal
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )
    return Style(color=on, width=shutil.get_terminal_size().columns if terminal else MAX_WIDTH)


_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))


def clean(text: str) -> str:
    """The text with every control, format and surrogate character written as an escape.

    A kernel called "\\x1b[2J" prints as these characters; it does not clear the screen. Newlines
    and tabs become escapes too: a name is one line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c) for c in text)


def _visible(char: str) -> str:
    if unicodedata.category(char) not in _INVISIBLE:
        return char
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """How many terminal columns a clean text takes (wide East Asian characters take two)."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) - sum(unicodedata.combining(c) != 0 for c in text) + wide


def shorten(text: str, limit: int) -> str:
    """A clean text of at most `limit` columns; the middle goes, since both ends of a kernel's name
    tell which it is."""
    if columns(text) <= limit:
        return text
    if limit < 8:
        return text[: max(limit, 0)]
    tail = (limit - 3) // 3
    head = limit - 3 - tail
    out = text[:head] + "..." + text[len(text) - tail :]
    while columns(out) > limit:  # wide characters
        head -= 1
        out = text[:head] + "..." + text[len(text) - tail :]
    return out


def wrap(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """Lines of at most `width` columns. Words longer than a line are shortened, not broken."""
    room = max(width - len(indent), 20)
    words = [shorten(clean(word), room) for word in text.split()]
    return textwrap.wrap(
        " ".join(words),
        width,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def pad(text: str, width: int) -> str:
    """The text filled with spaces on the right to `width` columns."""
    return text + " " * (width - columns(text))


def ms(value: float) -> str:
    """Milliseconds for a person: three figures or so, never '0.0' for something that is there."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10 or size == 0:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.3f}"


def short_time(value_ms: float) -> str:
    """'12 us', '3.4 ms', '2.1 s': one number with the unit that suits it."""
    if value_ms < 1:
        return f"{value_ms * 1000:.0f} us" if value_ms >= 0.01 else f"{value_ms * 1000:.1f} us"
    return f"{value_ms:.1f} ms" if value_ms < 1000 else f"{value_ms / 1000:.1f} s"


def decimals(whole: float) -> int:
    """How many decimals the parts of a time line of `whole` ms want."""
    return 0 if whole >= 10_000 else 1 if whole >= 10 else 2 if whole >= 1 else 3


def percent(part: float, whole: float) -> str:
    """'31 %'; '<1 %' for something small, '0 %' for nothing."""
    if whole <= 0:
        return "-"
    share = 100 * part / whole
    if 0 < share < 1:
        return "<1 %"
    if 99 < share < 100:
        return ">99 %"
    return f"{share:.0f} %"


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def count(number: int, noun: str) -> str:
    """'1 step', '2,188 steps'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
