"""SYN001: only waits that leave the GPU idle, with the call and the op that made them."""

from __future__ import annotations

import pytest

from tests.builders import ADD, TraceBuilder
from tests.replay.programs import program
from tracekit.analysis.analysis import Analysis
from tracekit.detectors import syn001_host_sync_stall as syn
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.pricing import price


def detect(b: TraceBuilder) -> Detection:
    return syn.detect(Analysis(b.trace()), syn.Config())


def findings(b: TraceBuilder) -> tuple[Finding, ...]:
    analysis = Analysis(b.trace())
    return price(analysis, syn.detect(analysis, syn.Config())).findings


def with_items(items: int, *, host: float = 10, gpu: float = 100) -> TraceBuilder:
    """10 kernels a step; `.item()` after each of the first `items` of them."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for k in range(10):
                b.call("aten::add", kernel=ADD, gpu=gpu, host=host)
                if k < items:
                    item(b)
    return b


def item(b: TraceBuilder) -> None:
    """aten::item > aten::_local_scalar_dense > a small copy, then cudaStreamSynchronize."""
    at = b.clock[100]
    copied = max(at + 10, b.free[7] + 1) + 1
    until = copied + 6
    b.op("aten::item", at, until - at + 3)
    b.op("aten::_local_scalar_dense", at + 1, until - at + 1)
    c = b.launch(at + 2, 5, name="cudaMemcpyAsync")
    b.kernel("Memcpy DtoH (Device -> Pinned)", copied - 1, 1, c, cat="gpu_memcpy")
    b.launch(at + 8, until - at - 8, name="cudaStreamSynchronize")
    b.free[7] = copied
    b.clock[100] = until + 4


def test_items_that_stall() -> None:
    (found,) = findings(with_items(5))
    assert found.code == "SYN001"
    assert found.title == "aten::item makes the host wait for the GPU"
    assert found.where.text == "cudaStreamSynchronize in aten::item, 5 times a step"
    assert found.where.ops == ("aten::item", "aten::_local_scalar_dense")
    # After each: return 6 us after the copy, 4 us of Python, 5 us to the launch, 5 us latency.
    assert found.evidence.counts["GPU idle after them, ms a step"] == pytest.approx(0.1, abs=0.01)
    # Without the waits the ten kernels of 100 us run back to back, with the five copies.
    assert found.saving.then_ms == pytest.approx(1.005, abs=0.02)
    assert "running" in found.fixes[0].code


def test_a_long_wait_on_a_busy_gpu_costs_little_and_says_so() -> None:
    """One wait a step of nearly the whole step: the GPU idles 20 us of 10 ms."""
    (found,) = findings(with_items(1, gpu=1_000))
    assert found.evidence.counts["host waiting, ms a step"] > 0.9
    assert found.saving.percent_of_step < 1
    assert found.severity == "note"


def test_a_wait_that_leaves_no_idle_is_no_finding() -> None:
    """It waits for a copy on another stream while the compute stream has work queued."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(10):
                b.call("aten::add", kernel=ADD, gpu=100, host=10)
            at = b.clock[100]
            c = b.launch(at, 5, name="cudaMemcpyAsync")
            b.kernel("Memcpy DtoH (Device -> Pinned)", at + 10, 5, c, cat="gpu_memcpy", stream=9)
            b.launch(at + 6, 12, name="cudaStreamSynchronize")
            b.clock[100] = at + 20
    assert detect(b).drafts == ()


def test_a_wait_that_finds_the_gpu_done_is_no_finding() -> None:
    """Host 25 x 40 us, GPU 25 x 10 us: each kernel has ended before the step's wait begins. The
    waits are seen, and none of them waited."""
    analysis = Analysis(program(40, 10, sync=True).trace())
    assert len(analysis.waits.call) == 4
    assert (analysis.waits.awaited == -1).all()
    assert syn.detect(analysis, syn.Config()).drafts == ()


def test_a_wait_in_a_host_bound_step_is_worth_only_the_wait() -> None:
    """The same with a last kernel of 60 us: it starts 25 us into its op of 40 and ends 45 us after
    it; the call returns 2 us later. Without the wait the host goes on at once: 47 us of 1,048."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for k in range(25):
                b.call("aten::add", kernel=ADD, gpu=60 if k == 24 else 10, host=40)
            at = b.clock[100]
            until = b.free[7] + 2
            b.op("aten::item", at, until - at + 1)
            b.launch(at, until - at, name="cudaStreamSynchronize")
            b.clock[100] = until + 1
    (found,) = findings(b)
    assert found.saving.ms_per_step == pytest.approx(0.047, abs=0.006)
    assert found.evidence.counts["host waiting, ms a step"] == pytest.approx(0.047)


def test_the_profilers_own_wait_at_the_end_is_outside() -> None:
    b = program(20, 30)
    b.launch(b.clock[100] + 100, 5_000, name="cudaDeviceSynchronize")
    assert detect(b).drafts == ()


def test_nonzero_gets_its_own_fix() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _k in range(5):
                b.call("aten::add", kernel=ADD, gpu=100, host=10)
                at = b.clock[100]
                until = b.free[7] + 5
                b.op("aten::index", at, until - at + 2)
                b.op("aten::nonzero", at + 1, until - at)
                b.launch(at + 2, until - at - 2, name="cudaStreamSynchronize")
                b.clock[100] = until + 3
    (found,) = findings(b)
    assert found.where.ops == ("aten::index", "aten::nonzero")
    assert "torch.where" in found.fixes[0].code


def test_hip_names_are_waits_too() -> None:
    b = TraceBuilder(device="AMD Instinct MI300X")
    for _ in range(4):
        with b.step():
            for _k in range(5):
                b.call("aten::add", kernel=ADD, gpu=100, host=10)
            at = b.clock[100]
            until = b.free[7] + 9
            b.op("aten::is_nonzero", at, until - at + 1)
            c = b.launch(at + 1, until - at - 1, name="hipMemcpyWithStream")
            b.kernel("Memcpy DtoH (Device -> Host)", b.free[7] + 1, 2, c, cat="gpu_memcpy")
            b.free[7] += 3
            b.clock[100] = until + 2
    (found,) = findings(b)
    assert found.where.text == "hipMemcpyWithStream in aten::is_nonzero, once a step"


def test_item_on_the_host_is_named_and_no_sync() -> None:
    b = program(20, 30)
    for k in range(7):
        b.op("aten::item", 100 * k + 1, 2)
    detection = detect(b)
    assert detection.drafts == ()
    assert detection.notes[0].startswith("7 of 7 aten::item calls read tensors on the host")


def test_long_waits_in_false_idle_are_undetermined() -> None:
    b = TraceBuilder()
    for i in range(3):
        at = 45_645 * i
        b.annotation(f"ProfilerStep#{i}", at, 45_645)
        c = b.launch(at, name="cudaGraphLaunch")
        for k in range(25):
            b.kernel(ADD, at + 10 + 1_900 * k, 20, c)
        b.op("aten::to", at + 30, 45_700)
        b.launch(at + 40, 45_600, name="cudaStreamSynchronize")
    detection = detect(b)
    # What can be seen of it, some microseconds at a step's end, and what cannot.
    assert all(d.evidence.counts["GPU idle after them, ms a step"] < 0.03 for d in detection.drafts)
    assert "aten::to" in detection.undetermined[0].why


def test_no_gpu_and_no_runtime_calls_are_said() -> None:
    cpu = TraceBuilder(device=None)
    cpu.op("aten::mul", 0, 10)
    silent = TraceBuilder()
    silent.kernel(ADD, 0, 10)
    assert "no GPU events" in detect(cpu).undetermined[0].why
    assert "no runtime calls" in detect(silent).undetermined[0].why
