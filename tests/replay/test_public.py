"""`d.replay(edits)`: the replay as users have it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import tracekit
from tests.builders import TraceBuilder
from tests.replay.programs import program
from tracekit.replay.edits import Edits


def test_a_finding_can_be_replayed_and_saved(tmp_path: Path) -> None:
    d = tracekit.diagnose(io.BytesIO(program(40, 10).bytes()))
    found = d.findings[0]
    assert d.replay().step_ms == pytest.approx(1.0)
    fixed = d.replay(found.edits)
    assert fixed.step_ms == pytest.approx(found.saving.then_ms, rel=0.01)
    fixed.save(tmp_path / "fixed.json.gz")
    again = tracekit.read(tmp_path / "fixed.json.gz")
    gpu = again.table("gpu")
    assert len(gpu) == 4 * 25
    assert again.health.events_skipped == 0
    # Back to back: every kernel starts within the gap of a graph after the one before it.
    assert sorted(set((gpu.ts[1:] - gpu.end[:-1]).tolist()))[-1] <= 600


def test_removed_work_is_not_in_the_time_line(tmp_path: Path) -> None:
    d = tracekit.diagnose(io.BytesIO(program(40, 10).bytes()))
    model = d.analysis.replay
    assert model is not None
    d.replay(Edits(remove_gpu=model.work_row[::2])).save(tmp_path / "half.json")
    events = json.loads((tmp_path / "half.json").read_text())["traceEvents"]
    assert len(events) == 2 * 25
    assert events[0]["args"]["recorded dur"] == 10


def test_without_gpu_work_there_is_nothing_to_replay() -> None:
    b = TraceBuilder(device=None)
    b.op("aten::mul", 0, 10)
    with pytest.raises(ValueError, match="launched no GPU work"):
        tracekit.diagnose(io.BytesIO(b.bytes())).replay()
