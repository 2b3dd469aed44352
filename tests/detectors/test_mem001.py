"""MEM001: the driver's allocator in the steady state; not the first step's, not the pool's."""

from __future__ import annotations

import pytest

from tests.builders import ADD, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors import mem001_allocator_churn as mem001
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.pricing import price


def detect(b: TraceBuilder) -> Detection:
    return mem001.detect(Analysis(b.trace()), mem001.Config())


def findings(b: TraceBuilder) -> tuple[Finding, ...]:
    analysis = Analysis(b.trace())
    return price(analysis, mem001.detect(analysis, mem001.Config())).findings


def driver(b: TraceBuilder, name: str, us: float) -> None:
    b.launch(b.clock[100] + 1, us, name=name)
    b.clock[100] += us + 2


def program(
    *calls: tuple[str, float], where: range = range(9), steps: int = 4, sync: bool = False
) -> TraceBuilder:
    """Ten ops of 20 us with kernels of 5 us, then the calls, in the steps of `where`."""
    b = TraceBuilder()
    for i in range(steps):
        with b.step():
            for _ in range(10):
                b.call("aten::add", kernel=ADD, gpu=5, host=20)
            if sync:
                driver(b, "cudaDeviceSynchronize", 100)
            for name, us in calls if i in where else ():
                driver(b, name, us)
    return b


def test_churn_is_priced_by_its_host_time() -> None:
    (found,) = findings(program(("cudaMalloc", 100), ("cudaMalloc", 150), ("cudaFree", 200)))
    assert found.code == "MEM001"
    assert found.evidence.counts["cudaMalloc a step"] == 2
    assert found.evidence.counts["cudaFree a step"] == 1
    # 200 us of launches and 456 us of calls; what stays are 2 us of Python around each call.
    assert found.saving.step_ms == pytest.approx(0.656, abs=0.001)
    assert found.saving.ms_per_step == pytest.approx(0.450, abs=0.005)
    assert "empty_cache" in found.fixes[0].code
    assert found.where.text == "2 cudaMalloc and 1 cudaFree a step"


def test_the_wait_before_a_free_goes_with_it() -> None:
    b = program(("cudaFree", 200), sync=True)
    (draft,) = detect(b).drafts
    assert len(draft.edits.drop_waits) == 4
    assert draft.pessimistic is not None
    assert not len(draft.pessimistic.drop_waits)


def test_a_wait_that_stands_elsewhere_stays() -> None:
    (draft,) = detect(program(("cudaMalloc", 200), sync=True)).drafts
    assert not len(draft.edits.drop_waits)
    assert draft.title == "every step asks the driver for more memory"


def test_the_first_step_fills_the_cache() -> None:
    """40 ms of cudaMalloc in a recording of 41 ms: a naive version reports the total."""
    assert detect(program(*[("cudaMalloc", 4_000)] * 10, where=range(1))) == Detection()


def test_a_cache_that_grows_once_is_no_churn() -> None:
    assert detect(program(("cudaMalloc", 300), where=range(3, 4), steps=6)) == Detection()


def test_one_step_cannot_tell() -> None:
    found = detect(program(("cudaMalloc", 300), steps=1))
    assert not found.drafts
    assert "a recording of one step cannot tell" in found.undetermined[0].why


@pytest.mark.parametrize(
    "name", ["cudaMallocAsync", "cudaFreeAsync", "cudaHostAlloc", "cudaFreeHost"]
)
def test_the_pool_and_pinned_memory_are_other_things(name: str) -> None:
    assert detect(program((name, 200))) == Detection()


@pytest.mark.parametrize("names", [("hipMalloc", "hipFree"), ("cuMemCreate", "cuMemUnmap")])
def test_other_names_of_the_same(names: tuple[str, str]) -> None:
    (found,) = findings(program((names[0], 100), (names[1], 100)))
    assert found.saving.ms_per_step == pytest.approx(0.2, abs=0.005)
    assert "gives memory back" in found.title


def test_without_runtime_calls_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::add", 0, 5)
    assert "no runtime calls" in detect(b).undetermined[0].why
