"""A replayed step as a trace of its own, to open beside the recorded one (Perfetto, Chrome)."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from tracekit.replay.engine import Replayed
from tracekit.replay.model import StepModel
from tracekit.trace.model import Trace


def events(trace: Trace, model: StepModel, replayed: Replayed) -> list[dict[str, Any]]:
    """The last replayed round's GPU work as Chrome trace events, times from its first work.

    Process = the work's device, thread = its stream, as in the recording; `args` hold the recorded
    event's position in its file and its recorded start and duration (us).
    """
    gpu = trace.table("gpu")
    alive = replayed.work_start >= 0
    if not alive.any():
        return []
    origin = int(replayed.work_start[alive].min())
    recorded = int(gpu.ts[model.work_row[alive]].min())
    found: list[dict[str, Any]] = []
    for row, start, end in zip(
        model.work_row[alive].tolist(),
        replayed.work_start[alive].tolist(),
        replayed.work_end[alive].tolist(),
        strict=True,
    ):
        found.append(
            {
                "ph": "X",
                "cat": gpu.text("kind")[row],
                "name": gpu.text("name")[row],
                "pid": int(gpu.ints("device")[row]),
                "tid": int(gpu.ints("stream")[row]),
                "ts": (start - origin) / 1e3,
                "dur": (end - start) / 1e3,
                "args": {
                    "event": int(gpu.ints("id")[row]),
                    "recorded ts": (int(gpu.ts[row]) - recorded) / 1e3,
                    "recorded dur": int(gpu.ints("dur")[row]) / 1e3,
                },
            }
        )
    found.sort(key=lambda e: (e["ts"], e["pid"], e["tid"]))
    return found


def save(path: str | os.PathLike[str], trace: Trace, model: StepModel, replayed: Replayed) -> None:
    """Write the replayed steps to `path` (.json or .json.gz); complete or not at all.

    Raises:
        OSError: if the file cannot be written.
    """
    target = Path(path)
    text = json.dumps({"traceEvents": events(trace, model, replayed)}).encode()
    if target.suffix == ".gz":
        text = gzip.compress(text, mtime=0)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(text)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
