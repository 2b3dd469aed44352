"""Predictions beside measurements: by hand, and on the recorded rungs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tracekit.commands.ladder import command
from tracekit.replay.edits import Edits, Graphed
from tracekit.workload import verify
from tracekit.workload.rungs import RUNGS
from tracekit.workload.verify import CHANGES, POINTS, Change, Saved, Verified

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "rungs"


def ladder(**rounds: list[float] | None) -> dict[str, Any]:
    rows = [
        {"rung": key.removeprefix("r"), "ms": None if times is None else sorted(times)[0],
         "round_ms": times}
        for key, times in rounds.items()
    ]  # fmt: skip
    machine = {"gpu": "NVIDIA H200", "torch": "2.11"}
    return {"rows": rows, "settings": {"batch": 128}, "machine": machine}


def test_the_measured_saving_is_paired_by_round() -> None:
    drift = [1.0, 1.5, 2.0, 3.0, 5.0]
    found = verify.measured_saving([40 * d for d in drift], [30 * d for d in drift])
    assert found.percent == pytest.approx(25.0)
    assert (found.low, found.high) == (pytest.approx(25.0), pytest.approx(25.0))
    assert (found.ms, found.step_ms) == (pytest.approx(20.0), pytest.approx(80.0))


def test_rounds_that_one_rung_lacks_are_left_out() -> None:
    found = verify.measured_saving([10.0, 20.0, 999.0], [9.0, 18.0])
    assert found.percent == pytest.approx(10.0)
    assert found.step_ms == pytest.approx(15.0)


def test_a_slower_rung_saves_less_than_nothing() -> None:
    assert verify.measured_saving([10.0] * 3, [11.0] * 3).percent == pytest.approx(-10.0)


@pytest.mark.parametrize(
    ("predicted", "measured", "off", "within"),
    [(54.0, 60.0, -6.0, True), (15.0, 5.0, 10.0, True), (5.9, 17.2, -11.3, False)],
)
def test_off_by_points(predicted: float, measured: float, off: float, within: bool) -> None:
    both = [Saved(1.0, share, share, share, 100.0) for share in (predicted, measured)]
    row = Verified(CHANGES[0], *both, 1)
    assert row.off == pytest.approx(off)
    assert row.within is within
    assert POINTS == 10.0


def test_what_is_missing_is_not_judged() -> None:
    row = Verified(CHANGES[0], None, Saved(1.0, 1.0, 1.0, 1.0, 100.0), 0, "no recording of rung 0")
    assert row.off is row.within is None
    assert "no recording of rung 0" in verify.cells(row)


def finding(code: str, *fixes: str) -> Any:
    return SimpleNamespace(code=code, fixes=[SimpleNamespace(title=title) for title in fixes])


def test_only_findings_whose_fix_the_rung_applies() -> None:
    layout = finding("LAY001", "channels_last model and batch", "a norm that keeps channels_last")
    hidden = finding("LAY001", "a norm that keeps channels_last")
    change = Change("0", "1", ("LAY001",), "", fix="channels_last")
    assert verify.promising([finding("LCH001"), hidden, layout], change) == [layout]
    any_fix = Change("0", "1", ("LAY001",), "")
    assert verify.promising([hidden, layout], any_fix) == [hidden, layout]


def test_the_compiled_region_ends_with_the_backward() -> None:
    # One step: forward, backward, clip (launched by the main thread, so "forward"), optimizer; and
    # one kernel of no step.
    class Steps:
        gpu_step = np.array([0, 0, 0, 0, -1])

        def __len__(self) -> int:
            return 1

    analysis = SimpleNamespace(
        phases=np.array([0, 1, 0, 2, 0]),
        steps=Steps(),
        links=SimpleNamespace(gpu_launch=np.array([0, 1, 2, 3, -1])),
        trace=SimpleNamespace(table=lambda _: SimpleNamespace(ts=np.array([10, 20, 30, 40]))),
    )
    whole = Edits(graphs=(Graphed(np.arange(4)),))
    made = verify.within_region(analysis, whole)  # type: ignore[arg-type]
    assert [graph.gpu_rows.tolist() for graph in made.graphs] == [[0, 1]]


def test_every_change_is_of_two_rungs_in_order() -> None:
    keys = list(RUNGS)
    for change in CHANGES:
        assert keys.index(change.before) < keys.index(change.after)
    steps = {(change.before, change.after) for change in CHANGES}
    assert set(pairwise(keys)) <= steps


def test_on_the_recorded_rungs() -> None:
    rows = verify.verify(verify.load(ROOT / "docs" / "ladder.json"), FIXTURES)
    assert [row.change for row in rows] == list(CHANGES)
    by_name = {f"{row.change.before}-{row.change.after}": row for row in rows}
    graphs = by_name["3-4"]
    assert graphs.predicted is not None and graphs.measured is not None
    assert graphs.predicted.step_ms == pytest.approx(44.75, abs=0.01)  # the manifest's, not 94.8
    assert graphs.predicted.percent > 50
    for name in ("0-1", "1-2", "2-3", "3-4", "4-5", "3-5"):
        assert by_name[name].within, verify.text_table(rows)


def test_the_page_and_the_table(tmp_path: Path) -> None:
    copy = tmp_path / "ladder.json"
    copy.write_text((ROOT / "docs" / "ladder.json").read_text())
    done = CliRunner().invoke(
        command, ["--verify", "--ladder", str(copy), "--traces", str(FIXTURES)]
    )
    assert done.exit_code == 0, done.output
    page = (tmp_path / "predictions.md").read_text()
    for text in (page, done.stdout):
        assert "3 -> 4" in text
        assert "of 44.75 ms" in text
    assert "within 10 points of the step.**" in page
    verdicts = [
        line.split(" | ")[-1] for line in page.splitlines() if " -> " in line and "|" in line
    ]
    kept = (ROOT / "docs" / "predictions.md").read_text()
    assert verdicts == [
        line.split(" | ")[-1] for line in kept.splitlines() if " -> " in line and "|" in line
    ], "tracekit ladder --verify writes docs/predictions.md"


def test_a_rung_without_recording_says_so(tmp_path: Path) -> None:
    (tmp_path / "rung_4").mkdir()
    (tmp_path / "rung_4" / "trace.json.gz").write_bytes((FIXTURES / "rung_4.json.gz").read_bytes())
    measured = ladder(r3=[50.0, 52.0], r4=[20.0, 21.0], r5=[20.0, 20.0], r0=None)
    rows = verify.verify(measured, tmp_path)
    assert [(row.change.before, row.why) for row in rows] == [
        ("3", "no recording of rung 3"), ("4", ""), ("3", "no recording of rung 3"),
    ]  # fmt: skip
    assert rows[1].predicted is not None and rows[1].predicted.percent == 0.0
    assert "no recording of rung 3" in verify.markdown(rows, measured)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{", "is no result of a ladder"),
        ('{"rows": [{"rung": "0", "ms": 1.0}]}', "is no result of a ladder"),
    ],
)
def test_a_file_that_is_no_ladder(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "ladder.json"
    if text is not None:
        file.write_text(text)
    done = CliRunner().invoke(command, ["--verify", "--ladder", str(file)])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(ladder(r0=[2.0, 3.0], r1=[1.0, 2.0])))
    arguments = ["--verify", "--ladder", str(file), "--traces", str(tmp_path)]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert "holds no recording of a rung" in " ".join(done.output.split())


def test_a_recording_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "rung_0.json.gz").write_text("junk")
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(ladder(r0=[2.0, 3.0], r1=[1.0, 2.0])))
    arguments = ["--verify", "--ladder", str(file), "--traces", str(tmp_path)]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 3
    assert "rung_0.json.gz" in done.output
    assert not (tmp_path / "predictions.md").exists()
