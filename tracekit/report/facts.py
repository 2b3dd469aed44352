"""The numbers that every report shows, taken from a `Diagnosis` once.

Text, markdown and JSON only lay these out, so that they cannot disagree.

The step shown is the middle one: the step (or, of an even number, the two steps) whose period is
the median. Its parts are the recorded ones, so they sum to the step time exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.analysis.idle import CAUSES
from tracekit.detectors.finding import Finding
from tracekit.diagnosis import Diagnosis
from tracekit.trace.model import Trace
from tracekit.trace.table import Ints

NS_PER_MS = 1e6

BREAKDOWN_LABELS = {
    "computing": "GPU computing",
    "communication": "exposed communication",
    "copies": "exposed copies",
    "idle_host_sync": "idle, host sync",
    "idle_launch": "idle, launches",
    "idle_input": "idle, input wait",
    "idle_allocator": "idle, allocator",
    "idle_compilation": "idle, compilation",
    "idle_other_host": "idle, other host work",
    "idle_device": "idle, on the device",
    "idle_unknown": "idle, unknown",
}
"""Keys of `Accounting.breakdown_ns` and how a report calls them, in reading order."""

# Parts that do not shrink when the profiler's own cost is taken out: it slows the host only.
_ON_DEVICE = ("computing", "communication", "copies", "idle_device")

RECORDING = "TRC"
"""the family of findings about the trace's health"""
COPY_CLASSES = ("copy",)
COMMUNICATION_CLASSES = ("communication",)


@dataclass(frozen=True)
class Device:
    """One device that the trace has GPU work of."""

    id: int
    name: str
    gpu_events: int
    analysed: bool
    """True for the device that the step numbers are about"""


@dataclass(frozen=True)
class StepFacts:
    """The typical step; ms."""

    count: int
    source: str
    median: float
    low: float
    high: float
    busy: float
    idle: float
    breakdown: dict[str, float]
    unprofiled: float | None
    """step time without the profiler, as given or as the recording carries it"""
    unprofiled_breakdown: dict[str, float] | None
    """estimate: GPU parts as recorded, host-made idle shrunk until the sum is `unprofiled`"""
    classes: dict[str, float]
    """GPU time by kernel class, of the work the step launched; the largest first"""
    launched: float
    """pieces of GPU work that the step launched"""


@dataclass(frozen=True)
class Health:
    """How much of the file the numbers rest on."""

    status: str
    orphans: int
    """GPU events whose launch is not in the file"""
    carry_in: int
    """GPU events launched before the first step"""
    outside: int
    """GPU events that belong to no step, for whatever reason"""


def priced(d: Diagnosis) -> list[Finding]:
    """Findings about the program: they have a price."""
    return [f for f in d.findings if not f.code.startswith(RECORDING)]


def about_recording(d: Diagnosis) -> list[Finding]:
    """Findings about the trace itself: how far the numbers can be trusted."""
    return [f for f in d.findings if f.code.startswith(RECORDING)]


def middle(values: Ints) -> Ints:
    """Positions of the one or two values that the median is made from."""
    n = len(values)
    order = np.argsort(values, kind="stable")
    return order[(n - 1) // 2 : n // 2 + 1]


def step_facts(d: Diagnosis) -> StepFacts:
    """The typical step of a diagnosis."""
    steps, accounting = d.steps, d.analysis.accounting
    at = middle(steps.wall_ns)

    def typical(values: Ints) -> float:
        return float(values[at].mean()) / NS_PER_MS if len(at) else 0.0

    breakdown = {key: typical(values) for key, values in accounting.breakdown_ns.items()}
    classes = {key: typical(values) for key, values in accounting.class_ns.items()}
    wall = steps.wall_ns
    unprofiled = d.analysis.unprofiled_ms
    return StepFacts(
        count=len(steps),
        source=steps.source,
        median=typical(wall),
        low=float(wall.min()) / NS_PER_MS if len(wall) else 0.0,
        high=float(wall.max()) / NS_PER_MS if len(wall) else 0.0,
        busy=typical(accounting.busy_ns),
        idle=typical(accounting.idle_ns),
        breakdown=breakdown,
        unprofiled=unprofiled,
        unprofiled_breakdown=without_profiler(breakdown, unprofiled),
        classes=dict(sorted(classes.items(), key=lambda item: (-item[1], item[0]))),
        launched=float(accounting.launches[at].mean()) if len(at) else 0.0,
    )


def without_profiler(
    breakdown: dict[str, float], unprofiled: float | None
) -> dict[str, float] | None:
    """The step's parts as they are without the profiler, ms; None where that cannot be said.

    The profiler slows the host, not the GPU: GPU parts stay, idle that the host makes shrinks in
    proportion until the parts sum to the unprofiled step.
    """
    if unprofiled is None or not breakdown:
        return None
    fixed = sum(breakdown.get(key, 0.0) for key in _ON_DEVICE)
    elastic = sum(breakdown.values()) - fixed
    left = unprofiled - fixed
    if left < 0 or elastic <= 0:
        return None
    scale = left / elastic
    return {k: v if k in _ON_DEVICE else v * scale for k, v in breakdown.items()}


def devices(d: Diagnosis) -> list[Device]:
    """The devices that have GPU work, by id."""
    names = d.trace.device_names
    found, times = np.unique(d.trace.table("gpu").ints("device"), return_counts=True)
    return [
        Device(i, names.get(i) or "", n, i == d.analysis.device)
        for i, n in zip(found.tolist(), times.tolist(), strict=True)
    ]


def health(d: Diagnosis) -> Health:
    """What was not read, and what belongs to no step."""
    steps = d.steps
    return Health(
        status="degraded" if d.degraded else "complete",
        orphans=steps.orphans,
        carry_in=steps.carry_in,
        outside=int((steps.gpu_step < 0).sum()),
    )


def versions(trace: Trace) -> dict[str, str]:
    """Software versions, as far as the recording names them."""
    out: dict[str, str] = {}
    recorded = (trace.manifest or {}).get("versions")
    if isinstance(recorded, dict):
        out = {str(k): str(v) for k, v in recorded.items() if v}
    header = trace.header
    for key, name, decode in (
        ("cuda_runtime_version", "cuda", _cuda_version),
        ("cuda_driver_version", "cuda_driver", _cuda_version),
        ("hip_runtime_version", "hip", _hip_version),
        ("hip_driver_version", "hip_driver", _hip_version),
    ):
        value = header.get(key)
        if isinstance(value, int) and value > 0:
            out.setdefault(name, decode(value))
    distributed = header.get("distributedInfo")
    if isinstance(distributed, dict) and isinstance(distributed.get("nccl_version"), str):
        out.setdefault("nccl", distributed["nccl_version"])
    return dict(sorted(out.items()))


def _cuda_version(value: int) -> str:
    return f"{value // 1000}.{value % 1000 // 10}"


def _hip_version(value: int) -> str:
    return f"{value // 10_000_000}.{value // 100_000 % 100}.{value % 100_000}"


def waits(d: Diagnosis, cause: str, limit: int = 2) -> list[str]:
    """The calls that explain most of the idle of one cause, as 'op, call, n a step'."""
    gaps, links, trace = d.analysis.gaps, d.analysis.links, d.trace
    mine = np.flatnonzero((gaps.cause == CAUSES.index(cause)) & (gaps.call >= 0))
    launches, ops = trace.table("launches"), trace.table("ops")
    lost: dict[str, int] = {}
    calls: dict[str, set[int]] = {}
    for row in mine.tolist():
        call = int(gaps.call[row])
        chain = links.chain(int(links.launch_op[call]))
        op = ops.text("name")[chain[0]] if chain else None
        name = launches.text("name")[call] or "unnamed call"
        label = f"{op} > {name}" if op else name
        lost[label] = lost.get(label, 0) + int(gaps.end[row] - gaps.start[row])
        calls.setdefault(label, set()).add(call)
    best = sorted(lost, key=lambda label: (-lost[label], label))[:limit]
    steps = max(len(d.steps), 1)
    return [f"{label}, {_per_step(len(calls[label]), steps)}" for label in best]


def _per_step(times: int, steps: int) -> str:
    if times == steps:
        return "once a step"
    if times < steps:
        return f"{times} in {steps} steps"
    mean = times / steps
    return f"{mean:,.0f} a step" if mean >= 10 or times % steps == 0 else f"{mean:.1f} a step"


def number(value: Any) -> float | int | str | None:
    """A JSON-safe number: no NaN, no infinity, no numpy scalar; floats to 7 decimals, which in ms
    is 0.1 ns."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return round(value, 7) + 0.0 if math.isfinite(value) else None
    return None if value is None else str(value)
