"""The context manager and `record`: phases, files, interruptions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.profiler.conftest import count, load, marks
from tracekit.profiler import Phase, Plan, Progress, RecordError, profile, record


def make_step() -> Callable[[], None]:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()

    return step


def test_records_the_steps_asked_for(tmp_path: Path) -> None:
    step = make_step()
    with profile(out=tmp_path, wait=2, measure=4, warmup=1, steps=3, quiet=True) as p:
        for _ in range(20):
            step()
            p.step()
    trace = load(tmp_path / "trace.json.gz")
    assert marks(trace) == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]
    assert count(trace, "Optimizer.step#SGD.step") == 3
    manifest = trace["tracekit"]
    assert manifest["complete"] is True
    assert "incomplete_why" not in manifest
    assert manifest["steps"] == manifest["steps_asked"] == 3
    assert manifest["phases"] == {"wait": 2, "measure": 4, "warmup": 1, "steps": 3}
    assert trace["traceName"] == manifest["trace"] == "trace.json.gz"


def test_times_the_steps_without_the_profiler(tmp_path: Path) -> None:
    with profile(out=tmp_path, wait=0, measure=6, steps=1, quiet=True) as p:
        step = make_step()
        for _ in range(9):
            step()
            p.step()
    timed = load(tmp_path / "trace.json.gz")["tracekit"]["unprofiled"]
    assert len(timed["samples_ms"]) == len(timed["host_ms"]) == 6
    assert 0 < timed["low"] <= timed["ms_per_step"] <= timed["high"]
    assert timed["mean_ms"] == pytest.approx(sum(timed["host_ms"]) / 6)


def test_without_a_timed_block(tmp_path: Path) -> None:
    recording = record(make_step(), out=tmp_path, plan=Plan(0, 0, 1, 2))
    assert recording.manifest.unprofiled is None
    assert load(recording.destination.trace)["tracekit"]["unprofiled"] is None


def test_records_the_shapes_unless_told_not_to(tmp_path: Path) -> None:
    for shapes in (True, False):
        with profile(tmp_path, wait=0, measure=0, steps=1, record_shapes=shapes, quiet=True) as p:
            step = make_step()
            for _ in range(3):
                step()
                p.step()
        events = load(tmp_path / "trace.json.gz")["traceEvents"]
        assert any("Input Dims" in e.get("args", {}) for e in events) is shapes


def test_an_exception_keeps_what_was_recorded_and_is_passed_on(tmp_path: Path) -> None:
    step, error = make_step(), ValueError("of the program")
    with (
        pytest.raises(ValueError) as caught,
        profile(tmp_path, wait=0, measure=2, steps=10, quiet=True) as p,
    ):
        for i in itertools.count():
            step()
            if i == 6:
                raise error
            p.step()
    assert caught.value is error
    trace = load(tmp_path / "trace.json.gz")
    assert marks(trace) == [
        "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3", "Interrupted step#4",
    ]  # fmt: skip
    manifest = trace["tracekit"]
    assert manifest["complete"] is False
    assert manifest["partial_step"] is True
    assert (manifest["steps"], manifest["steps_asked"]) == (3, 10)
    assert "ValueError" in manifest["incomplete_why"]


def test_too_few_steps_keep_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = make_step()
    with profile(tmp_path, wait=1, measure=1, steps=5) as p:
        for _ in range(5):
            step()
            p.step()
    manifest = load(tmp_path / "trace.json.gz")["tracekit"]
    assert (manifest["complete"], manifest["steps"]) == (False, 2)
    assert "made 2 of 5 steps" in capsys.readouterr().err


def test_a_program_that_ends_before_the_recording_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path, wait=5, measure=5, steps=2) as p:
        for _ in range(7):
            p.step()
    assert p.recording is None
    assert list(tmp_path.iterdir()) == []
    assert "made 7 steps, and the recording starts after 11" in capsys.readouterr().err


def test_interrupted_while_the_profiler_warms_up(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        profile(tmp_path, wait=0, measure=1, warmup=3, steps=2, quiet=True) as p,
    ):
        p.step()
        p.step()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    record(make_step(), out=tmp_path, plan=Plan(0, 0, 1, 1))  # torch's profiler is usable again


def test_record_passes_the_steps_exception_on(tmp_path: Path) -> None:
    step, calls = make_step(), itertools.count()

    def failing() -> None:
        step()
        if next(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(failing, out=tmp_path, plan=Plan(0, 1, 1, 9))
    assert load(tmp_path / "trace.json.gz")["tracekit"]["steps"] == 2


def test_progress_tells_the_phases(tmp_path: Path) -> None:
    seen: list[Progress] = []
    record(make_step(), out=tmp_path, plan=Plan(1, 2, 1, 2), on_progress=seen.append)
    assert [(p.phase, p.step, p.of) for p in seen] == [
        (Phase.WAIT, 1, 1), (Phase.MEASURE, 1, 2), (Phase.MEASURE, 2, 2),
        (Phase.WARMUP, 1, 1), (Phase.RECORD, 1, 2), (Phase.RECORD, 2, 2),
    ]  # fmt: skip


def test_the_timed_block_ends_early_when_steps_are_slow(tmp_path: Path) -> None:
    plan = Plan(wait=0, measure=1000, warmup=1, steps=1, measure_seconds=0.0)
    recording = record(make_step(), out=tmp_path, plan=plan)
    assert recording.manifest.phases["measure"] == Plan.MEASURE_AT_LEAST


@pytest.mark.parametrize("counts", [{"steps": 0}, {"wait": -1}, {"warmup": 0}, {"measure": -2}])
def test_counts_that_make_no_recording_are_refused(tmp_path: Path, counts: dict[str, int]) -> None:
    with pytest.raises(RecordError, match=next(iter(counts))):
        profile(tmp_path, **counts)  # type: ignore[arg-type]


def test_the_random_state_is_not_touched(tmp_path: Path) -> None:
    import random

    import numpy as np

    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the legacy global state is what a program may rely on
    torch.manual_seed(1)
    state = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    with profile(tmp_path, wait=0, measure=5, steps=1, quiet=True) as p:
        for _ in range(7):
            p.step()
    assert random.getstate() == state[0]
    assert np.random.get_state()[1].tolist() == state[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), state[2])


def test_a_profiler_of_the_program_that_runs_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        profile(tmp_path, wait=0, measure=1, steps=1) as p,
    ):
        for _ in range(4):
            p.step()
    assert p.recording is None
    assert "runs torch.profiler itself" in capsys.readouterr().err


def test_a_profiler_of_the_program_that_starts_meanwhile(tmp_path: Path) -> None:
    step = make_step()
    with profile(tmp_path, wait=0, measure=0, steps=10, quiet=True) as p:
        for _ in range(4):
            step()
            p.step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            step()
            p.step()
    assert len(own.key_averages()) > 0
    manifest = load(tmp_path / "trace.json.gz")["tracekit"]
    assert (manifest["complete"], manifest["steps"]) == (False, 3)
    assert "torch.profiler itself" in manifest["incomplete_why"]
