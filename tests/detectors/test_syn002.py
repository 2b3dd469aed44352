"""SYN002: large copies from pageable memory; not pinned ones, not small ones, not ROCm's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import ADD, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors import syn001_host_sync_stall as syn001
from tracekit.detectors import syn002_pageable_copy as syn002
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.pricing import price

PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"


def detect(b: TraceBuilder) -> Detection:
    return syn002.detect(Analysis(b.trace()), syn002.Config())


def findings(b: TraceBuilder) -> tuple[Finding, ...]:
    analysis = Analysis(b.trace())
    return price(analysis, syn002.detect(analysis, syn002.Config())).findings


def copy(
    b: TraceBuilder,
    name: str,
    size: int,
    us: float,
    *,
    early: float = 0,
    sync: bool = True,
    api: str = "cudaMemcpyAsync",
) -> None:
    """aten::to > aten::copy_: the call blocks until `early` us before the copy's end."""
    at = b.clock.get(100, 0.0)
    begins = max(at + 10, b.free.get(7, 0.0) + 1)
    ends = begins + us
    returns = at + 8 if "Pinned" in name else ends + 2 - early
    c = b.launch(at + 4, returns - at - 4, name=api)
    b.kernel(name, begins, us, c, cat="gpu_memcpy", bytes=size)
    if sync:
        b.launch(returns + 1, max(ends + 3 - returns, 1), name="cudaStreamSynchronize")
        returns = max(ends + 4, returns + 2)
    b.op("aten::to", at, returns + 2 - at)
    b.op("aten::copy_", at + 2, returns + 1 - at - 2)
    b.free[7], b.clock[100] = ends, returns + 3


def program(
    name: str = PAGEABLE, size: int = 10_000_000, us: float = 2_000, **copying: Any
) -> TraceBuilder:
    """A copy, then ten kernels of 200 us that take 10 us each to launch."""
    b = TraceBuilder(str(copying.pop("device", "NVIDIA H200")))
    for _ in range(4):
        with b.step():
            copy(b, name, size, us, **copying)
            for _k in range(10):
                b.call("aten::add", kernel=ADD, gpu=200, host=10)
    return b


def test_a_pageable_copy_blocks_and_is_slow() -> None:
    (found,) = findings(program())
    assert found.code == "SYN002"
    assert found.evidence.counts["GB/s"] == 5.0
    assert found.evidence.counts["MB a step"] == 10.0
    # Recorded: 2 ms of copy, then 2 ms of kernels. Pinned on an H200: 10 MB at 0.8 * 63 GB/s
    # is 198 us, and the host (110 us a step) is never late.
    assert found.saving.then_ms == pytest.approx(2.2, abs=0.02)
    # At best the copy is off the compute stream: 2.0 ms left.
    assert found.saving.step_ms - found.saving.high == pytest.approx(2.0, abs=0.03)
    # At least the host is free, but the GPU was never idle while it copied.
    assert found.saving.low < 0.1
    assert found.where.ops == ("aten::to", "aten::copy_")


def test_non_blocking_on_pageable_memory_blocks_all_the_same() -> None:
    """No synchronize, and the call returns shortly before its copy ends: no wait by the times."""
    b = program(early=50, sync=False)
    analysis = Analysis(b.trace())
    assert not len(analysis.waits.call)
    (found,) = price(analysis, syn002.detect(analysis, syn002.Config())).findings
    assert found.saving.then_ms == pytest.approx(2.2, abs=0.02)


def test_pinned_copies_show_what_the_link_can_do() -> None:
    b = TraceBuilder("An unknown GPU")
    for _ in range(4):
        with b.step():
            copy(b, PINNED, 2_000_000, 100, sync=False)  # 20 GB/s
            copy(b, PAGEABLE, 10_000_000, 2_000)
            for _k in range(10):
                b.call("aten::add", kernel=ADD, gpu=200, host=10)
    (draft,) = detect(b).drafts
    assert draft.edits.resize_ns.tolist() == [500_000] * 4
    assert draft.evidence.lines[1] == "pinned ones 20 GB/s (pinned copies of this trace)"


def test_an_unknown_device_keeps_the_copy_as_long_as_it_is() -> None:
    (draft,) = detect(program(device="An unknown GPU")).drafts
    assert not len(draft.edits.resize_gpu)
    assert len(draft.edits.drop_waits)
    assert "not known" in draft.evidence.lines[1]


def test_pinned_copies_are_no_fault() -> None:
    assert detect(program(PINNED, sync=False)) == Detection()


def test_small_copies_are_staged_and_do_not_block() -> None:
    """What a naive version would report: pageable, many, and the host is in the calls for long."""
    assert detect(program(size=65_536, us=30)) == Detection()


def test_an_item_is_another_fault() -> None:
    """Its copy is pageable too, and its call waits for the whole GPU."""
    assert detect(program(TO_HOST, 4, 1)) == Detection()


def test_rocm_cannot_tell() -> None:
    b = program(
        "Memcpy HtoD (Host -> Device)", device="AMD Instinct MI300X", api="hipMemcpyWithStream"
    )
    found = detect(b)
    assert not found.drafts
    assert "not say whether the host's memory is pinned" in found.undetermined[0].why
    small = program("Memcpy HtoD (Host -> Device)", 256, 2, device="AMD Instinct MI300X")
    assert detect(small) == Detection()


def test_to_the_host_it_is_faster_but_the_values_may_be_needed() -> None:
    (draft,) = detect(program(TO_HOST)).drafts
    assert draft.pessimistic is not None
    assert not len(draft.pessimistic.drop_waits)
    assert "read it a step later" in draft.action


def test_the_same_wait_is_not_reported_twice() -> None:
    analysis = Analysis(program().trace())
    assert syn001.detect(analysis, syn001.Config()).drafts == ()


def test_without_gpu_events_it_says_so() -> None:
    b = TraceBuilder()
    b.op("aten::to", 0, 5)
    assert "no GPU events" in detect(b).undetermined[0].why
