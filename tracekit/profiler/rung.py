"""`tracekit profile --rung N`: record one rung of the built-in workload."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracekit.profiler import environment
from tracekit.profiler.bar import Bar
from tracekit.profiler.destination import prepare, resolve
from tracekit.profiler.errors import RecordError
from tracekit.profiler.manifest import About
from tracekit.profiler.plan import Options, Plan
from tracekit.profiler.recorder import Recording
from tracekit.profiler.session import record

SETTLE = 3
"""Steps ignored after the workload's own warm-up."""

MEASURE, MEASURE_SECONDS = 50, 5.0
"""Steps timed without the profiler, fewer where they take longer than this many seconds."""

PROFILER_WARMUP = 2


@dataclass(frozen=True)
class RungRequest:
    """Which workload to record; `batch` None takes the preset's own."""

    rung: str
    preset: str = "cifar10"
    device: str = "cuda"
    batch: int | None = None
    data: str | None = None
    seed: int = 0
    steps: int = 3
    compile_backend: str = "inductor"
    options: Options = field(default_factory=Options)


def profile_rung(
    request: RungRequest, *, out: str | os.PathLike[str], command: Sequence[str] = ()
) -> Recording:
    """Warm the rung up, time its steps without the profiler, record `request.steps` of them.

    Raises `RecordError` with a sentence: unknown rung or a rung that needs CUDA where there is
    none (usage), data or output that cannot be read or written, torch not installed.
    """
    from tracekit.workload.errors import WorkloadError
    from tracekit.workload.rungs import UnknownRung, rung

    try:
        chosen = rung(request.rung)
    except UnknownRung as error:
        raise RecordError(str(error), usage=True) from error
    prepare(resolve(out, environment.rank()))
    try:
        from tracekit.workload import train_step
    except ModuleNotFoundError as error:
        raise RecordError(
            f"the workload needs {error.name}: pip install 'torch-tracekit[workload]'"
        ) from error
    try:
        train_step.usable_device(chosen, request.device)
    except WorkloadError as error:
        raise RecordError(str(error), usage=True) from error

    plan = Plan(
        wait=SETTLE,
        measure=MEASURE,
        measure_seconds=MEASURE_SECONDS,
        warmup=PROFILER_WARMUP,
        steps=request.steps,
    )
    with Bar(plan.total) as bar:
        try:
            trainer = train_step.build(
                chosen,
                preset=request.preset,
                device=request.device,
                batch=request.batch,
                data=request.data,
                seed=request.seed,
                compile_backend=request.compile_backend,
            )
            trainer.warm_up(progress=bar.message)
        except WorkloadError as error:
            raise RecordError(str(error)) from error
        recording = record(
            trainer.step,
            out=out,
            plan=plan,
            options=request.options,
            about=About(
                step_on="rung",
                command=list(command),
                workload="ddpm",
                rung=chosen.key,
                preset=request.preset,
                batch=trainer.batch,
                seed=request.seed,
            ),
            on_progress=bar.step,
        )
        loss = trainer.loss()
        bar.loss = None if math.isnan(loss) else loss
        bar.finished()
    return recording
