"""Numbers of a trace as int64 columns: fields written as text, as floats, or too large."""

from __future__ import annotations

import re
import zlib
from array import array
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tracekit.trace.table import Ints

_NO_NUMBER = "a field is not a number"
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_LOW, _HIGH = -(2**63), 2**63 - 1
_ID_TEXT = re.compile(r"^(?:stream|gpu|device|queue|cuda|hip|xpu)?\s*[:#]?\s*(-?\d+)$", re.I)
_SIZE_TEXT = re.compile(r"^(-?\d+)(?:\s*bytes)?$")
_OWN_IDS_BELOW = -(2**40)


def int_column(values: list[Any], altered: Counter[str]) -> Ints:
    """An int64 column; a value that is no such number becomes -1, and is counted in `altered`
    where something was written."""
    try:
        return exact_ints(values)
    except (TypeError, OverflowError):
        pass
    return np.fromiter((_int(v, altered) for v in values), np.int64, len(values))


def exact_ints(values: list[Any]) -> Ints:
    """An int64 column of ints and nothing else (numpy would accept and truncate floats).

    Raises:
        TypeError, OverflowError: a value is no int, or too large.
    """
    column: Ints = np.frombuffer(array("q", values), np.int64)
    return column


def float_column(values: list[Any], altered: Counter[str]) -> npt.NDArray[np.float32]:
    """A float32 column; -1 where there is no number, or none that it can hold."""
    try:
        column = np.array(array("d", values), np.float64)
    except (TypeError, OverflowError):
        column = np.fromiter((_float(v, altered) for v in values), np.float64, len(values))
    beyond = ~(np.abs(column) <= _LARGEST_FLOAT)
    if beyond.any():
        altered[_NO_NUMBER] += int(beyond.sum())
        column[beyond] = -1.0
    return column.astype(np.float32)


def int32_column(column: Ints, altered: Counter[str]) -> npt.NDArray[np.int32]:
    """The numbers in 32 bits; -1 where one does not fit."""
    beyond = (column < -(2**31)) | (column >= 2**31)
    if beyond.any():
        altered["an integer does not fit in 32 bits"] += int(beyond.sum())
        column = np.where(beyond, -1, column)
    return column.astype(np.int32)


def _float(value: Any, altered: Counter[str]) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        if value is not None:
            altered[_NO_NUMBER] += 1
        return -1.0


def _int(value: Any, altered: Counter[str]) -> int:
    if value is None:
        return -1
    if isinstance(value, str):
        found = _SIZE_TEXT.match(value.strip())
        try:
            value = int(found[1]) if found else int(value, 0)
        except ValueError:
            altered[_NO_NUMBER] += 1
            return -1
    if isinstance(value, float):
        if not value.is_integer():
            altered["a field is not an integer"] += 1
            return -1
        value = int(value)
    if not _LOW <= value <= _HIGH:
        altered["an integer does not fit in 64 bits"] += 1
        return -1
    return int(value)


class IdTexts:
    """Process and thread ids. Text with a number in it ("stream 7") is that number; other text
    gets a negative number computed from it alone, so that it is the same in every file."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._known: dict[str, int] = {}

    def column(self, values: list[Any], altered: Counter[str]) -> Ints:
        """The ids as numbers."""
        try:
            return exact_ints(values)
        except (TypeError, OverflowError):
            pass
        return int_column([self._id(v) if isinstance(v, str) else v for v in values], altered)

    def _id(self, text: str) -> int:
        number = self._known.get(text)
        if number is None:
            found = _ID_TEXT.match(text.strip())
            if found and len(found[1]) < 19:
                number = int(found[1])
            else:
                number = _OWN_IDS_BELOW - zlib.crc32(text.encode("utf-8", "replace"))
            self._known[text] = number
            self.texts[number] = text
        return number
