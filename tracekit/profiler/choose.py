"""Which of several steppers marks the steps: decided while the first steps are ignored.

Two rules. Of several optimizers (a GAN's two, one per parameter group) the one that steps least
often: its step ends an iteration. Of several modules called from outside (encoder, denoiser,
loss) the one with the most parameters. Objects are held weakly; one that has stopped stepping
(a warm-up's optimizer) is left out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STALE = 50
"""An object is left out once the others have stepped this many times, and four times its own
longest pause, without it."""


@dataclass
class _Seen:
    ref: weakref.ref[Any]
    count: int = 0
    last: int = 0
    longest_pause: int = 0


class Least:
    """Chooses the object that steps least often, once it has stepped `wait` times (1 at least)."""

    def __init__(self, wait: int) -> None:
        self._wait = max(1, wait)
        self._seen: dict[int, _Seen] = {}
        self._clock = 0
        self._chosen: weakref.ref[Any] | None = None

    @property
    def total(self) -> int:
        """The steps that all objects have made before the choice."""
        return self._clock

    @property
    def seen(self) -> int:
        """The most steps that one object has made before the choice."""
        return max((s.count for s in self._seen.values()), default=0)

    def chosen(self) -> Any:
        """The object, or None before the choice."""
        return None if self._chosen is None else self._chosen()

    def offer(self, stepped: Any) -> bool:
        """An object has stepped. True where this very step decided the choice."""
        self._clock += 1
        entry = self._seen.get(id(stepped))
        if entry is None or entry.ref() is not stepped:
            entry = self._seen[id(stepped)] = _Seen(weakref.ref(stepped), last=self._clock)
        entry.count += 1
        entry.longest_pause = max(entry.longest_pause, self._clock - entry.last)
        entry.last = self._clock
        fewest = min(s.count for s in self._seen.values() if self._alive(s))
        if entry.count != fewest or fewest < self._wait:
            return False
        self._chosen = entry.ref
        return True

    def _alive(self, seen: _Seen) -> bool:
        pause = self._clock - seen.last
        return seen.ref() is not None and pause <= max(STALE, 4 * seen.longest_pause)


class Largest:
    """Chooses the object with the greatest `size`, once it has stepped `wait` times."""

    def __init__(self, wait: int, size: Callable[[Any], int]) -> None:
        self._wait = max(1, wait)
        self._size = size
        self.total = 0
        """The calls that all objects have had before the choice."""

        self._sizes: dict[int, tuple[weakref.ref[Any], int, list[int]]] = {}
        self._chosen: weakref.ref[Any] | None = None

    @property
    def seen(self) -> int:
        """The most calls that one object has had before the choice."""
        return max((count[0] for _, _, count in self._sizes.values()), default=0)

    def chosen(self) -> Any:
        """The object, or None before the choice."""
        return None if self._chosen is None else self._chosen()

    def offer(self, stepped: Any) -> bool:
        """An object was called. True where this very call decided the choice."""
        self.total += 1
        entry = self._sizes.get(id(stepped))
        if entry is None or entry[0]() is not stepped:
            entry = (weakref.ref(stepped), self._size(stepped), [0])
            self._sizes[id(stepped)] = entry
        entry[2][0] += 1
        greatest = max(size for ref, size, _ in self._sizes.values() if ref() is not None)
        if entry[1] < greatest or entry[2][0] < self._wait:
            return False
        self._chosen = entry[0]
        return True
