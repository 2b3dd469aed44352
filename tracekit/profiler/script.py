"""`tracekit profile SCRIPT`: record some steady steps of a program that is not edited.

The program's results are its own: its output, exit status, random state and exceptions are what
they would be without us, and a recording that fails does not stop it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Literal

from tracekit.profiler import environment
from tracekit.profiler.destination import prepare, resolve
from tracekit.profiler.errors import RecordError
from tracekit.profiler.forward_steps import ForwardSteps
from tracekit.profiler.imported import AfterImport
from tracekit.profiler.manifest import About
from tracekit.profiler.optimizer_steps import OptimizerSteps
from tracekit.profiler.plan import Options, Plan
from tracekit.profiler.recorder import Recorder, Recording, counted
from tracekit.profiler.runner import Program, exit_status, run
from tracekit.profiler.session import nothing_recorded, stop_after


@dataclass(frozen=True)
class Outcome:
    """How the program ended, and what was recorded of it."""

    status: int
    """the program's own exit status"""

    recording: Recording | None

    trouble: str | None
    """one sentence where nothing, or not all, was recorded"""

    main: ModuleType | None
    """the program's `__main__`, kept alive until the process ends, as Python would"""


class _Enough(BaseException):
    """Ends the program after the recording (`--stop-after-recording`)."""


class _Watch:
    """Joins a source of steps to a recorder, and keeps our failures out of the program."""

    def __init__(self, recorder: Recorder, step_on: str, stop_after: bool) -> None:
        self.recorder = recorder
        self.stop_after = stop_after
        kind = ForwardSteps if step_on == "forward" else OptimizerSteps
        self.source: ForwardSteps | OptimizerSteps = kind(recorder.plan.wait, self.begin, self.step)
        self.failure: RecordError | None = None
        self._torch = AfterImport("torch.autograd.profiler", lambda _: recorder.watch())

    def install(self) -> None:
        self._torch.start()
        self.source.install()

    def remove(self) -> None:
        self._torch.cancel()
        self.source.remove()

    def begin(self, name: str) -> None:
        self.recorder.about = replace(self.recorder.about, step_on=name)
        waited = max(1, self.recorder.plan.wait)
        self._guarded(lambda: self.recorder.start(waited))

    def step(self) -> None:
        self._guarded(self.recorder.step)

    def finish(self) -> None:
        """The program has ended by itself."""
        try:
            self.recorder.stop()
        except RecordError as error:
            self.failure = error

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except RecordError as error:
            self.failure = error
        if self.failure is not None or self.recorder.done:
            self.source.quiet()
            if self.stop_after:
                raise _Enough


def profile_script(
    program: Program,
    arguments: Sequence[str],
    *,
    out: str | os.PathLike[str],
    plan: Plan,
    options: Options | None = None,
    command: Sequence[str] = (),
    step_on: Literal["optimizer", "forward"] = "optimizer",
    stop_after_recording: bool = False,
) -> Outcome:
    """Run a program to its end and record `plan.steps` of its steps on the way.

    The first `plan.wait` steps (1 at least: the first also decides where steps end) are ignored.
    Raises `RecordError` before the program starts where the output cannot be written.
    """
    destination = resolve(out, environment.rank())
    prepare(destination)
    recorder = Recorder(plan, destination, options=options, about=About(command=list(command)))
    watch = _Watch(recorder, step_on, stop_after_recording)
    owner, main, status, end = os.getpid(), None, 0, None
    watch.install()
    try:
        main = run(program, arguments)
        watch.finish()
    except _Enough:
        pass
    except BaseException as error:
        stop_after(recorder, type(error))
        status = exit_status(error)
        end = f"exit status {status}" if isinstance(error, SystemExit) else type(error).__name__
    finally:
        watch.remove()
    if os.getpid() != owner:
        # a child the program forked has come to its end here; the recording is its parent's
        raise SystemExit(status)
    return Outcome(status, recorder.recording, _trouble(watch, end), main)


def _trouble(watch: _Watch, end: str | None) -> str | None:
    """Why not all was recorded; `end` is what the program ended with, None at its last line."""
    recorder, source = watch.recorder, watch.source
    plan = recorder.plan
    if watch.failure is not None:
        return str(watch.failure)
    if recorder.recording is not None:
        return recorder.recording.manifest.incomplete_why
    if recorder.made:
        return nothing_recorded(recorder)
    if source.seen:
        needed = max(plan.wait, 1) + plan.measure + plan.warmup
        if source.total >= needed + plan.steps > source.seen:
            # a new optimizer every step, say
            return (
                f"nothing was recorded: of {source.total} {source.words} no object made more than "
                f"{source.seen}, so that none tells where a step ends; use "
                "`with tracekit.profile()`"
            )
        return (
            f"nothing was recorded: the program made {counted(source.seen, 'step')} "
            f"({source.words}), and the recording starts after {needed} and takes {plan.steps} "
            "more: give smaller --wait, --measure or --steps"
        )
    if end is not None:
        return f"nothing was recorded: the program ended with {end} before its first {source.word}"
    if "torch" not in sys.modules:
        return "nothing was recorded: the program never imported torch"
    return f"nothing was recorded: the program made no {source.word}; {source.hint}"
