"""`tracekit profile --rung`: the built-in workload recorded, and requests that cannot be met."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from tests.profiler.conftest import load, marks
from tracekit.commands.profile import command
from tracekit.profiler import rung


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments])


def record_tiny(key: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(rung, "MEASURE", 6)
    return invoke(
        "--rung", key, "--preset", "tiny", "--device", "cpu", "--batch", "2", "--seed", "3",
        "--compile-backend", "aot_eager", "--steps", "2", "-o", str(out),
    )  # fmt: skip


def check(result: Result, out: Path, key: str) -> None:
    assert result.exit_code == 0, result.output
    trace = load(out / "trace.json.gz")
    assert marks(trace) == ["ProfilerStep#2", "ProfilerStep#3"]
    manifest = trace["tracekit"]
    assert manifest["complete"]
    assert (manifest["rung"], manifest["preset"]) == (key, "tiny")
    assert (manifest["batch"], manifest["seed"], manifest["steps"]) == (2, 3, 2)
    assert len(manifest["unprofiled"]["samples_ms"]) == 6
    assert "loss" in result.stderr


def test_a_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(record_tiny("eager", tmp_path, monkeypatch), tmp_path, "eager")


@pytest.mark.slow
def test_a_compiled_rung_compiles_before_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(record_tiny("0", tmp_path, monkeypatch), tmp_path, "0")
    names = {e["name"] for e in load(tmp_path / "trace.json.gz")["traceEvents"]}
    assert not [n for n in names if "compile" in n.lower() and "dynamo" in n.lower()]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rung", "17"], "no rung '17'"),
        (["--rung", "5", "--device", "cpu"], "needs a CUDA GPU"),
        (["--rung", "0", "train.py"], "only one of them"),
        (["--rung", "0", "-m", "train"], "only one of them"),
        (["--rung", "0", "--wait", "3"], "--wait is for a script"),
        (["train.py", "--preset", "tiny"], "--preset is for --rung"),
        ([], "nothing to run"),
        (["no/such/script.py"], "no such file"),
        (["-m", "no_such_module_at_all"], "no module named"),
        (["--rung", "0", "--steps", "0"], "--steps"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    result = invoke("-o", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_cuda(tmp_path: Path) -> None:
    result = invoke("--rung", "5", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "No CUDA GPU was found" in result.stderr


def test_an_output_that_cannot_be_written_is_told_before_the_warm_up() -> None:
    result = invoke("--rung", "0", "--device", "cpu", "--preset", "tiny", "-o", "/dev/null/x")
    assert result.exit_code == 1
    assert "cannot write to /dev/null" in result.stderr


def test_data_that_cannot_be_read(tmp_path: Path) -> None:
    result = invoke(
        "--rung", "eager", "--device", "cpu", "--preset", "tiny", "-o", str(tmp_path / "out"),
        "--data", str(tmp_path / "nowhere"),
    )  # fmt: skip
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
