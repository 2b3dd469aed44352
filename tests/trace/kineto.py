"""Traces as text, small enough to check by hand, in Kineto's own layout and in others."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

from tracekit.trace.model import Trace
from tracekit.trace.read import read

FIRST_US = 5107718255264
"""A time whose nanoseconds a float64 just holds."""


def op(number: int, name: str = "aten::mm", more: str = "", us: str | None = None) -> str:
    """The text of an operator's event: it starts at FIRST_US + 10 * number us, and number ns."""
    us = us or f"{FIRST_US + number * 10}.{number % 1000:03d}"
    return (
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 2,\n'
        f'    "ts": {us}, "dur": 1.500,\n    "args": {{\n'
        f'      "External id": {number + 1},"Record function id": 0, '
        f'"Input Dims": [[1, {number}], []], "Ev Idx": {number}{more}\n    }}\n  }}'
    )


def document(events: list[str], header: str = "", tail: str = '"traceName": "x.json"') -> str:
    """A Kineto file of these events."""
    body = ",\n".join(events)
    return f'{{\n  "schemaVersion": 1,{header}\n  "traceEvents": [\n{body}\n  ],\n  {tail}\n}}\n'


def ops(count: int) -> list[str]:
    """The texts of `count` operators."""
    return [op(i) for i in range(count)]


def load(text: str | bytes) -> Trace:
    """The trace of a text."""
    return read(io.BytesIO(text.encode() if isinstance(text, str) else text))


def one(**fields: Any) -> Trace:
    """The trace of one event behind an operator at time 0."""
    base = {"ph": "X", "cat": "cpu_op", "name": "first", "pid": 1, "tid": 1, "ts": 0, "dur": 1}
    return load(json.dumps({"traceEvents": [base, {**base, **fields}]}))


def exact_ns(text: str) -> list[tuple[int, int]]:
    """(start, duration) in ns of the complete events of a sound file, read another way."""
    events = json.loads(text, parse_float=Decimal)
    events = events["traceEvents"] if isinstance(events, dict) else events
    return [
        (int(Decimal(e["ts"]) * 1000), int(Decimal(e.get("dur", 0)) * 1000))
        for e in events
        if e["ph"] == "X"
    ]
