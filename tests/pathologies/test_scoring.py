"""Scores of hand-made numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.pathologies import score as command
from benchmarks.pathologies import score_report
from benchmarks.pathologies.scoring import Limits, Said, Total, said, score
from benchmarks.pathologies.truths import Interval, Pair, Truths, from_json, trace_name


def pair(
    saving: float, expected: tuple[str, ...] = ("SYN001",), *, twin_tests: tuple[str, ...] = ()
) -> Pair:
    step = Interval(10.0, 9.9, 10.1)
    return Pair(
        name="p",
        fault="a fault",
        expected=expected,
        reason="Because.",
        variants=("faulty", "healthy") if expected else ("healthy", "twin"),
        twin_tests=twin_tests,
        first=step,
        second=step,
        saving_ms=Interval(saving / 10, saving / 10, saving / 10),
        saving_percent=Interval(saving, saving - 1, saving + 1),
    )


def says(code: str, percent: float, rank: int = 1) -> Said:
    severity = "high" if percent >= 10 else "medium" if percent >= 3 else "note"
    return Said(code, severity, rank, percent, percent - 2, percent + 2)


def test_the_first_finding_with_an_expected_code_counts() -> None:
    findings = [says("LCH001", 50), says("SYN001", 28, 2), says("SYN001", 5, 3)]
    row = score(pair(31), findings, [])
    assert row.found == findings[1]
    assert row.difference == pytest.approx(-3)
    assert row.within
    assert row.others == (findings[0],)


def test_any_of_several_expected_codes_will_do() -> None:
    row = score(pair(31, ("SYN001", "FUS003")), [says("FUS003", 30)], [])
    assert row.found is not None
    assert row.found.code == "FUS003"


def test_too_far_off_either_way() -> None:
    assert not score(pair(31), [says("SYN001", 20)], []).within
    assert not score(pair(31), [says("SYN001", 42)], []).within
    assert score(pair(31), [says("SYN001", 42)], [], points=12).within


def test_nothing_found_promises_nothing() -> None:
    missed = score(pair(31), [], [])
    assert not missed.within
    assert missed.must_find
    cheap = score(pair(0.4), [], [])
    assert cheap.within
    assert not cheap.must_find


def test_a_cheap_fault_must_not_be_loud() -> None:
    assert score(pair(0.4), [says("SYN001", 5)], []).overstated
    assert not score(pair(0.4), [says("SYN001", 0.8)], []).overstated
    assert not score(pair(5), [says("SYN001", 5)], []).overstated


def test_a_change_that_slows_the_step_counts_as_no_gain() -> None:
    row = score(pair(-20), [], [])
    assert row.gain == 0
    assert row.within


def test_a_fault_that_stays_in_the_healthy_twin_is_shown() -> None:
    row = score(pair(31), [says("SYN001", 30)], [says("SYN001", 12), says("LCH001", 40)])
    assert [each.code for each in row.left] == ["SYN001"]


def test_on_a_control_every_loud_finding_is_a_false_alarm() -> None:
    row = score(pair(0.2, ()), [says("SYN001", 5), says("FUS001", 1)], [says("LAY001", 4)])
    assert row.false_alarms == ("healthy: SYN001 5 %", "twin: LAY001 4 %")


def test_unless_its_twin_bears_it_out() -> None:
    gains = pair(20, (), twin_tests=("LCH001",))
    assert not score(gains, [says("LCH001", 24)], []).false_alarms
    assert score(gains, [says("LCH001", 40)], []).false_alarms
    assert score(gains, [says("SYN001", 24)], []).false_alarms
    assert score(gains, [], [says("LCH001", 24)]).false_alarms
    nothing = pair(0.5, (), twin_tests=("LCH001",))
    assert score(nothing, [says("LCH001", 4)], []).false_alarms


def test_the_total_and_its_limits() -> None:
    rows = (
        score(pair(31), [says("SYN001", 30)], []),
        score(pair(31), [], []),
        score(pair(0.1, ()), [], []),
    )
    total = Total(rows, Limits(within=0.5, found=0.5))
    assert (total.within, total.found, total.false_alarms) == (0.5, 0.5, 0)
    assert total.misses == []
    assert len(Total(rows).misses) == 2
    assert "1 of 2 predictions" in score_report.summary(total)


def test_a_pair_without_numbers_is_a_miss() -> None:
    broken = Pair("p", "f", ("SYN001",), "r.", ("faulty", "healthy"), (), None, None, None, None,
                  "measuring: out of memory")  # fmt: skip
    total = Total((score(broken, [], []),), Limits(within=0, found=0))
    assert total.misses == ["not scored: p"]
    assert "out of memory" in score_report.text(total)


@dataclass(frozen=True)
class FakeSaving:
    percent_of_step: float = 25.0
    low: float = 1.0
    high: float = 3.0
    step_ms: float = 10.0


@dataclass(frozen=True)
class FakeFinding:
    code: str = "SYN001"
    severity: str = "high"
    saving: FakeSaving = FakeSaving()


def test_a_findings_range_becomes_percent_of_its_step() -> None:
    (one,) = said([FakeFinding()])
    assert (one.rank, one.percent, one.low, one.high) == (1, 25.0, 10.0, 30.0)


def test_reports_hold_the_same_numbers() -> None:
    total = Total((score(pair(31), [says("SYN001", 30)], []), score(pair(0, ()), [], [])))
    truths = Truths({"device": "GPU", "versions": {"torch": "2.11"}}, "record it", ())
    page = score_report.markdown(total, truths, 10.0)
    assert "GPU, torch 2.11" in page
    assert "record it" in page
    assert "| p | SYN001 | 10.000 | 31.0 [30.0, 32.0] | 30.0 [28.0, 32.0] | -1.0 |" in page
    answer = json.loads(json.dumps(score_report.as_json(total, truths)))
    assert answer["pairs"][0]["difference"] == pytest.approx(-1)
    assert answer["pairs"][1]["within"] is None


def test_truths_survive_the_file() -> None:
    truths = Truths({"device": "GPU"}, "c", (pair(31), pair(0, (), twin_tests=("LCH001",))))
    assert from_json(truths.to_json()) == truths
    with pytest.raises(ValueError, match="schema"):
        from_json('{"schema_version": 99}')


def test_the_command_fails_below_its_limits(tmp_path: Path) -> None:
    truths = Truths({"device": "GPU"}, "c", (pair(31),))
    (tmp_path / "truths.json").write_text(truths.to_json())
    (tmp_path / trace_name("p", "faulty")).write_bytes(b"no trace")
    out, page = tmp_path / "score.json", tmp_path / "page.md"
    answer = CliRunner().invoke(
        command.main, [str(tmp_path), "--json", str(out), "--markdown", str(page)]
    )
    assert answer.exit_code == 1
    assert "not scored: p" in answer.output
    assert json.loads(out.read_text())["pairs"][0]["error"]
    assert page.exists()
    assert CliRunner().invoke(command.main, [str(tmp_path / "none")]).exit_code == 2
    (tmp_path / "truths.json").unlink()
    assert CliRunner().invoke(command.main, [str(tmp_path)]).exit_code == 2
