"""The state machine of one recording: wait, measure, warm up, record, written.

`step()` is called at the end of every step of the program. The boundary between two phases is
always the end of a step, and the device is drained at the start of the timed block, at its end,
and right before the recording begins, so that no recorded GPU work was launched before it.
"""

from __future__ import annotations

import enum
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.profiler import device, environment, export
from tracekit.profiler.destination import Destination
from tracekit.profiler.errors import RecordError
from tracekit.profiler.guard import ForeignProfiler
from tracekit.profiler.manifest import About, Gpu, Manifest
from tracekit.profiler.plan import Options, Plan
from tracekit.profiler.timing import StepTimer, Unprofiled

if TYPE_CHECKING:
    import torch


class Phase(enum.Enum):
    """What the recorder does with the step that is running."""

    IDLE = "idle"
    WAIT = "waiting"
    MEASURE = "measuring without the profiler"
    WARMUP = "warming up the profiler"
    RECORD = "recording"
    DONE = "done"


@dataclass(frozen=True)
class Progress:
    """One finished step: its phase, its number in the phase from 1, and its host time in ms."""

    phase: Phase
    step: int
    of: int
    host_ms: float


@dataclass(frozen=True)
class Recording:
    """What was written."""

    destination: Destination
    manifest: Manifest

    def __str__(self) -> str:
        parts = [f"recorded {counted(self.manifest.steps, 'step')} to {self.destination.shown}"]
        if self.manifest.unprofiled is not None:
            ms = self.manifest.unprofiled.ms_per_step
            parts.append(
                f"{ms.median:.2f} ms a step without the profiler ({ms.low:.2f} to {ms.high:.2f})"
            )
        if self.manifest.incomplete_why:
            parts.append(f"incomplete: {self.manifest.incomplete_why}")
        return "; ".join(parts)


class Recorder:
    """Records one program. Not reusable; every method is to be called from one thread.

    `on_progress` is called after each step, outside what is timed as far as that is possible:
    it must be quick, and must not touch the device.
    """

    def __init__(
        self,
        plan: Plan,
        destination: Destination,
        *,
        options: Options | None = None,
        about: About | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.plan = plan
        self.destination = destination
        self.options = options or Options()
        self.about = about or About()
        self.on_progress = on_progress
        self.phase = Phase.IDLE
        self.recording: Recording | None = None
        self.unprofiled: Unprofiled | None = None
        self.trouble: str | None = None
        self._ran_out = False
        self._gpu: Gpu | None = None
        self._counts = dict.fromkeys((p.value for p in Phase), 0)
        self._timer = StepTimer()
        self._profiler: torch.profiler.profile | None = None
        self._pid = os.getpid()
        self._last = 0.0
        self._foreign = ForeignProfiler(self._give_way)

    @property
    def done(self) -> bool:
        """True once nothing more will be recorded."""
        return self.phase is Phase.DONE

    @property
    def recorded(self) -> int:
        """Whole steps recorded so far."""
        return self._counts[Phase.RECORD.value]

    @property
    def made(self) -> int:
        """Steps the program has made since `start`."""
        return sum(self._counts.values())

    @property
    def made_too_few(self) -> bool:
        """True where the program ended by itself before the recording began."""
        return self._ran_out

    def watch(self) -> None:
        """Look out for a profiler of the program's own; `start` does it too. Needs torch."""
        self._foreign.watch()

    def start(self, waited: int = 0) -> None:
        """A step begins now; `waited` steps of the waiting phase are already over."""
        if self.phase is not Phase.IDLE:
            raise RecordError("a recording can be started only once", usage=True)
        self.watch()
        self._last = time.perf_counter()
        self._counts[Phase.WAIT.value] = waited
        self.phase = Phase.WAIT
        self._advance()

    def step(self) -> None:
        """A step of the program has ended, and the next begins.

        Does nothing once the recording is done, in a forked child (a DataLoader's worker), or
        while a CUDA graph is captured. Raises `RecordError` where the file cannot be written.
        """
        if self.phase in (Phase.IDLE, Phase.DONE) or os.getpid() != self._pid:
            return
        if device.capturing():
            return
        now = time.perf_counter()
        phase, host_ms = self.phase, (now - self._last) * 1e3
        if phase is Phase.MEASURE:
            host_ms = self._timer.lap()
        self._counts[phase.value] += 1
        if phase is Phase.RECORD and self._profiler is not None:
            # ends the ProfilerStep mark; after the last step torch drains the device, then stops
            self._profiler.step()
        if self.on_progress is not None:
            limit = {Phase.WAIT: self.plan.wait, Phase.MEASURE: self.plan.measure,
                     Phase.WARMUP: self.plan.warmup}.get(phase, self.plan.steps)  # fmt: skip
            self.on_progress(Progress(phase, self._counts[phase.value], limit, host_ms))
        self._advance()
        self._last = time.perf_counter()

    def stop(self, why: str | None = None) -> Recording | None:
        """End now, keeping the whole steps recorded so far.

        `why` says in a sentence why the recording ends before it is complete. Returns what was
        written, or None where no step was recorded. Safe to call at any time and twice.
        """
        if os.getpid() != self._pid:
            return None
        if self.phase is not Phase.DONE:
            self._ran_out = why is None
            self._finish(why or f"the program made {self.recorded} of {self.plan.steps} steps "
                         "while it was recorded")  # fmt: skip
        return self.recording

    def _advance(self) -> None:
        """Enter the next phase where the current one has had its steps."""
        if self.phase is Phase.WAIT and self._counts[Phase.WAIT.value] >= self.plan.wait:
            self.phase = Phase.MEASURE
            if self.plan.measure:
                self._timer.start()
        if self.phase is Phase.MEASURE and self._measured():
            self._end_block()
            if not self._begin_warmup():
                return
        elif self.phase is Phase.WARMUP and self._profiler is not None:
            if self._counts[Phase.WARMUP.value] >= self.plan.warmup:
                device.drain()
                self.phase = Phase.RECORD
            self._profiler.step()
        if self.phase is Phase.RECORD and self.recorded >= self.plan.steps:
            self._finish(None)

    def _measured(self) -> bool:
        steps, limit = self._timer.steps, self.plan.measure_seconds
        if steps >= self.plan.measure:
            return True
        return limit is not None and steps >= Plan.MEASURE_AT_LEAST and self._timer.seconds >= limit

    def _end_block(self) -> None:
        self.unprofiled = self._timer.finish()
        self._gpu = environment.gpu()

    def _begin_warmup(self) -> bool:
        from torch.profiler import ProfilerAction, profile

        if self._foreign.active():
            self._abandon("the program runs torch.profiler itself, and only one profiler can run "
                          "at a time: switch its own off to record it")  # fmt: skip
            return False
        first, last = self.plan.warmup, self.plan.warmup + self.plan.steps - 1

        def schedule(step: int) -> ProfilerAction:
            if step < first:
                return ProfilerAction.WARMUP
            if step < last:
                return ProfilerAction.RECORD
            return ProfilerAction.RECORD_AND_SAVE if step == last else ProfilerAction.NONE

        # without a schedule step() writes no ProfilerStep# marks
        self._profiler = profile(
            activities=device.activities(),
            schedule=schedule,
            record_shapes=self.options.record_shapes,
            with_stack=self.options.with_stack,
            profile_memory=self.options.profile_memory,
        )
        self.phase = Phase.WARMUP
        with self._foreign.ours():
            try:
                self._profiler.start()
            except RuntimeError as error:
                self._profiler = None
                self._abandon(f"torch.profiler did not start: {error}")
                raise RecordError(f"torch.profiler did not start: {error}") from error
        return True

    def _give_way(self) -> None:
        """The program starts a profiler of its own: ours stops, what it has is kept."""
        if self.phase in (Phase.WARMUP, Phase.RECORD) and os.getpid() == self._pid:
            self._finish("the program started torch.profiler itself, and only one profiler can "
                         "run at a time")  # fmt: skip

    def _abandon(self, trouble: str) -> None:
        self.trouble = trouble
        self.phase = Phase.DONE
        self._foreign.release()

    def _finish(self, why: str | None) -> None:
        phase, self.phase = self.phase, Phase.DONE
        if phase is Phase.MEASURE:
            self.unprofiled = self._timer.finish()
        profiler, self._profiler = self._profiler, None
        self._foreign.release()
        if profiler is None:
            self.trouble = why
            return
        complete = phase is Phase.RECORD and self.recorded >= self.plan.steps
        _stop(profiler)
        if phase is not Phase.RECORD or not self.recorded:
            self.trouble = why
            return
        manifest = self._manifest(complete, None if complete else why)
        unfinished = None if complete else self.plan.warmup + self.recorded
        try:
            export.write(
                self.destination, manifest, profiler.export_chrome_trace, unfinished=unfinished
            )
        except RecordError as error:
            self.trouble = str(error)
            raise
        self.recording = Recording(self.destination, manifest)
        self.trouble = None if complete else why

    def _manifest(self, complete: bool, why: str | None) -> Manifest:
        place = environment.rank()
        return Manifest(
            complete=complete,
            incomplete_why=why,
            steps=self.recorded,
            steps_asked=self.plan.steps,
            partial_step=not complete,
            trace=self.destination.trace.name,
            unprofiled=self.unprofiled,
            about=self.about,
            versions=environment.versions(),
            gpu=self._gpu or environment.gpu(),
            rank=place.rank,
            world_size=place.world_size,
            options=self.options,
            phases={
                "wait": self._counts[Phase.WAIT.value],
                "measure": self._counts[Phase.MEASURE.value],
                "warmup": self._counts[Phase.WARMUP.value],
                "steps": self.recorded,
            },
        )


def _stop(profiler: torch.profiler.profile) -> None:
    """Stop, in the middle of the schedule as well, without the warnings torch has for that."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profiler.stop()


def counted(number: int, word: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def say(message: str) -> None:
    """One line to the person who is recording, on stderr."""
    print(f"tracekit: {message}", file=sys.stderr, flush=True)
