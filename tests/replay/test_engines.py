"""The two engines agree to the nanosecond, on programs of every kind and on real traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tests.replay.programs import model, program
from tracekit.analysis.analysis import Analysis
from tracekit.replay import engine, scalar, vector
from tracekit.replay.conditions import Conditions
from tracekit.replay.edits import Edits, Graphed
from tracekit.replay.model import StepModel
from tracekit.replay.plan import plan
from tracekit.trace.read import read

SHARED = Path(__file__).parents[3] / "shared" / "traces"
DEMO = Path(__file__).parents[2] / "tracekit" / "demo"


def check(m: StepModel) -> None:
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(m.work_row, max(len(m.work_row) // 3, 1), replace=False))
    half = np.sort(rng.choice(m.work_row, max(len(m.work_row) // 2, 1), replace=False))
    for edits in (
        Edits(),
        Edits(remove_gpu=some),
        Edits(resize_gpu=half, resize_ns=rng.integers(0, 300_000, len(half))),
        Edits(drop_waits=m.call_row[m.is_wait]),
        Edits(graphs=(Graphed(half),)),
    ):
        for overhead in (0.0, 2_000.0):
            changed = plan(m, edits, Conditions(event_cost_ns=overhead))
            if not vector.fits(changed):
                assert edits.graphs  # as recorded, launches wait only for earlier ones
                continue
            for a, b in zip(scalar.play(m, changed, 3), vector.play(m, changed, 3), strict=True):
                assert (a == b).all()


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("host", "gpu"), [(40, 10), (10, 40)])
def test_programs(host: float, gpu: float, sync: bool) -> None:
    check(model(program(host, gpu, sync=sync)))


def test_a_queue_deeper_than_its_limit() -> None:
    check(model(program(1, 3, steps=2, kernels=2_500)))


def test_streams_that_join() -> None:
    b = TraceBuilder()
    for i in range(5):
        at = 400 * i
        b.annotation(f"ProfilerStep#{i}", at, 400)
        for k in range(6):
            b.kernel("A", at + 15 + 30 * k, 20, b.launch(at + 10 + 10 * k), stream=7)
        b.kernel("B", at + 25, 250, b.launch(at + 20.5), stream=9)
        b.kernel("C", at + 277, 50, b.launch(at + 80), stream=7)
    check(model(b))


REAL = sorted(DEMO.glob("*.json.gz")) + sorted(SHARED.glob("h200/**/*.json.gz"))
REAL += [SHARED / "public" / f"{n}.json.gz" for n in ("negative_queue_rank0", "mtia_inference")]


@pytest.mark.parametrize("path", [p for p in REAL if p.exists()], ids=lambda p: p.stem)
def test_real_traces(path: Path) -> None:
    m = Analysis(read(path)).replay
    assert m is not None
    check(m)


def test_a_stream_for_every_kernel() -> None:
    """Many lanes of one kernel: the plain engine is the faster one, and takes its turn."""
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            for s in range(300):
                b.call("aten::mul", kernel="A", gpu=30, host=5, stream=s)
    m = model(b)
    check(m)
    changed = plan(m, Edits(), Conditions())
    assert vector.lanes(m, changed) == 300
    assert engine._engine(m, changed) is scalar.play
