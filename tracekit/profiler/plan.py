"""What to record: the numbers of steps in each phase, and the profiler's options."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.profiler.errors import RecordError


@dataclass(frozen=True)
class Plan:
    """Steps in each phase, in the order they happen. All counts are steps.

    Raises `RecordError` (usage) for counts that make no recording.
    """

    wait: int = 10
    """ignored: compilation, autotuning and cold caches belong here"""

    measure: int = 10
    """timed without the profiler; 0 leaves the recording without unprofiled times"""

    warmup: int = 1
    """run with the profiler prepared but not recording; at least 1"""

    steps: int = 3
    """recorded; at least 1"""

    measure_seconds: float | None = None
    """ends the timed block early, after this many seconds and at least `MEASURE_AT_LEAST` steps"""

    MEASURE_AT_LEAST = 5

    def __post_init__(self) -> None:
        least = {"wait": 0, "measure": 0, "warmup": 1, "steps": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise RecordError(f"{name} must be a whole number of at least {low}, not {value!r}",
                                  usage=True)  # fmt: skip

    @property
    def total(self) -> int:
        """How many steps the program must make for a whole recording."""
        return self.wait + self.measure + self.warmup + self.steps


@dataclass(frozen=True)
class Options:
    """torch.profiler's options. Each makes the recording larger and its host work slower."""

    record_shapes: bool = True
    """input shapes of every operator: what the roofline and most detectors read"""

    with_stack: bool = False
    """the Python line of every operator (several times as many events)"""

    profile_memory: bool = False
    """allocations and frees"""
