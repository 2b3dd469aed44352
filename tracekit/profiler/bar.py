"""Progress on stderr: a bar where someone watches a terminal, plain lines elsewhere.

Nothing is drawn by a thread (it would take the interpreter from a step that is being timed), at
most once a second while steps are timed, and never while they are recorded.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from tracekit.profiler.recorder import Phase, Progress, say

DRAW_EVERY_S = 1.0


class Bar:
    """Shows messages and steps; a context manager. `loss` is shown from the next drawing on."""

    def __init__(self, total: int) -> None:
        self.loss: float | None = None
        self._total = total
        self._done = 0
        self._drawn = 0.0
        self._phase: Phase | None = None
        self._ms: list[float] = []
        self._rich = _rich_progress(total)

    def __enter__(self) -> Self:
        if self._rich is not None:
            self._rich[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._rich is not None:
            self._rich[0].stop()

    def message(self, text: str) -> None:
        """A phase that has no steps to count (compilation)."""
        if self._rich is None:
            say(text)
        else:
            self._draw(text)

    def step(self, progress: Progress) -> None:
        """One step has ended."""
        self._done += 1
        if progress.phase is not self._phase:
            self._phase = progress.phase
            self._ms = []
            if self._rich is None and progress.phase is not Phase.RECORD:
                say(f"{progress.phase.value}, {progress.of} steps at most")
        self._ms.append(progress.host_ms)
        if progress.phase is Phase.RECORD:
            return
        if self._rich is not None and time.monotonic() - self._drawn >= DRAW_EVERY_S:
            self._draw(progress.phase.value)

    def finished(self) -> None:
        """The last step has ended."""
        self._done = self._total
        if self._rich is None:
            say("recorded" + (f", loss {self.loss:.4f}" if self.loss is not None else ""))
        self._draw("recorded")

    def _draw(self, text: str) -> None:
        if self._rich is None:
            return
        bar, task = self._rich
        ms = f"{sum(self._ms) / len(self._ms):.1f} ms a step" if self._ms else ""
        loss = f"loss {self.loss:.4f}" if self.loss is not None else ""
        bar.update(task, completed=self._done, description=text, ms=ms, loss=loss)
        bar.refresh()
        self._drawn = time.monotonic()


def _rich_progress(total: int) -> tuple[Any, Any] | None:
    """rich's bar and its task, or None without a terminal or without rich."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None
    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[ms]}  {task.fields[loss]}"),
        console=Console(stderr=True),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    return bar, bar.add_task("building", total=total, ms="", loss="")
