"""The ladder's rungs as recorded on an H200 (`fixtures/rungs`): each diagnosed as it should be.

What a rung clears and leaves stands in `tracekit.workload.rungs`; the recordings hold it to that.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import tracekit
from benchmarks.trim_trace import packed, trim
from tracekit import demo
from tracekit.detectors.finding import Finding
from tracekit.diagnosis import Diagnosis
from tracekit.report import json as json_report
from tracekit.workload.rungs import RUNGS

FOLDER = Path(__file__).parent / "fixtures" / "rungs"
KEYS = list(RUNGS)
MOST_BYTES = 500_000
STEPS = {"eager": 1} | {key: 2 for key in KEYS if key != "eager"} | {"5_12steps": 12}
LOUD = ("high", "medium", "low")


@lru_cache
def diagnosis(key: str) -> Diagnosis:
    return tracekit.diagnose(FOLDER / f"rung_{key}.json.gz")


def findings(key: str, code: str) -> list[Finding]:
    return [finding for finding in diagnosis(key).findings if finding.code == code]


@lru_cache
def content(key: str) -> dict[str, Any]:
    text = gzip.decompress((FOLDER / f"rung_{key}.json.gz").read_bytes())
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("key", STEPS)
def test_steps_and_the_time_without_the_profiler(key: str) -> None:
    found = diagnosis(key)
    assert (len(found.steps), found.steps.source) == (STEPS[key], "ProfilerStep#")
    assert not found.degraded
    manifest = content(key)["tracekit"]
    assert manifest["rung"] == key.partition("_")[0]
    assert manifest["steps"] == STEPS[key]
    unprofiled = manifest["unprofiled"]["ms_per_step"]
    assert found.analysis.unprofiled_ms == unprofiled
    for finding in found.findings:
        if not finding.code.startswith("TRC"):
            assert (finding.saving.base, finding.saving.step_ms) == ("unprofiled", unprofiled)


@pytest.mark.parametrize("key", KEYS)
def test_what_a_rung_clears_is_gone_from_it_on(key: str) -> None:
    for later in KEYS[KEYS.index(key) :]:
        for code in RUNGS[key].clears:
            loud = [f for f in findings(later, code) if f.severity in LOUD]
            assert not loud, f"rung {later} still has {code}"


@pytest.mark.parametrize("key", KEYS)
def test_what_a_rung_leaves_is_found(key: str) -> None:
    for code in RUNGS[key].leaves:
        assert findings(key, code), code


@pytest.mark.parametrize("key", ["eager", "0", "1", "2", "3"])
def test_without_a_graph_the_step_is_launch_bound(key: str) -> None:
    (finding,) = findings(key, "LCH001")
    assert finding.severity == "high"
    assert diagnosis(key).findings[0] is finding
    # What is left is the GPU's work: 38 ms in eager, 20 to 21 ms from rung 0 on.
    assert 0.9 < finding.saving.then_ms / (38 if key == "eager" else 20.5) < 1.15


@pytest.mark.parametrize("key", ["eager", "0"])
def test_nchw_rungs_convert_around_convolutions(key: str) -> None:
    (finding,) = [f for f in findings(key, "LAY001") if "NCHW to NHWC and back" in f.title]
    # channels_last brings back what it takes: the ladder measured no gain.
    assert finding.severity == "note"


@pytest.mark.parametrize("key", ["1", "2", "3", "5", "5_12steps"])
def test_channels_last_rungs_copy_gradients(key: str) -> None:
    (finding,) = findings(key, "LAY001")
    assert "hidden copies" in finding.title
    assert 0.5 < finding.saving.ms_per_step < 3


@pytest.mark.parametrize("key", STEPS)
def test_reading_the_loss_costs_nothing_while_the_host_is_the_limit(key: str) -> None:
    assert all(finding.severity == "note" for finding in findings(key, "SYN001"))


def test_the_fixtures_are_small_and_say_nothing_of_the_machine() -> None:
    files = sorted(FOLDER.iterdir())
    assert [file.name for file in files] == sorted(f"rung_{key}.json.gz" for key in STEPS)
    for file in files:
        assert file.stat().st_size <= MOST_BYTES
        text = gzip.decompress(file.read_bytes()).decode()
        assert not re.search(r'"/|/(?:root|tmp|home)/|host_?name', text)
        assert file.read_bytes()[3:9] == bytes(5) + b"\x02"  # no name, no time, best compression


def comparable(path: Path) -> dict[str, Any]:
    """The report less what counts the file's bytes and events, dropped ones among them."""
    report: dict[str, Any] = json.loads(json_report.render(tracekit.diagnose(path)))
    for field in ("path", "bytes", "events"):
        report["trace"].pop(field)
    report["health"].pop("ignored_by_kind")
    for finding in report["findings"]:
        finding["evidence"].pop("event_ids")  # positions in the file
    return report


@pytest.mark.parametrize(
    "source",
    [demo.trace_path(), FOLDER.parent / "traces" / "h200_ddpm32m_rung5.json.gz"],
    ids=lambda path: path.name,
)
def test_trimming_changes_no_diagnosis(source: Path, tmp_path: Path) -> None:
    recorded = json.loads(gzip.decompress(source.read_bytes()))
    assert any(event["ph"] == "s" for event in recorded["traceEvents"])
    target = tmp_path / source.name
    target.write_bytes(packed(trim(recorded, target.name)))
    assert target.stat().st_size < source.stat().st_size
    assert comparable(target) == comparable(source)
    again = json.loads(gzip.decompress(target.read_bytes()))
    assert packed(trim(again, target.name)) == target.read_bytes()


def test_trimming_cuts_steps_and_paths() -> None:
    def mark(number: int, ts: float) -> dict[str, Any]:
        name = f"ProfilerStep#{number}"
        return {"ph": "X", "cat": "user_annotation", "name": name, "ts": ts, "dur": 100.0}

    def launch(correlation: int, ts: float) -> list[dict[str, Any]]:
        args = {"correlation": correlation, "kernel_file": "/tmp/some/where/kernel.py"}
        host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts, "dur": 2.0}
        gpu = {"ph": "X", "cat": "kernel", "name": "k", "ts": ts + 200, "dur": 5.0}
        return [{**event, "args": args} for event in (host, gpu)]

    trace = {
        "host_name": "box",
        "tracekit": {"steps": 2, "trace": "trace.json.gz", "command": ["-o", "/tmp/out/rung_0"]},
        "traceEvents": [mark(3, 0.0), *launch(1, 10), mark(4, 100.5), *launch(2, 110),
                        {"ph": "s", "cat": "ac2g", "id": 1, "ts": 10.0, "name": "ac2g"}],
        "traceName": "/tmp/out/rung_0/trace.json",
    }  # fmt: skip
    made = trim(trace, "small.json.gz", steps=(0, 1))
    assert [event["name"] for event in made["traceEvents"]] == [
        "ProfilerStep#3", "cudaLaunchKernel", "k",
    ]  # fmt: skip
    # the kernel ran behind the mark of its step and is kept by its launch
    assert made["traceEvents"][2]["args"] == {"correlation": 1, "kernel_file": "kernel.py"}
    assert made["tracekit"] == {
        "steps": 1, "trace": "small.json.gz", "command": ["-o", "traces/rung_0"],
        "trimmed": "steps 0:1 of 2",
    }  # fmt: skip
    assert made["traceName"] == "small.json.gz" and "host_name" not in made
    with pytest.raises(ValueError, match="the recording has 2 steps, not 1:3"):
        trim(trace, "small.json.gz", steps=(1, 3))
