"""A program that runs torch.profiler itself: only one profiler can run in a process.

The program's own profiler has the right of way. Where one is already running, ours does not
start; where the program starts one while ours runs, ours ends first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

_PREPARE = "_prepare_trace"
"""The method every profiler of torch passes through first (torch.profiler's as well)."""


class ForeignProfiler:
    """Watches for a profiler that is not ours, from `watch` until `release`."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._original: Any = None
        self._running: list[Any] = []
        self._ours = False

    def watch(self) -> None:
        """Call `give_way` before any other profiler is prepared. Needs torch imported."""
        from torch.autograd.profiler import profile

        original = getattr(profile, _PREPARE, None)
        if original is None or self._original is not None:
            return

        def prepare(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                self._running.append(profiler)
                self._give_way()
            return original(profiler, *args, **kwargs)

        self._original = original
        setattr(profile, _PREPARE, prepare)

    def release(self) -> None:
        """Leave torch as it was."""
        if self._original is None:
            return
        from torch.autograd.profiler import profile

        setattr(profile, _PREPARE, self._original)
        self._original = None
        self._running.clear()

    def active(self) -> bool:
        """True where another profiler is recording or prepared to."""
        from torch import autograd

        if autograd._profiler_enabled():  # type: ignore[attr-defined]
            return True
        # prepared but not yet recording (warm-up of a schedule), or stopped since
        return any(p.enabled and p.entered and p.kineto_results is None for p in self._running)

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Inside, a profiler that is prepared is our own."""
        self._ours = True
        try:
            yield
        finally:
            self._ours = False
