"""The ladder: its statistics by hand, and a small one from end to end."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tracekit.commands.ladder import command
from tracekit.workload import ladder, ladder_report
from tracekit.workload.ladder_statistics import Interval, median_interval, speedup, union_ns
from tracekit.workload.train_step import Trainer

SMALL = ["--preset", "tiny", "--device", "cpu", "--data", "synthetic", "--batch", "2",
         "--steps", "1", "--rounds", "3", "--compile-backend", "aot_eager"]  # fmt: skip


def test_median_and_interval_by_hand() -> None:
    assert median_interval([5.0]) == Interval(5.0, 5.0, 5.0)
    assert median_interval([4.0, 6.0]) == Interval(5.0, 4.0, 6.0)
    assert median_interval([2.0] * 9) == Interval(2.0, 2.0, 2.0)
    found = median_interval([1.0, 2.0, 3.0])
    # A resample of three has its median at an end with probability 7/27, far above 2.5 %.
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert median_interval([1.0, 2.0, 3.0]) == found
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_a_drifting_machine_divides_out_of_the_speedup() -> None:
    drift = [1.0, 1.5, 2.0, 3.0, 5.0]
    found = speedup([30 * d for d in drift], [20 * d for d in drift])
    assert found.median == pytest.approx(1.5)
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5)
    assert found.verdict == "1.50x [1.50, 1.50]"
    with pytest.raises(ValueError, match="same rounds"):
        speedup([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(1.01, 0.99, 1.03), "no measurable gain"),
        (Interval(1.0, 1.0, 1.0), "no measurable gain"),
        (Interval(2.94, 2.9, 3.0), "2.94x [2.90, 3.00]"),
        (Interval(0.9, 0.85, 0.95), "0.90x [0.85, 0.95] slower"),
    ],
)
def test_verdicts(interval: Interval, verdict: str) -> None:
    assert interval.verdict == verdict


def test_union_counts_overlap_once() -> None:
    assert union_ns([], []) == 0
    assert union_ns([0, 5, 20], [10, 12, 25]) == 17
    assert union_ns([0, 2, 30, 10], [20, 4, 31, 20]) == 21


def test_gpu_work_of_a_trace(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"cat": "kernel", "ts": 10.0, "dur": 100.0},
        {"cat": "gpu_memcpy", "ts": 60.0, "dur": 110.0},  # 60 beside the kernel
        {"cat": "gpu_memset", "ts": 300.0, "dur": 140.0},
        {"cat": "cpu_op", "ts": 0.0, "dur": 9999.0},
        {"ph": "M"},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert ladder.gpu_work_ms(path) == pytest.approx(0.3 / ladder.TRACED_STEPS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("ladder")
    output, traces = str(folder / "ladder.json"), str(folder / "traces")
    arguments = ["--rungs", "eager,0", *SMALL, "-o", output, "--traces", traces]
    return folder, CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_end_to_end(finished: tuple[Path, Any]) -> None:
    folder, done = finished
    assert done.exit_code == 0, done.output
    result = json.loads((folder / "ladder.json").read_text())
    assert result["schema_version"] == 1
    assert result["complete"]
    assert result["settings"]["images"].startswith("512 synthetic colour fields")
    eager, compiled = result["rows"]
    assert [eager["rung"], compiled["rung"]] == ["eager", "0"]
    for row in (eager, compiled):
        assert {"rung", "name", "batch", "ms", "low", "high", "gpu"} <= set(row)
        assert row["low"] <= row["ms"] <= row["high"]
        assert len(row["round_ms"]) == 3
        assert row["batch"] == 2
        assert row["images_per_s"] == pytest.approx(2000 / row["ms"])
        assert row["tflops"] == pytest.approx(row["flops_per_step"] / row["ms"] / 1e9)
        assert row["mfu_percent"] is row["gpu_busy_percent"] is row["gpu"] is None
        assert 0 < row["loss"] < 2
    assert eager["steps_taken"] == compiled["steps_taken"]
    assert eager["speedup_over_previous"] is None
    assert compiled["speedup_over_base"] is None
    pair = [a / b for a, b in zip(eager["round_ms"], compiled["round_ms"], strict=True)]
    assert compiled["speedup_over_previous"]["median"] == pytest.approx(sorted(pair)[1])
    assert compiled["findings_before"] == eager["findings_after"]
    names = sorted(path.name for path in (folder / "traces").iterdir())
    assert names == ["rung_0.json.gz", "rung_eager.json.gz"]


def test_page_and_table_name_every_rung(finished: tuple[Path, Any]) -> None:
    folder, done = finished
    page = (folder / "ladder.md").read_text()
    for text in (page, done.stdout):
        assert "eager + bf16 autocast" in text
        assert "torch.compile + bf16 autocast" in text
        assert "over rung 0" in text
    assert "tracekit ladder" in page
    assert "3 rounds of 1 steps" in page


def test_render_writes_the_page_again_and_runs_nothing(
    finished: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = finished
    copy = tmp_path / "ladder.json"
    copy.write_text((folder / "ladder.json").read_text())
    monkeypatch.setattr(ladder, "run_ladder", None)
    done = CliRunner().invoke(command, ["--render", str(copy)], catch_exceptions=False)
    assert done.exit_code == 0
    assert copy.with_suffix(".md").read_text() == (folder / "ladder.md").read_text()
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert not copy.with_suffix(".png").exists()
    else:
        assert copy.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


def test_render_refuses_other_files(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for content in ("{}", "[1]", "no json"):
        other.write_text(content)
        done = CliRunner().invoke(command, ["--render", str(other)])
        assert done.exit_code == 2
        assert "no result of a ladder" in done.output


def test_columns_of_the_table_are_aligned(finished: tuple[Path, Any]) -> None:
    result = json.loads((finished[0] / "ladder.json").read_text())
    result["rows"].append({"rung": "1", "name": "a name", "ms": None, "error": "A very long " * 9})
    machine, titles, eager, compiled, failed = ladder_report.text_table(result).splitlines()
    assert machine.startswith("CPU (")
    end = titles.index("ms a step") + len("ms a step")
    assert eager[:end].endswith(f"{result['rows'][0]['ms']:.2f}")
    assert compiled[:end].endswith(f"{result['rows'][1]['ms']:.2f}")
    assert failed.startswith("1      a name: A very long A")


def test_one_failing_rung_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.warm_up

    def fail_eager(self: Trainer, progress: Any = None) -> None:
        if self.rung.key == "eager":
            raise RuntimeError("CUDA out of memory.\nand more")
        self.rung = replace(self.rung, compile=None)
        whole(self, progress)

    monkeypatch.setattr(Trainer, "warm_up", fail_eager)
    output = tmp_path / "ladder.json"
    arguments = ["--rungs", "eager,0", *SMALL, "--rounds", "1", "-o", str(output)]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 1
    eager, compiled = json.loads(output.read_text())["rows"]
    assert eager["ms"] is None
    assert eager["error"] == "RuntimeError: CUDA out of memory."
    assert compiled["ms"] > 0
    assert "eager + bf16 autocast: RuntimeError" in output.with_suffix(".md").read_text()


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = ladder.time_block

    def impatient(climb: ladder.Climb, steps: int) -> None:
        if len(climb.round_ms) == 2:
            raise KeyboardInterrupt
        timed(climb, steps)

    monkeypatch.setattr(ladder, "time_block", impatient)
    output = tmp_path / "ladder.json"
    done = CliRunner().invoke(command, ["--rungs", "eager", *SMALL, "-o", str(output)])
    assert done.exit_code == 130
    result = json.loads(output.read_text())
    assert not result["complete"]
    assert len(result["rows"][0]["round_ms"]) == 2
    assert ", interrupted." in output.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rungs", "9"], 2, "There is no rung '9'"),
        (["--rungs", "0-5"], 2, "Rung 4 (reduce-overhead over forward_batch) needs a CUDA GPU"),
        (["--rungs", "eager", "--data", "/nowhere"], 1, "no data set at /nowhere"),
    ],
)
def test_bad_input(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    output = tmp_path / "ladder.json"
    done = CliRunner().invoke(command, [*SMALL, *arguments, "-o", str(output)])
    assert done.exit_code == code
    assert message in " ".join(done.output.split())
    assert not output.exists()
