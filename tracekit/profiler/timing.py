"""Steps timed without the profiler.

The device is drained before the first and after the last step of the block, so that its wall
time over its steps is the true time of a step. The time of each single step is read from timing
events in the stream (the host runs ahead of the device, so the host's own gaps say little about
one step); without CUDA from the host's clock.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any, Literal

from tracekit.profiler import device
from tracekit.profiler.statistics import Estimate, mean_interval, median_interval

AGREE_LOW, AGREE_HIGH = 0.95, 1.02
"""Timing events are believed where their sum is within these factors of the block's wall time;
a program that works on other streams than the current one fails this."""


@dataclass(frozen=True)
class Unprofiled:
    """Times of a block of steps that ran without the profiler. All in ms."""

    ms_per_step: Estimate
    """median of `samples_ms` with its 95 % interval (mean and its interval for clock 'block')"""

    mean_ms: float
    """wall time of the whole block, drained at both ends, over its steps"""

    samples_ms: list[float]
    """one value a step"""

    host_ms: list[float]
    """gaps between the ends of steps on the host; the last one holds the final drain"""

    clock: Literal["device", "host", "block"]
    """where samples come from: stream events, the host's clock (no GPU), or the host's clock
    with a GPU whose work the events did not cover"""

    def to_dict(self) -> dict[str, Any]:
        """As the manifest holds it (see `tracekit.profiler.manifest`)."""
        return {
            "ms_per_step": self.ms_per_step.median,
            "low": self.ms_per_step.low,
            "high": self.ms_per_step.high,
            "mean_ms": self.mean_ms,
            "samples_ms": self.samples_ms,
            "host_ms": self.host_ms,
            "clock": self.clock,
        }


class StepTimer:
    """Times one block: `start`, one `lap` at the end of every step, then `finish`."""

    def __init__(self) -> None:
        self._laps: list[float] = []
        self._marks: list[Any] = []

    def start(self) -> None:
        """Drain the device and start the clock."""
        device.drain()
        self._marks = [device.mark()]
        self._laps = [time.perf_counter()]

    def lap(self) -> float:
        """End of a step; returns the host's gap since the last one, in ms."""
        self._marks.append(device.mark())
        self._laps.append(time.perf_counter())
        return (self._laps[-1] - self._laps[-2]) * 1e3

    @property
    def steps(self) -> int:
        """Steps timed so far."""
        return max(0, len(self._laps) - 1)

    @property
    def seconds(self) -> float:
        """Host time since `start`."""
        return self._laps[-1] - self._laps[0] if self._laps else 0.0

    def finish(self) -> Unprofiled | None:
        """Drain the device, stop the clock; None where no step was timed."""
        if self.steps == 0:
            return None
        device.drain()
        laps = [*self._laps[:-1], time.perf_counter()]
        host = [(b - a) * 1e3 for a, b in itertools.pairwise(laps)]
        mean = sum(host) / len(host)
        if None in self._marks:
            return Unprofiled(median_interval(host), mean, host, host, "host")
        marks = self._marks
        self._marks = []
        on_device = [float(a.elapsed_time(b)) for a, b in itertools.pairwise(marks)]
        if AGREE_LOW <= sum(on_device) / sum(host) <= AGREE_HIGH:
            return Unprofiled(median_interval(on_device), mean, on_device, host, "device")
        return Unprofiled(mean_interval(host), mean, host, host, "block")
