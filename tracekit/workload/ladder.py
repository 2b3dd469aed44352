"""The ladder: every rung in one process, timed side by side, round by round.

Each rung is built and warmed up first. Then a round gives every rung a block of steps in turn, so
that a drifting clock or a busy host touches all rungs alike. A block is timed by the wall clock,
with the device drained at both ends; loader and copy are inside. What the profiler sees (GPU work,
findings) is recorded after the timing, never during it.

``python -m tracekit.workload.ladder`` is ``tracekit ladder``.
"""

from __future__ import annotations

import gc
import gzip
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from tracekit.workload.data import ImageSet, load_images
from tracekit.workload.ladder_statistics import Interval, median_interval, speedup, union_ns
from tracekit.workload.machine import describe_machine, peak_tflops
from tracekit.workload.rungs import Rung
from tracekit.workload.train_step import PRESETS, Trainer, build, usable_device

__all__ = ["SCHEMA_VERSION", "Settings", "run_ladder"]

SCHEMA_VERSION = 1
TRACED_STEPS = 3
SETTLE_STEPS = 2
"""Untimed steps at the start of a block: caches and clocks come from another rung's block."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What to run. ``steps`` is the length of a timed block, ``rounds`` the blocks of a rung."""

    rungs: Sequence[Rung]
    steps: int = 20
    rounds: int = 10
    preset: str = "cifar10"
    batch: int | None = None
    device: str = "cuda"
    data: str | None = None
    loader: str | None = None
    seed: int = 0
    traces: Path | None = None
    """Keep each rung's recorded trace in this folder."""
    compile_backend: str = "inductor"


@dataclass
class Climb:
    """One rung under way: its trainer and what has been measured of it."""

    rung: Rung
    trainer: Trainer | None = None
    warm_up_s: float = 0.0
    peak_memory_bytes: int | None = None
    round_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    loss: float | None = None
    flops: int | None = None
    steps_taken: int | None = None
    gpu_work_ms: float | None = None
    findings: list[dict[str, Any]] | None = None
    error: str | None = None


def run_ladder(settings: Settings, command: str, progress: Progress) -> dict[str, Any]:
    """Run the ladder and return what ``docs/ladder.json`` holds.

    A rung that fails is reported in its row and the others go on. Ctrl-C ends the measuring and
    returns what there is, with ``complete`` false. Raises ``WorkloadError`` before anything was
    measured: no data, no device, an unknown preset.
    """
    device = usable_device(settings.rungs[0], settings.device)
    batch = settings.batch or PRESETS[settings.preset].batch
    images = load_images(settings.data, max(PRESETS[settings.preset].images, batch))
    progress(f"images: {images.name}")
    climbs = [Climb(rung) for rung in settings.rungs]
    complete = True
    try:
        for climb in climbs:
            attempt(climb, progress, lambda climb: prepare(climb, settings, images, progress))
        measure(climbs, settings, progress)
        for climb in climbs:
            attempt(climb, progress, lambda climb: inspect(climb, settings, progress))
    except KeyboardInterrupt:
        complete = False
        progress("interrupted: keeping what was measured")
    machine = describe_machine(device)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "complete": complete,
        "machine": machine,
        "settings": {
            "preset": settings.preset,
            "batch": batch,
            "steps": settings.steps,
            "rounds": settings.rounds,
            "images": images.name,
            "loader": settings.loader or "resident",
            "precision": "bfloat16 autocast" if device.type == "cuda" else "float32",
            "seed": settings.seed,
        },
        "rows": rows(climbs, batch, machine["gpu"]),
    }


def attempt(climb: Climb, progress: Progress, act: Callable[[Climb], None]) -> None:
    """Do ``act`` unless the rung has failed; a failure is kept as its row's ``error``."""
    if climb.error is not None:
        return
    try:
        act(climb)
    except Exception as failure:  # out of memory, a compiler's bug: one rung's, not the ladder's
        climb.error = f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0]}"
        climb.trainer = None
        progress(f"rung {climb.rung.key} failed: {climb.error}")
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def prepare(climb: Climb, settings: Settings, images: ImageSet, progress: Progress) -> None:
    """Build the rung, warm it up and take its memory."""
    on_gpu = settings.device.startswith("cuda")
    if on_gpu:
        torch.cuda.empty_cache()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    began = time.perf_counter()
    climb.trainer = build(
        climb.rung,
        preset=settings.preset,
        device=settings.device,
        batch=settings.batch,
        seed=settings.seed,
        loader=settings.loader,
        compile_backend=settings.compile_backend,
        images=images,
    )
    climb.trainer.warm_up(progress)
    climb.warm_up_s = time.perf_counter() - began
    climb.flops = climb.trainer.flops_per_step()
    if on_gpu:
        # What a step allocates on top of the other rungs' memory, or, for a rung whose step lives
        # in a CUDA graph's private pool and allocates nothing, what it keeps reserved.
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_reserved() - reserved
        torch.cuda.reset_peak_memory_stats()
        climb.trainer.step()
        climb.trainer.synchronize()
        climb.peak_memory_bytes = max(kept, torch.cuda.max_memory_allocated() - allocated)


def measure(climbs: list[Climb], settings: Settings, progress: Progress) -> None:
    """Rounds of one block a rung, each round starting with another rung."""
    for number in range(settings.rounds):
        turn = number % len(climbs)
        for climb in climbs[turn:] + climbs[:turn]:
            attempt(climb, progress, lambda climb: time_block(climb, settings.steps))
        latest = ", ".join(f"{c.rung.key} {c.round_ms[-1]:.2f}" for c in climbs if c.round_ms)
        progress(f"round {number + 1}/{settings.rounds}, ms a step: {latest}")
    for climb in climbs:
        if climb.trainer is not None and climb.round_ms:
            loss = climb.trainer.loss()
            climb.loss = loss if math.isfinite(loss) else None
            climb.steps_taken = climb.trainer.steps


def time_block(climb: Climb, steps: int) -> None:
    """``steps`` steps between two drains of the device: their wall time, and each step's own."""
    trainer = climb.trainer
    assert trainer is not None
    for _ in range(SETTLE_STEPS):
        trainer.step()
    trainer.synchronize()
    marks: list[torch.cuda.Event | float] = []

    def mark() -> None:
        if trainer.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            marks.append(event)
        else:
            marks.append(time.perf_counter())

    began = time.perf_counter()
    mark()
    for _ in range(steps):
        trainer.step()
        mark()
    trainer.synchronize()
    climb.round_ms.append((time.perf_counter() - began) * 1e3 / steps)
    for start, end in pairwise(marks):
        if isinstance(start, float) or isinstance(end, float):
            climb.step_ms.append((float(end) - float(start)) * 1e3)  # type: ignore[arg-type]
        else:
            climb.step_ms.append(start.elapsed_time(end))


def inspect(climb: Climb, settings: Settings, progress: Progress) -> None:
    """Record a few steps; take from them the GPU work of a step and what tracekit finds."""
    if climb.trainer is None or not climb.round_ms:
        return
    progress(f"rung {climb.rung.key}: recording {TRACED_STEPS} steps")
    with tempfile.TemporaryDirectory(prefix="tracekit-ladder-") as scratch:
        folder = settings.traces or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rung_{climb.rung.key}.json.gz"
        record(climb.trainer, path)
        climb.gpu_work_ms = gpu_work_ms(path)
        climb.findings = diagnosed(path, median_interval(climb.round_ms).median, progress)


def record(trainer: Trainer, path: Path) -> None:
    """Write a torch.profiler trace of ``TRACED_STEPS`` steps; the device is drained before them."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if trainer.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=TRACED_STEPS, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
        acc_events=True,
    ) as profiler:
        trainer.step()
        trainer.synchronize()
        profiler.step()
        for number in range(TRACED_STEPS):
            trainer.step()
            if number == TRACED_STEPS - 1:
                trainer.synchronize()
            profiler.step()


def gpu_work_ms(path: Path) -> float | None:
    """GPU work of a step in ms: the union of kernels, copies and fills; None without any."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        events = json.load(file)["traceEvents"]
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not work:
        return None
    starts = [round(e["ts"] * 1000) for e in work]
    ends = [round((e["ts"] + e["dur"]) * 1000) for e in work]
    return union_ns(starts, ends) / 1e6 / TRACED_STEPS


def diagnosed(path: Path, ms: float, progress: Progress) -> list[dict[str, Any]] | None:
    """The findings in the trace, their savings corrected to the step time ``ms`` without profiler.

    None where the reader is not installed (it needs msgspec and pandas; the ladder does not) or
    could not read the trace.
    """
    try:
        import tracekit

        diagnosis = tracekit.diagnose(path, unprofiled_ms=ms)
    except ImportError as missing:
        progress(f"findings left out: {missing}")
        return None
    except Exception as failure:  # measured times are worth more than the diagnosis of one trace
        progress(f"findings left out: {type(failure).__name__} {failure}")
        return None
    return [
        {
            "code": finding.code,
            "severity": str(getattr(finding.severity, "value", finding.severity)),
            "ms_per_step": getattr(finding.saving, "ms_per_step", None),
            "percent_of_step": getattr(finding.saving, "percent_of_step", None),
        }
        for finding in diagnosis.findings
    ]


def rows(climbs: list[Climb], batch: int, gpu: str | None) -> list[dict[str, Any]]:
    """One JSON row a rung, in ladder order; a rung that was never timed has ``ms`` null."""
    timed = [climb for climb in climbs if climb.round_ms]
    # A round that Ctrl-C or a failure cut short is compared only where both rungs have it.
    base = next((c for c in timed if c.rung.key == "0"), timed[0] if timed else None)
    previous: Climb | None = None
    result = []
    for climb in climbs:
        row: dict[str, Any] = {
            "rung": climb.rung.key,
            "name": climb.rung.name,
            "batch": batch,
            "ms": None,
            "low": None,
            "high": None,
            "gpu": gpu,
            "error": climb.error,
        }
        if climb.round_ms:
            row |= measured(climb, batch, gpu)
            row["base"] = base.rung.key if base else None
            row["speedup_over_base"] = compared(base, climb)
            row["speedup_over_previous"] = compared(previous, climb)
            row["findings_before"] = previous.findings if previous else None
            row["findings_after"] = climb.findings
            previous = climb
        result.append(row)
    return result


def measured(climb: Climb, batch: int, gpu: str | None) -> dict[str, Any]:
    """What one rung's own samples give."""
    step = median_interval(climb.round_ms)
    tflops = climb.flops / step.median / 1e9 if climb.flops else None
    peak = peak_tflops(gpu)
    work = climb.gpu_work_ms
    return {
        "ms": step.median,
        "low": step.low,
        "high": step.high,
        "round_ms": climb.round_ms,
        "step_ms_median": median_interval(climb.step_ms).median,
        "images_per_s": batch / step.median * 1e3,
        "flops_per_step": climb.flops,
        "tflops": tflops,
        "mfu_percent": 100 * tflops / peak if tflops and peak else None,
        "gpu_work_ms": work,
        "gpu_busy_percent": min(100.0, 100 * work / step.median) if work else None,
        "peak_memory_bytes": climb.peak_memory_bytes,
        "loss": climb.loss,
        "steps_taken": climb.steps_taken,
        "warm_up_s": climb.warm_up_s,
    }


def compared(base: Climb | None, climb: Climb) -> dict[str, Any] | None:
    """The speedup of ``climb`` over ``base`` in the rounds that both have."""
    if base is None or base is climb:
        return None
    rounds = min(len(base.round_ms), len(climb.round_ms))
    found: Interval = speedup(base.round_ms[:rounds], climb.round_ms[:rounds])
    return {
        "median": found.median,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict,
    }


if __name__ == "__main__":
    from tracekit.commands.ladder import command as ladder_command

    ladder_command()
