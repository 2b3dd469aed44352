"""When the host compiled, autotuned or loaded GPU code, as far as the recording names it.

Only names that occur while something is compiled count. What runs at every call of compiled code
(`TorchDynamo Cache Lookup`, `Torch-Compiled Region`, `## Call CompiledFxGraph`, the files that
Inductor generated, the launcher of an autotuned Triton kernel) is no compilation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.intervals import Intervals, union
from tracekit.trace.model import Trace
from tracekit.trace.table import Codes, Ints, Table

KINDS = ("compile", "autotune", "module load")

# Annotations and ops: torch wraps each phase of a compilation in "NAME (dynamo_timed)".
_MARK = re.compile(
    r"\(dynamo_timed\)|^CachingAutotuner\.|_compile\.compile_inner|^compile_fx|convert_frame|"
    r"^async_compile|^AOTAutograd|^TorchDynamo\b(?! Cache Lookup)|^Inductor\b|^triton.*autotun"
)
# Rows of the profiler about the driver (cat overhead).
_DRIVER = re.compile(r"Driver Compiler|Module Loading|Lazy Function Loading")
# Python frames (with_stack), by file and function: other functions of these files run every step.
_FRAME = re.compile(
    r"torch/_dynamo/convert_frame\.py|"
    r"torch/_inductor/compile_fx\.py\(\d+\): \w*compile\w*|"
    r"torch/_inductor/(select_algorithm|async_compile|runtime/benchmarking)\.py|"
    r"torch/_inductor/(runtime/)?triton_heuristics\.py\(\d+\): "
    r"(\w*autotune_to_one_config|benchmark\w*|bench|_?precompile\w*|coordinate_descent\w*)|"
    r"triton/runtime/autotuner\.py\(\d+\): (_bench|benchmark)|"
    r"triton/testing\.py\(\d+\): do_bench\w*|"
    r"triton/compiler/compiler\.py\(\d+\): compile"
)
_TUNING = re.compile(r"autotun|bench", re.IGNORECASE)


@dataclass(frozen=True)
class CompileEvents:
    """The recorded events that are compilation; they nest, so never sum their durations."""

    start: Ints
    end: Ints
    id: Ints
    pid: Ints
    tid: Ints
    kind: Codes
    """index into KINDS"""
    name: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)


def compile_events(trace: Trace) -> CompileEvents:
    """Every event that names itself as compilation, autotuning or loading of GPU code."""
    parts: list[tuple[Table, Ints, Codes]] = []
    for table, pattern in (
        (trace.table("annotations"), _MARK),
        (trace.table("ops"), _MARK),
        (trace.table("python"), _FRAME),
        (trace.table("annotations"), _DRIVER),
    ):
        names = table.text("name")
        kind = names.map(lambda n, p=pattern: _kind(n, p), np.int32)
        if pattern is _DRIVER:
            kind = np.where(table.text("where").where(lambda w: w == "overhead"), kind, -1)
        parts.append((table, np.flatnonzero(kind >= 0), kind))
    launches = trace.table("launches")
    loads = np.flatnonzero(launches.text("kind").where(lambda k: k == "module_load"))
    parts.append((launches, loads, np.full(len(launches), KINDS.index("module load"), np.int32)))

    def column(name: str) -> Ints:
        return np.concatenate([t.ints(name)[rows] for t, rows, _ in parts])

    start = column("ts")
    return CompileEvents(
        start,
        start + np.maximum(column("dur"), 0),
        column("id"),
        column("pid"),
        column("tid"),
        np.concatenate([kind[rows] for _, rows, kind in parts]),
        tuple(t.text("name")[row] or "" for t, rows, _ in parts for row in rows.tolist()),
    )


def compiling(trace: Trace) -> Intervals:
    """When any thread compiled, autotuned or loaded GPU code."""
    events = compile_events(trace)
    return union(events.start, events.end)


def _kind(name: str, pattern: re.Pattern[str]) -> int:
    """Index into KINDS; -1 where the name is none."""
    name = name.replace("\\", "/")
    if not pattern.search(name):
        return -1
    if pattern is _DRIVER:
        return KINDS.index("compile" if "Compiler" in name else "module load")
    # Only the frame's own file and function: a folder may have any name.
    what = name.rpartition("/")[2]
    return KINDS.index("autotune" if _TUNING.search(what) else "compile")
