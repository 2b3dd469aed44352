"""The manifest: what a recording says about itself. A contract with every reader.

It is written twice: as the top-level key `"tracekit"` of the trace file (the first key, before
`traceEvents`), and, indented, as a file beside it (`manifest.json`). Both hold the same object:

```
schema_version   int    1. Raised when a field changes its meaning; new fields may appear.
created          str    UTC, ISO 8601, when the recording ended
complete         bool   false: interrupted, or fewer steps than asked for
incomplete_why   str    only where complete is false: one sentence
steps            int    whole steps recorded (each has its ProfilerStep# mark)
steps_asked      int
partial_step     bool   true: the recording ends inside a step, marked `Interrupted step#N`
step_on          str    what ended a step: "p.step()", "optimizer AdamW", "forward UNet", "rung"
trace            str    name of the trace file beside the manifest
unprofiled       null | object: the same program's steps timed without the profiler
  ms_per_step      float  ms; the median of samples_ms
  low, high        float  its 95 % bootstrap interval
  mean_ms          float  wall time of the timed block (device drained at both ends) a step
  samples_ms       [float]  one a step
  host_ms          [float]  host gaps between the ends of steps
  clock            "device" | "host" | "block"  (see `tracekit.profiler.timing`)
workload, rung, preset   str | null
batch, seed      int | null
command          [str]  the command line
versions         {tracekit, python, torch, cuda, cudnn, triton}: str | null
gpu              null | {name, memory_bytes, multiprocessors, compute_capability, driver,
                 found: {sm_mhz, memory_mhz, max_sm_mhz, power_limit_w, temperature_c}}
                 `found`: as read right after the timed block, never set; keys may be missing
rank, world_size int
options          {record_shapes, with_stack, profile_memory}: bool
phases           {wait, measure, warmup, steps}: int, as they happened
```
"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tracekit.profiler.plan import Options
from tracekit.profiler.timing import Unprofiled

SCHEMA_VERSION = 1
KEY = "tracekit"
"""The manifest's key at the trace file's top level."""


@dataclass(frozen=True)
class Gpu:
    """The GPU a recording ran on; `found` holds clocks in MHz, power in W, temperature in C."""

    name: str
    memory_bytes: int
    multiprocessors: int
    compute_capability: str
    driver: str | None
    found: dict[str, float]


@dataclass(frozen=True)
class About:
    """What the caller knows of the program being recorded. All of it is optional."""

    step_on: str = "p.step()"
    command: list[str] = field(default_factory=list)
    workload: str | None = None
    rung: str | None = None
    preset: str | None = None
    batch: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Manifest:
    """See the module's docstring for each field."""

    complete: bool
    steps: int
    steps_asked: int
    partial_step: bool
    trace: str
    unprofiled: Unprofiled | None
    about: About
    versions: dict[str, str | None]
    gpu: Gpu | None
    rank: int
    world_size: int
    options: Options
    phases: dict[str, int]
    incomplete_why: str | None = None
    created: str = field(default_factory=lambda: _now())

    def to_dict(self) -> dict[str, Any]:
        """The contract's object, ready for json."""
        fields = asdict(self)
        about = fields.pop("about")
        if self.unprofiled is not None:
            fields["unprofiled"] = self.unprofiled.to_dict()
        if self.complete:
            fields.pop("incomplete_why")
        return {
            "schema_version": SCHEMA_VERSION,
            "created": fields.pop("created"),
            **fields,
            **about,
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """ASCII JSON that every reader takes: quotes and backslashes of a command line are
        escaped, and bytes of it that are not UTF-8 stand as text (`\\udcff`)."""
        fields = {**self.to_dict(), "command": [shown(word) for word in self.about.command],
                  "trace": shown(self.trace)}  # fmt: skip
        return json.dumps(fields, indent=indent, ensure_ascii=True, allow_nan=False)


def shown(text: str) -> str:
    """The text without lone surrogates, which JSON can write and strict readers refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
