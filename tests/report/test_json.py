"""The JSON report: the contract."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import jsonschema
import pytest

from tests.report import samples
from tracekit.detectors.finding import Undetermined
from tracekit.report import json as report
from tracekit.trace.model import Damage

CASES = {
    "no finding": samples.diagnosis,
    "findings": lambda: samples.diagnosis(
        findings=(samples.finding(), samples.finding("LAY001", 0.01)), unprofiled_ms=0.7
    ),
    "cpu only": lambda: samples.diagnosis(samples.cpu_only()),
    "two devices": lambda: samples.diagnosis(samples.two_devices()),
    "names": lambda: samples.diagnosis(
        samples.host_bound(samples.NASTY), (samples.finding(insight=samples.NASTY + "\x7f"),)
    ),
    "even number of steps": lambda: samples.diagnosis(samples.host_bound(steps=4)),
    "one step": lambda: samples.diagnosis(samples.host_bound(steps=1)),
    "undetermined": lambda: samples.diagnosis(
        undetermined=(Undetermined("FUS001", "unfused-elementwise-chain", "no shapes"),),
        notes=("a note",),
    ),
}


@pytest.fixture(params=CASES, ids=str)
def text(request: pytest.FixtureRequest) -> str:
    return report.render(CASES[request.param]())


def test_it_keeps_the_schema(text: str) -> None:
    jsonschema.Draft202012Validator.check_schema(report.schema())
    jsonschema.Draft202012Validator(report.schema()).validate(json.loads(text))


def test_it_is_plain_ascii_without_control_characters(text: str) -> None:
    assert text.isascii()
    assert all(c == "\n" or " " <= c < "\x7f" for c in text)


def test_the_breakdown_sums_to_the_step(text: str) -> None:
    steps = json.loads(text, parse_float=Fraction, parse_int=Fraction)["steps"]
    assert sum(steps["breakdown_ms"].values()) == steps["wall_ms"]["median"]
    assert steps["gpu_busy_ms"] + steps["gpu_idle_ms"] == steps["wall_ms"]["median"]
    for step in steps["per_step"]:
        assert sum(step["breakdown_ms"].values()) == step["wall_ms"]
        assert step["wall_ms"] == (step["end_ns"] - step["start_ns"]) / 10**6


def test_the_unprofiled_breakdown_sums_to_the_unprofiled_step() -> None:
    steps = json.loads(report.render(samples.diagnosis(unprofiled_ms=0.7)))["steps"]
    assert sum(steps["unprofiled_breakdown_ms"].values()) == pytest.approx(0.7, abs=1e-5)
    assert steps["unprofiled_breakdown_ms"]["computing"] == steps["breakdown_ms"]["computing"]


def test_the_same_input_gives_the_same_bytes() -> None:
    make = CASES["findings"]
    assert report.render(make()) == report.render(make())


def test_what_is_no_number_is_null() -> None:
    found = json.loads(report.render(CASES["findings"]()))["findings"][0]
    assert found["evidence"]["counts"] == {"launches a step": 10, "share": None}
    assert not math.isnan(found["saving"]["ms_per_step"])
    assert found["saving"]["then_ms"] == pytest.approx(0.2)


def test_damage_degrades() -> None:
    d = samples.diagnosis()
    d.trace.health.damage.append(Damage(17, "the gzip stream ends early", 2))
    health = json.loads(report.render(d))["health"]
    assert health["status"] == "degraded"
    assert health["damage"] == [
        {"offset": 17, "cause": "the gzip stream ends early", "events_lost": 2}
    ]


def test_several_paths() -> None:
    loaded = json.loads(report.render_many([samples.diagnosis()], {"bad.json": "bad.json: empty"}))
    assert set(loaded) == {"schema_version", "reports", "unreadable"}
    jsonschema.Draft202012Validator(report.schema()).validate(loaded["reports"][0])
    assert loaded["unreadable"] == [{"path": "bad.json", "error": "bad.json: empty"}]
