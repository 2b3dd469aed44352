"""Microseconds as a file writes them, to int64 nanoseconds, without rounding.

A float64 holds microseconds with three decimals exactly below 2^43 us (its step there is under
a nanosecond, so the nearest nanosecond is the one that was written). Above, only integers are
exact, and decimals have to be read from their text.
"""

from __future__ import annotations

from array import array
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from tracekit.trace.numbers import exact_ints
from tracekit.trace.table import Bools, Ints

EXACT_BELOW_US = float(2**43)
_LIMIT_NS = 2**62
_LIMIT_US = _LIMIT_NS // 1000
_MOST_DIGITS = len(str(_LIMIT_US))
LONGEST_NS = 10 * 86_400 * 10**9
"""ten days: no profiler records for as long"""
MISSING = -(2**63)
"""Marks a time that is not there or not a number."""


class NeedsText(Exception):
    """Decimal times too large for float64: decode the chunk again with its times as text."""


def ns_column(values: list[Any]) -> Ints:
    """Nanoseconds of times decoded as numbers (or strings); `MISSING` where there is none.

    Raises:
        NeedsText: a time has decimals that a float64 may have lost.
    """
    try:
        whole = exact_ints(values)
        if not len(whole) or (whole.max() < _LIMIT_US and whole.min() > -_LIMIT_US):
            return whole * 1000
    except (TypeError, OverflowError):
        pass
    try:
        us = np.frombuffer(array("d", values), np.float64)
    except (TypeError, OverflowError):
        us = None
    if us is not None and np.abs(us).max() < EXACT_BELOW_US:
        whole_us = np.floor(us)
        part = np.rint((us - whole_us) * 1000.0)
        return whole_us.astype(np.int64) * 1000 + part.astype(np.int64)
    if any(isinstance(v, float) and not abs(v) < EXACT_BELOW_US for v in values):
        raise NeedsText
    return np.fromiter((_ns(v) for v in values), np.int64, len(values))


def ns_of_raw(values: list[Any]) -> Ints:
    """Nanoseconds of times kept as raw JSON text; `MISSING` where there is none."""
    return np.fromiter((ns_of_text(bytes(v)) for v in values), np.int64, len(values))


def ns_of_text(text: bytes) -> int:
    """Nanoseconds of one time as written, quoted or not."""
    text = text.strip(b' "')
    whole, _, part = text.partition(b".")
    if part.isdigit() and len(part) <= 3 and whole.isdigit() and len(whole) < 16:
        return int(whole) * 1000 + int(part.ljust(3, b"0"))
    try:
        us = Decimal(text.decode("ascii"))
        if us.adjusted() > _MOST_DIGITS:  # writing out 1e500000 takes seconds
            return MISSING
        ns = round(us * 1000)
    except (InvalidOperation, UnicodeDecodeError, ValueError, OverflowError):
        return MISSING
    return ns if -_LIMIT_NS < ns < _LIMIT_NS else MISSING


def missing(column: Ints) -> Bools:
    """Mask of the times that are not there."""
    mask: Bools = column == MISSING
    return mask


def _ns(value: Any) -> int:
    if isinstance(value, int):
        ns = value * 1000
        return ns if -_LIMIT_NS < ns < _LIMIT_NS else MISSING
    if isinstance(value, float):
        if abs(value) < EXACT_BELOW_US:
            return round(value * 1000.0)
        return MISSING
    if isinstance(value, str):
        return ns_of_text(value.encode("utf-8", "replace"))
    return MISSING
