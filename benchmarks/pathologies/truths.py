"""truths.json: what was measured on the machine that recorded the traces. Imports no torch.

```
schema_version  int   1
machine         {device, clocks_mhz, driver, versions}
command         str   how to repeat it
pairs           [{name, fault, expected, reason, variants, twin_tests, error,
                  first, second, saving_ms, saving_percent}]
```
`first` and `second` are the steps of the two `variants` in ms; they, `saving_ms` and
`saving_percent` (of the first's step) are {median, low, high} with a 95 % interval, or null where
`error` says why. The traces lie beside it, under `trace_name`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

FILE = "truths.json"
SCHEMA_VERSION = 1


class Estimated(Protocol):
    """Anything with a median and its interval."""

    @property
    def median(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % interval."""

    median: float
    low: float
    high: float


def interval(estimate: Estimated) -> Interval:
    """`estimate`, rounded to what is worth keeping."""
    return Interval(*(round(v, 5) for v in (estimate.median, estimate.low, estimate.high)))


@dataclass(frozen=True)
class Pair:
    """One program's truth; see the module's docstring."""

    name: str
    fault: str
    expected: tuple[str, ...]
    reason: str
    variants: tuple[str, str]
    twin_tests: tuple[str, ...]
    first: Interval | None
    second: Interval | None
    saving_ms: Interval | None
    saving_percent: Interval | None
    error: str | None = None

    @property
    def control(self) -> bool:
        """True for a program without a fault."""
        return not self.expected


@dataclass(frozen=True)
class Truths:
    """The whole file."""

    machine: Mapping[str, Any]
    command: str
    pairs: tuple[Pair, ...]

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1) + "\n"


def from_json(text: str) -> Truths:
    """Read the file's text.

    Raises `ValueError` for a file of another schema.
    """
    data = json.loads(text)
    if data.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"truths.json has schema {data.get('schema_version')!r}, not 1")
    return Truths(data["machine"], data["command"], tuple(_pair(each) for each in data["pairs"]))


def _pair(data: dict[str, Any]) -> Pair:
    intervals = ("first", "second", "saving_ms", "saving_percent")
    tuples = ("expected", "variants", "twin_tests")
    fields = dict(data)
    for key in intervals:
        fields[key] = Interval(**data[key]) if data[key] else None
    for key in tuples:
        fields[key] = tuple(data[key])
    return Pair(**fields)


def trace_name(name: str, variant: str) -> str:
    """The file of one variant's trace."""
    return f"{name}.{variant}.json.gz"
