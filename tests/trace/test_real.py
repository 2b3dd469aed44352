"""Real traces: counts and times agree with json.loads; what is no trace is refused."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.trace.kineto import exact_ns
from tracekit.trace.errors import TraceError
from tracekit.trace.read import read

ROOT = Path(__file__).parents[3] / "shared" / "traces"
FILES = sorted(ROOT.rglob("*.json.gz")) if ROOT.is_dir() else []
pytestmark = pytest.mark.skipif(not FILES, reason="the shared traces are not here")
SMALL = [f for f in FILES if f.stat().st_size < 1_000_000 and "not_a_trace" not in f.name]

TABLE = {
    "cpu_op": "ops", "cuda_runtime": "launches", "cuda_driver": "launches", "Runtime": "launches",
    "mtia_runtime": "launches", "kernel": "gpu", "Kernel": "gpu", "gpu_memcpy": "gpu",
    "gpu_memset": "gpu", "mtia_ccp_events": "gpu", "user_annotation": "annotations",
    "gpu_user_annotation": "annotations", "overhead": "annotations", "Trace": "annotations",
    "python_function": "python", "cpu_instant_event": "memory", "cuda_sync": "syncs",
}  # fmt: skip


@pytest.mark.parametrize("path", SMALL, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_event_is_in_its_table_at_its_time(path):
    text = gzip.decompress(path.read_bytes()).decode()
    events = json.loads(text)
    events = events["traceEvents"] if isinstance(events, dict) else events
    expected = Counter(
        TABLE[e["cat"]]
        for e in events
        if e.get("cat") in TABLE and not e["name"].startswith(("event_wait", "event_record"))
    )
    trace = read(path)
    counts = {kind: len(table) for kind, table in trace.tables.items() if kind != "meta"}
    assert {k: v for k, v in counts.items() if v} == dict(expected)
    health = trace.health
    assert not health.tolerant
    assert not health.altered
    assert health.events_skipped == 0
    kept = sum(counts.values()) + len(trace.table("meta"))
    assert kept + sum(health.ignored_by_kind.values()) == health.events == len(events)

    base = trace.header.get("baseTimeNanoseconds", 0)
    found = Counter(
        (ts + trace.t0_ns - base, dur)
        for kind, table in trace.tables.items()
        if kind not in ("meta", "memory")
        for ts, dur in zip(table.ts.tolist(), table.ints("dur").tolist(), strict=True)
    )
    truth = Counter(exact_ns(text))
    assert not found - truth
    assert sum((truth - found).values()) == sum(
        n for k, n in health.ignored_by_kind.items() if "without work" in k
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [("not_a_trace_memory_timeline", "memory timeline"), ("not_a_trace_rocprof", "rocprof")],
)
def test_other_json_is_named(name, what):
    with pytest.raises(TraceError, match=what):
        read(ROOT / "public" / f"{name}.json.gz")


def test_vendors():
    vendors = {"h100_vit": "cuda", "mi300_vit": "hip", "mtia_inference": "mtia",
               "rank_non_gpu": "cpu", "old_casing_rank1": "cuda"}  # fmt: skip
    assert {n: read(ROOT / "public" / f"{n}.json.gz").vendor for n in vendors} == vendors
