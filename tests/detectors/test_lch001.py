"""LCH001: a launch-bound step is found and priced; busy GPUs and graph replays fool nobody."""

from __future__ import annotations

import pytest

from tests.builders import ADD, AUTOGRAD, TraceBuilder
from tests.replay.programs import KERNELS, program
from tracekit.analysis.analysis import Analysis, AnalysisOptions
from tracekit.detectors import lch001_launch_bound_region as lch
from tracekit.detectors.finding import Finding
from tracekit.detectors.pricing import price


def findings(b: TraceBuilder, unprofiled_ms: float | None = None) -> tuple[Finding, ...]:
    analysis = Analysis(b.trace(), AnalysisOptions(unprofiled_ms=unprofiled_ms))
    return price(analysis, lch.detect(analysis, lch.Config())).findings


def test_a_launch_bound_step() -> None:
    """25 kernels of 10 us launched 40 us apart: 1,000 us a step, 250 of GPU work."""
    (found,) = findings(program(40, 10))
    assert found.code == "LCH001"
    assert found.severity == "high"
    assert found.where.text == f"whole step, {KERNELS} launches"
    assert found.saving.then_ms == pytest.approx(0.250 + 24 * 0.0006, abs=0.002)
    assert found.evidence.counts["us between launches (median)"] == 40
    assert found.evidence.counts["us a kernel (median)"] == 10
    # Idle of 30 us before each kernel but the first, whose gap is cut by nothing: 25 a step.
    idle = found.evidence.counts["GPU idle for launches, ms a step (recorded)"]
    assert idle == pytest.approx(0.750, abs=0.03)


def test_the_price_is_of_the_step_without_the_profiler() -> None:
    (found,) = findings(program(40, 10), unprofiled_ms=0.6)
    assert found.saving.base == "unprofiled"
    assert found.saving.step_ms == 0.6
    assert found.saving.then_ms == pytest.approx(0.250 + 24 * 0.00025, abs=0.003)


def test_without_it_the_low_end_assumes_an_inflated_recording() -> None:
    (found,) = findings(program(40, 10))
    assert found.saving.base == "recorded"
    # 1,000 us recorded might have been 1,000 / 1.9 without the profiler.
    assert found.saving.low == pytest.approx(1.0 / 1.9 - 0.265, abs=0.03)
    assert found.saving.high == pytest.approx(found.saving.ms_per_step, rel=0.02)


@pytest.mark.parametrize(("host", "gpu"), [(10, 40), (20, 20)])
def test_a_busy_gpu_is_not_launch_bound(host: float, gpu: float) -> None:
    assert findings(program(host, gpu)) == ()


def test_a_graph_replay_of_tiny_kernels_is_not_launch_bound() -> None:
    b = TraceBuilder()
    for i in range(4):
        b.annotation(f"ProfilerStep#{i}", 600 * i, 600)
        c = b.launch(600 * i, name="cudaGraphLaunch")
        for k in range(200):
            b.kernel(ADD, 600 * i + 5 + 2.9 * k, 2, c)
    assert findings(b) == ()


def test_false_idle_of_an_incomplete_graph_is_not_launch_bound() -> None:
    b = TraceBuilder()
    for i in range(4):
        b.annotation(f"ProfilerStep#{i}", 50_000 * i, 50_000)
        c = b.launch(50_000 * i, name="cudaGraphLaunch")
        for k in range(25):
            b.kernel(ADD, 50_000 * i + 10 + 1_900 * k, 20, c)
    assert findings(b) == ()


def test_idle_for_input_is_not_launch_bound() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.clock[100] += 5_000
            b.call("aten::to", kernel="Memcpy HtoD (Pinned -> Device)", gpu=10, cat="gpu_memcpy")
            for _k in range(30):
                b.call("aten::add", kernel=ADD, gpu=40, host=10)
    assert findings(b) == ()


def test_only_the_optimizer_is_launch_bound() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(10):
                b.call("aten::linear", kernel=ADD, gpu=200, host=20)
            for _k in range(10):
                b.call(
                    ["autograd::engine::evaluate_function: X", "aten::mm"],
                    kernel=ADD,
                    gpu=200,
                    host=20,
                    tid=AUTOGRAD,
                )
            b.clock[100] = max(b.clock[101], b.free[7])
            start = b.clock[100]
            for _k in range(40):
                b.call("aten::add_", kernel=ADD, gpu=5, host=50)
            b.annotation("Optimizer.step#AdamW.step", start, b.clock[100] - start)
            b.clock[101] = b.clock[100]
    (found,) = findings(b)
    assert found.where.phase == "optimizer"
    assert found.where.text == "optimizer, 40 launches"
    # 40 x 45 us of idle; the rest of the step keeps its length.
    assert found.saving.ms_per_step == pytest.approx(40 * 0.045, rel=0.05)


def test_no_gpu_and_no_launches_are_said() -> None:
    cpu = TraceBuilder(device=None)
    cpu.op("aten::mul", 0, 10)
    orphans = TraceBuilder()
    orphans.annotation("ProfilerStep#0", 0, 1_000)
    orphans.kernel(ADD, 5, 10, orphans.launch(0))
    for k in range(40):
        orphans.kernel(ADD, 20 + 20 * k, 5, 5_000 + k)
    for b, word in ((cpu, "no GPU events"), (orphans, "no recorded launch")):
        detection = lch.detect(Analysis(b.trace()), lch.Config())
        assert not detection.drafts
        assert word in detection.undetermined[0].why


def test_the_fingerprint_does_not_depend_on_times() -> None:
    (a,), (b,) = findings(program(40, 10)), findings(program(50, 12))
    assert a.fingerprint == b.fingerprint
