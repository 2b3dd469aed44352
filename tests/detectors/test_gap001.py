"""GAP001: the GPU waits for input; not a slow loader that is hidden, not the first batch alone."""

from __future__ import annotations

import pytest

from tests.builders import ADD, TraceBuilder
from tracekit.analysis.analysis import Analysis, AnalysisOptions
from tracekit.detectors import gap001_input_starvation as gap001
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.pricing import price

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
COPY = "Memcpy HtoD (Pinned -> Device)"


def detect(b: TraceBuilder) -> Detection:
    return gap001.detect(Analysis(b.trace()), gap001.Config())


def findings(b: TraceBuilder) -> tuple[Finding, ...]:
    analysis = Analysis(b.trace())
    return price(analysis, gap001.detect(analysis, gap001.Config())).findings


def program(
    loading: float,
    name: str | None,
    *,
    gpu: float = 200,
    steps: int = 4,
    slow_steps: range | None = None,
    frame: str | None = None,
    copies: bool = True,
) -> TraceBuilder:
    """Load for `loading` us, copy (10 us), launch ten kernels of `gpu` us (10 us each)."""
    b = TraceBuilder()
    for i in range(steps):
        with b.step():
            at = b.clock[100]
            slow = slow_steps is None or i in slow_steps
            took = loading if slow else 1
            if name:
                b.annotation(name, at, took)
            if frame:
                b.python(frame, at, took)
            b.clock[100] = at + took
            if copies:
                b.call(["aten::to", "aten::copy_"], kernel=COPY, gpu=10, host=10, cat="gpu_memcpy")
            for _ in range(10):
                b.call("aten::add", kernel=ADD, gpu=gpu, host=10)
    return b


def test_a_loader_in_the_training_process() -> None:
    (found,) = findings(program(9_000, SINGLE))
    assert found.code == "GAP001"
    assert found.title == "the GPU waits for a DataLoader without workers"
    # A step is 9 ms of loading and 0.11 ms of launches. Four workers have a batch every 2.25 ms.
    assert found.saving.step_ms == pytest.approx(9.11, abs=0.01)
    assert found.saving.then_ms == pytest.approx(2.25, abs=0.02)
    # An input that is always there leaves 2.01 ms of GPU work; one worker leaves its own 9 ms.
    assert found.saving.step_ms - found.saving.high == pytest.approx(2.01, abs=0.02)
    assert found.evidence.counts["host waiting for input, ms a step"] == 9.0
    assert "num_workers=4" in found.fixes[0].code


def test_a_faster_loader_disappears_behind_the_gpu() -> None:
    """4 ms of loading: four workers have a batch each ms, and the GPU needs 2.01 ms."""
    (found,) = findings(program(4_000, SINGLE))
    assert found.saving.then_ms == pytest.approx(2.01, abs=0.02)
    # One worker loads while the step runs: 4 ms a step instead of 4.11.
    assert found.saving.low == pytest.approx(0.0, abs=0.12)


def left_over(b: TraceBuilder, unprofiled_ms: float | None) -> float:
    """ns of each step's loading that is still waited for with four workers."""
    analysis = Analysis(b.trace(), AnalysisOptions(unprofiled_ms=unprofiled_ms))
    (draft,) = gap001.detect(analysis, gap001.Config()).drafts
    start, end = draft.edits.remove_host[-1, 1:].tolist()
    return float(9_000_000 - (end - start))


def test_what_hides_a_batch_is_the_step_without_the_profiler() -> None:
    """9 ms of loading in a recorded step of 12 ms that takes 10 without the profiler: a batch
    every 2.25 ms hides behind the recorded 3 ms of launches, but not behind the 1 ms they take."""

    def program_of(events_in_loader: bool) -> TraceBuilder:
        b = TraceBuilder()
        for _ in range(4):
            with b.step():
                at = b.clock[100]
                b.annotation(SINGLE, at, 9_000)
                if events_in_loader:
                    b.op("aten::stack", at, 9_000)
                b.clock[100] = at + 9_000
                b.call(["aten::copy_"], kernel=COPY, gpu=10, host=10, cat="gpu_memcpy")
                for _ in range(10):
                    b.call("aten::add", kernel=ADD, gpu=100, host=299)
        return b

    assert left_over(program_of(False), None) == pytest.approx(0, abs=1_000)
    assert left_over(program_of(False), 10.0) == pytest.approx(1_250_000, abs=1_000)
    # A loader full of recorded ops is itself slowed by the profiler: 7.5 ms of 10, a batch every
    # 1.875 ms behind 2.5 ms.
    assert left_over(program_of(True), 10.0) == pytest.approx(0, abs=1_000)


def test_workers_that_are_too_slow() -> None:
    (found,) = findings(program(4_000, WORKERS))
    assert found.title == "the GPU waits for the DataLoader's workers"
    # They make a batch every 4.11 ms; twice as many every 2.055 ms.
    assert found.saving.then_ms == pytest.approx(2.055, abs=0.02)
    assert "2 * workers" in found.fixes[0].code


def test_a_loader_that_leaves_no_event() -> None:
    (found,) = findings(program(4_000, None))
    assert found.title == "the GPU waits for the next batch"
    assert found.saving.then_ms == pytest.approx(2.01, abs=0.02)
    assert found.where.text == "before the input's copy, 4.00 ms a step"
    assert found.where.ops == ("aten::to", "aten::copy_")
    assert found.confidence == "medium"


def test_python_frames_say_what_filled_the_silence() -> None:
    (found,) = findings(program(4_000, None, frame="data.py(31): decode"))
    assert "Python: data.py(31): decode" in found.evidence.lines


def test_a_slow_loader_behind_a_busy_gpu_is_hidden() -> None:
    """A naive version counts the time in __next__: 1.5 ms of a 4 ms step."""
    assert detect(program(1_500, SINGLE, gpu=400)) == Detection()


def test_the_first_batch_of_an_epoch_is_no_starvation() -> None:
    assert detect(program(30_000, SINGLE, slow_steps=range(1))) == Detection()
    assert detect(program(30_000, SINGLE, steps=6, slow_steps=range(3, 4))) == Detection()


def test_a_silence_that_ends_in_a_kernel_is_not_called_input() -> None:
    """Evaluation, logging, a checkpoint: nothing says that it was the input."""
    assert detect(program(4_000, None, copies=False)) == Detection()


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::to", 0, 5)
    assert "no GPU events" in detect(b).undetermined[0].why
