"""Make a small test fixture of a recording: `trim_trace.py IN OUT [--steps A:B]`.

What goes: flow events (the analysis joins by correlation id), the host's name, the folders in paths
(of generated kernels, of the command line). What stays is as recorded, to the nanosecond: every op,
launch, wait, kernel, copy and mark with its arguments, and the manifest (the key `tracekit`) with
the step times measured without the profiler. `--steps A:B` keeps the steps from A up to B, counted
from 0, and the GPU work that they launched; the manifest then says so.

The same input gives the same bytes: gzip level 9 without name and time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

HOST_WORDS = ("host_name", "hostname")
FLOW = ("s", "t", "f")
STEP = re.compile(r"^ProfilerStep#(\d+)$")
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHING = ("cuda_runtime", "cuda_driver")
ABSOLUTE = re.compile(r"^(?:/[^/\0]+){2,}$")

Event = dict[str, Any]


def trim(
    trace: dict[str, Any],
    name: str,
    *,
    steps: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """The trimmed trace, as a new object; `name` is its file's name."""
    events: list[Event] = [e for e in trace["traceEvents"] if e.get("ph") not in FLOW]
    if steps is not None:
        events = list(within(events, *steps))
    rest = {k: v for k, v in trace.items() if k not in (*HOST_WORDS, "traceEvents", "traceName")}
    if "tracekit" in rest:
        rest["tracekit"] = manifest(rest["tracekit"], name, steps)
    return {**unplaced(rest), "traceEvents": unplaced(events), "traceName": name}


def within(events: list[Event], first: int, end: int) -> Iterator[Event]:
    """Events of the steps from `first` up to `end`: host events by time, GPU work by its launch."""
    marks = sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]), e["name"])
        for e in events
        if e.get("cat") == "user_annotation" and STEP.match(e["name"])
    )
    if not 0 <= first < end <= len(marks):
        raise ValueError(f"the recording has {len(marks)} steps, not {first}:{end}")
    kept = marks[first:end]
    names = {name for *_, name in kept}
    begin, finish = kept[0][0], kept[-1][1]

    def inside(event: Event) -> bool:
        return begin <= float(event["ts"]) <= finish

    launched = {
        e["args"]["correlation"]
        for e in events
        if e.get("cat") in LAUNCHING and inside(e) and "correlation" in e.get("args", {})
    }
    for event in events:
        category = event.get("cat")
        if event.get("ph") == "M":
            yield event
        elif category in GPU_WORK:
            if event["args"].get("correlation") in launched:
                yield event
        elif category == "gpu_user_annotation":
            if event["name"] in names or (not STEP.match(event["name"]) and inside(event)):
                yield event
        elif inside(event):
            yield event


def manifest(found: dict[str, Any], name: str, steps: tuple[int, int] | None) -> dict[str, Any]:
    """The manifest of the trimmed file."""
    made = {**found, "trace": name}
    if "command" in made:
        made["command"] = [f"traces/{placeless(a)}" if ABSOLUTE.match(a) else a
                           for a in made["command"]]  # fmt: skip
    if steps is not None:
        made["steps"] = steps[1] - steps[0]
        made["trimmed"] = f"steps {steps[0]}:{steps[1]} of {found['steps']}"
    return made


def placeless(path: str) -> str:
    """The last part of a path."""
    return PurePosixPath(path).name


def unplaced(value: Any) -> Any:
    """The same value with every absolute path in it cut to its last part."""
    if isinstance(value, str):
        return placeless(value) if ABSOLUTE.match(value) else value
    if isinstance(value, list):
        return [unplaced(item) for item in value]
    if isinstance(value, dict):
        return {key: unplaced(item) for key, item in value.items()}
    return value


def packed(trace: dict[str, Any]) -> bytes:
    """The file: an event a line, as the profiler separates them, gzipped."""
    head = {k: v for k, v in trace.items() if k not in ("traceEvents", "traceName")}
    events = ",\n  ".join("{\n" + dumped(e)[1:-1] + "\n  }" for e in trace["traceEvents"])
    opening = f'{dumped(head)[:-1]},\n  "traceEvents": [\n  '
    closing = f'\n  ],\n  "traceName": {dumped(trace["traceName"])}\n}}\n'
    return gzip.compress((opening + events + closing).encode(), 9, mtime=0)


def dumped(value: Any) -> str:
    """JSON with the profiler's own spacing: tables keep the text of some arguments as it is."""
    return json.dumps(value, ensure_ascii=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", metavar="A:B", help="keep these steps, counted from 0")
    given = parser.parse_args()
    steps = None
    if given.steps:
        first, _, end = given.steps.partition(":")
        steps = (int(first), int(end))
    raw = given.source.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    trace = json.loads(text)
    data = packed(trim(trace, given.target.name, steps=steps))
    given.target.write_bytes(data)
    print(f"{given.target}: {len(data) / 1e3:.0f} kB, was {len(raw) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
