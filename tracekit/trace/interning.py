"""Text as small integers: each distinct text is stored once, a row holds its number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracekit.trace.table import Codes


class Interner(dict[Any, int]):
    """Maps a text (str, or bytes of raw JSON) to its number; unseen texts get the next one.

    None and b"" stand for "the event had no such field" and map to -1.
    """

    def __init__(self) -> None:
        super().__init__({None: -1, b"": -1})

    def __missing__(self, text: Any) -> int:
        number = self[text] = len(self) - 2
        return number

    def codes(self, texts: Sequence[Any]) -> Codes:
        """The number of each text."""
        if texts.count(None) == len(texts):  # a field that few events have
            return np.full(len(texts), -1, np.int32)
        return np.fromiter(map(self.__getitem__, texts), np.int32, len(texts))

    def keys_in_order(self) -> list[Any]:
        """The distinct texts as they came (bytes where raw), by number."""
        return [key for key, number in self.items() if number >= 0]

    def texts(self) -> list[str]:
        """The distinct texts, by number."""
        return [text_of(key) for key in self.keys_in_order()]


def text_of(value: Any) -> str:
    """A field's text: raw JSON is bytes, and a number where a text was due keeps its digits."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        # an indented file: one line, as Kineto writes it
        return json.dumps(json.loads(text), ensure_ascii=False) if "\n" in text else text
    return value if isinstance(value, str) else str(value)
