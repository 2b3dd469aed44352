"""Recording from code: the `profile` context manager, and `record` for a step function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tracekit.profiler import environment
from tracekit.profiler.destination import prepare, resolve
from tracekit.profiler.errors import RecordError
from tracekit.profiler.manifest import About
from tracekit.profiler.plan import Options, Plan
from tracekit.profiler.recorder import Progress, Recorder, Recording, counted, say


class profile:
    """Record a few steady steps of a training loop, and time some without the profiler first.

    ```
    with tracekit.profile(out="traces", wait=10, steps=3) as p:
        for batch in loader:
            train_step(batch)
            p.step()
    ```

    The first `wait` steps are ignored, the next `measure` are timed without the profiler (device
    drained at both ends), `warmup` run with the profiler prepared, `steps` are recorded. Then
    the trace is written and the loop runs on at full speed. `out` is a directory (it gets
    `trace.json.gz` and `manifest.json`) or a file (`.json.gz`, `.json`); under torchrun each
    rank writes its own. An exception or Ctrl-C inside keeps what was recorded and is passed on
    unchanged.

    Raises `RecordError` on entry for an output that cannot be written or counts that make no
    recording; in `step()` for a disk that has filled up since.
    """

    def __init__(
        self,
        out: str | os.PathLike[str] = "traces",
        *,
        wait: int = 10,
        measure: int = 10,
        warmup: int = 1,
        steps: int = 3,
        record_shapes: bool = True,
        with_stack: bool = False,
        profile_memory: bool = False,
        workload: str | None = None,
        batch: int | None = None,
        seed: int | None = None,
        quiet: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._quiet = quiet
        self._recorder = Recorder(
            Plan(wait=wait, measure=measure, warmup=warmup, steps=steps),
            resolve(out, environment.rank()),
            options=Options(record_shapes, with_stack, profile_memory),
            about=About(command=command_line(), workload=workload, batch=batch, seed=seed),
            on_progress=on_progress,
        )

    @property
    def recording(self) -> Recording | None:
        """What was written, or None where nothing was (yet)."""
        return self._recorder.recording

    def __enter__(self) -> Self:
        prepare(self._recorder.destination)
        self._recorder.start()
        return self

    def step(self) -> None:
        """A step has ended. Costs nothing once the recording is written."""
        self._recorder.step()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recording = self._recorder.stop() if kind is None else stop_after(self._recorder, kind)
        if not self._quiet:
            if recording is not None:
                say(str(recording))
            else:
                say(nothing_recorded(self._recorder))


def record(
    step: Callable[[], object],
    *,
    out: str | os.PathLike[str],
    plan: Plan | None = None,
    options: Options | None = None,
    about: About | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Recording:
    """Call `step()` until a recording is complete, and return what was written.

    The step is one whole training step; it is called `plan.total` times at most. Raises
    `RecordError` where the output cannot be written; what `step` raises is passed on, with the
    steps recorded before it kept.
    """
    destination = resolve(out, environment.rank())
    prepare(destination)
    recorder = Recorder(
        plan or Plan(),
        destination,
        options=options,
        about=about or About(step_on="record", command=command_line()),
        on_progress=on_progress,
    )
    recorder.start()
    try:
        while not recorder.done:
            step()
            recorder.step()
    except BaseException as error:
        stop_after(recorder, type(error))
        raise
    if recorder.recording is None:
        raise RecordError(nothing_recorded(recorder))
    return recorder.recording


def stop_after(recorder: Recorder, kind: type[BaseException]) -> Recording | None:
    """Stop after an exception of the program, which no failure of ours may hide."""
    why = (
        "interrupted (Ctrl-C)"
        if issubclass(kind, KeyboardInterrupt)
        else (f"the program ended with {kind.__name__}")
    )
    try:
        return recorder.stop(why)
    except Exception as error:
        recorder.trouble = f"the recording was lost: {error}"
        say(recorder.trouble)
        return recorder.recording


def nothing_recorded(recorder: Recorder) -> str:
    """Why there is no file, in one sentence."""
    plan = recorder.plan
    if recorder.trouble is not None and not recorder.made_too_few:
        return f"nothing was recorded: {recorder.trouble}"
    return (
        f"nothing was recorded: the program made {counted(recorder.made, 'step')}, and the "
        f"recording starts after {plan.wait + plan.measure + plan.warmup} (wait {plan.wait}, "
        f"measure {plan.measure}, warm-up {plan.warmup}) and takes {plan.steps} more"
    )


def command_line() -> list[str]:
    """The running program's command line, the program itself by its name alone."""
    argv = list(sys.argv)
    return [os.path.basename(argv[0]), *argv[1:]] if argv else []  # noqa: PTH119
