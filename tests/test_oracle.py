"""The oracle itself, on a case counted on paper, and against the project on random traces."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import oracle
from tracekit.analysis.analysis import Analysis
from tracekit.trace.read import read

GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def gpu_event(cat: str, name: str, ts: float, dur: float, stream: int, corr: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": ts,
        "dur": dur,
        "args": {"device": 0, "stream": stream, "correlation": corr},
    }


def call_event(ts: float, dur: float, corr: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 100,
        "tid": 100,
        "ts": ts,
        "dur": dur,
        "args": {"correlation": corr},
    }


def mark_event(number: int, ts: float, dur: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "pid": 100,
        "tid": 100,
        "ts": ts,
        "dur": dur,
    }


def test_time_line_counted_on_paper() -> None:
    """Computing 0-10 and 20-30, communication 5-25, a copy 22-40 on one device."""
    found = oracle.from_events(
        [
            gpu_event("kernel", GEMM, 0, 10, 7, 0),
            gpu_event("kernel", GEMM, 20, 10, 7, 0),
            gpu_event("kernel", NCCL, 5, 20, 17, 0),
            gpu_event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 22, 18, 20, 0),
        ]
    )
    assert found.breakdown(0, 0, 50_000) == {
        "computing": 20_000,
        "communication": 10_000,
        "copy": 10_000,
    }
    assert found.busy(0, 0, 50_000) == 40_000
    assert found.idle(0, 0, 50_000) == 10_000
    assert found.busy(0, 8_000, 21_000) == 13_000
    assert found.busy_of_stream(0, 7, 0, 50_000) == 20_000
    assert found.uncovered(0, oracle.COPY, 0, 50_000) == 10_000
    assert found.running(0, oracle.COPY, 0, 50_000) == 18_000


def test_times_are_exact() -> None:
    assert oracle.nanoseconds(oracle.Decimal("1767189312000000.001")) == 1767189312000000001
    with pytest.raises(ValueError, match="no whole number"):
        oracle.nanoseconds(oracle.Decimal("0.0001"))


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to four marks that touch or not, launches anywhere, work at any time after its launch on
    three streams, with orphans; streams overlap, work outlasts steps."""
    events: list[dict[str, Any]] = []
    clock = draw(st.integers(0, 200))
    for number in range(draw(st.integers(1, 4))):
        length = draw(st.integers(20, 400))
        events.append(mark_event(number, clock, length))
        clock += length + draw(st.sampled_from([0, 0, 30]))
    for corr in range(1, draw(st.integers(1, 14)) + 1):
        launched = draw(st.integers(0, clock + 50))
        if draw(st.integers(0, 5)):
            events.append(call_event(launched, draw(st.integers(1, 9)), corr))
        cat, name = draw(
            st.sampled_from(
                [
                    ("kernel", GEMM),
                    ("kernel", NCCL),
                    ("gpu_memcpy", "Memcpy DtoD"),
                    ("gpu_memset", "M"),
                ]
            )
        )
        start = launched + draw(st.integers(1, 150)) + draw(st.sampled_from([0, 0, 0, 1500]))
        events.append(
            gpu_event(
                cat,
                name,
                start,
                draw(st.integers(0, 120)),
                draw(st.sampled_from([7, 17, 20])),
                corr,
            )
        )
    return events


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(traces())
def test_project_agrees_on_random_traces(events: list[dict[str, Any]]) -> None:
    """Steps, busy, breakdown and streams, to the nanosecond."""
    expected = oracle.from_events(events)
    analysis = Analysis(read(io.BytesIO(json.dumps({"traceEvents": events}).encode())))
    compare(analysis, expected)


def compare(analysis: Analysis, expected: oracle.Oracle) -> None:
    """Assert that the project's steps and accounting are the oracle's."""
    steps, account, t0 = analysis.steps, analysis.accounting, analysis.trace.t0_ns
    windows = [(int(a) + t0, int(b) + t0) for a, b in zip(steps.start, steps.end, strict=True)]
    if expected.marks:
        assert steps.source == "ProfilerStep#"
        assert windows == expected.steps()
    assert steps.orphans == expected.orphans
    parts = account.breakdown_ns
    assert [int(n) for n in sum(parts.values())] == [b - a for a, b in windows]
    assert all((part >= 0).all() for part in parts.values())
    idle = sum(part for key, part in parts.items() if key.startswith("idle_"))
    for k, (a, b) in enumerate(windows):
        if not expected.work:
            assert (account.busy_ns[k], account.idle_ns[k]) == (0, b - a)
            continue
        busy = expected.busy(analysis.device, a, b)
        assert (account.busy_ns[k], account.idle_ns[k], idle[k]) == (
            busy,
            b - a - busy,
            b - a - busy,
        )
        split = expected.breakdown(analysis.device, a, b)
        keys = ("computing", "communication", "copies")
        assert [int(parts[key][k]) for key in keys] == list(split.values())
        for (device, stream), spent in account.streams_ns.items():
            assert spent[k] == expected.busy_of_stream(device, stream, a, b)
    assert len(account.streams_ns) == len(expected.streams)
