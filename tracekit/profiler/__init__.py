"""Recording: a trace of a few steady steps, and step times without the profiler.

`with tracekit.profile(...)` from code, `record` for a step function, `tracekit profile` for a
script that is not edited. Importing this package imports no torch; recording does.

Data flow: `recorder` counts steps and runs the phases of a `plan`; `timing` times the block
without the profiler; `export` writes the profiler's file with the `manifest` inside it.
"""

from __future__ import annotations

from tracekit.profiler.errors import RecordError
from tracekit.profiler.manifest import About, Manifest
from tracekit.profiler.plan import Options, Plan
from tracekit.profiler.recorder import Phase, Progress, Recorder, Recording
from tracekit.profiler.session import profile, record

__all__ = [
    "About",
    "Manifest",
    "Options",
    "Phase",
    "Plan",
    "Progress",
    "RecordError",
    "Recorder",
    "Recording",
    "profile",
    "record",
]
