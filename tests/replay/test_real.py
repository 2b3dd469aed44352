"""Replayed unchanged, every recording with launches gives back its step within 1 %."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.analysis.analysis import Analysis
from tracekit.replay.engine import error, run
from tracekit.trace.errors import TraceError
from tracekit.trace.read import read

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "traces"
FILES = sorted(
    [
        *(ROOT / "tracekit" / "demo").glob("*.json.gz"),
        *(ROOT / "tests" / "fixtures").glob("**/*.json.gz"),
        *(ROOT / "tests" / "pathologies" / "fixtures").glob("*.json.gz"),
        *SHARED.glob("**/*.json.gz"),
    ]
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.removesuffix(".json.gz"))
def test_the_recorded_step_comes_back(path: Path) -> None:
    try:
        analysis = Analysis(read(path))
    except TraceError:
        pytest.skip("no trace")
    model = analysis.replay
    if model is None or not len(analysis.trace.table("launches")):
        pytest.skip("no launches")
    replayed = run(model)
    # 50 us: the launch latency of a graph varies by as much, and steps of 2 ms show it.
    assert (
        error(model, replayed) * float(model.recorded_ns.min()) < 50_000
        or error(model, replayed) < 0.01
    )
    if model.steps == 1:
        assert replayed.step_ms == pytest.approx(model.recorded_ms, rel=0.01)
