"""Measuring in turns, and the record command, on the CPU."""

from __future__ import annotations

import gzip
import itertools
import json
import tarfile
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import tracekit
from benchmarks.pathologies import record
from benchmarks.pathologies.case import Case, Program
from benchmarks.pathologies.interleave import MOST_STEPS, Timed, block_ms, interleaved, steps_for
from benchmarks.pathologies.truths import FILE, from_json

ANSWER = torch.zeros(())


def test_a_block_is_timed_between_its_steps() -> None:
    calls = itertools.count()
    case = Case(lambda: ANSWER + next(calls))
    ticks = iter([10.0, 10.5])
    assert block_ms(case, 5, lambda: next(ticks)) == pytest.approx(100.0)


def test_steps_that_fill_a_block() -> None:
    assert steps_for(2.0, 0.08) == 40
    assert steps_for(500.0, 0.08) == 3
    assert steps_for(0.0, 0.08) == MOST_STEPS


def test_rounds_take_turns() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def step() -> torch.Tensor:
            if not order or order[-1] != name:
                order.append(name)
            return ANSWER

        return Case(step)

    timed = interleaved(case("a"), case("b"), rounds=3, seconds=0.0)
    # the first a and b find the number of steps
    assert "".join(order) == "ab" + "ab" + "a" + "b"
    assert len(timed.first) == len(timed.second) == 3


def test_savings_are_paired_by_round() -> None:
    timed = Timed([10.0, 20.0, 40.0], [9.0, 18.0, 36.0])
    assert timed.saving.median == pytest.approx(2.0)
    assert timed.saving_percent.median == pytest.approx(10.0)
    assert timed.saving_percent.low == pytest.approx(10.0)


def test_the_command_measures_records_and_packs(tmp_path: Path) -> None:
    out, tar = tmp_path / "corpus", tmp_path / "corpus.tar"
    answer = CliRunner().invoke(
        record.main,
        ["-o", str(out), "--only", "separate_sums", "--device", "cpu", "--rounds", "3",
         "--block-ms", "1", "--tar", str(tar)],
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    truths = from_json((out / FILE).read_text("utf-8"))
    (pair,) = truths.pairs
    assert pair.first is not None
    assert pair.second is not None
    assert pair.saving_percent is not None
    assert pair.saving_percent.low <= pair.saving_percent.median <= pair.saving_percent.high
    names = {"separate_sums.faulty.json.gz", "separate_sums.healthy.json.gz", FILE}
    assert {path.name for path in out.iterdir()} == names
    with tarfile.open(tar) as packed:
        assert set(packed.getnames()) == names
    diagnosis = tracekit.diagnose(out / "separate_sums.faulty.json.gz")
    assert len(diagnosis.steps) == 1
    assert diagnosis.analysis.unprofiled_ms == pytest.approx(pair.first.median, abs=1e-4)


def test_a_pair_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    def broken(variant: str, device: torch.device) -> Case:
        raise RuntimeError("no such thing\nand more")

    def works(variant: str, device: torch.device) -> Case:
        return Case(lambda: torch.ones(4).sum())

    programs = [
        Program("broken", "f", ("SYN001",), "r.", broken),
        Program("works", "f", ("SYN001",), "r.", works),
    ]
    settings = record.Settings(tmp_path, torch.device("cpu"), rounds=1, block_seconds=0.001)
    found = record.run(programs, settings)
    assert [pair.error for pair in found.pairs] == [
        "measuring: RuntimeError: no such thing",
        None,
    ]
    assert (tmp_path / "works.healthy.json.gz").exists()
    assert from_json((tmp_path / FILE).read_text("utf-8")) == found


def test_what_the_time_does_not_allow_is_left_out(tmp_path: Path) -> None:
    program = Program("late", "f", ("SYN001",), "r.", lambda variant, device: Case(lambda: ANSWER))
    settings = record.Settings(tmp_path, torch.device("cpu"), seconds=-1.0)
    (pair,) = record.run([program], settings).pairs
    assert pair.error == "left out: the time was up"


def test_names_of_machine_and_user_are_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    text = {"host_name": "box7", "kernel_file": "/tmp/torchinductor_someone/dq/cdq.py"}
    path.write_bytes(gzip.compress(json.dumps(text).encode()))
    record.anonymise(path)
    assert json.loads(gzip.decompress(path.read_bytes())) == {
        "host_name": "host",
        "kernel_file": "torchinductor/dq/cdq.py",
    }


def test_without_a_gpu_the_command_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = CliRunner().invoke(record.main, ["-o", str(tmp_path)])
    assert answer.exit_code == 2
    assert "no CUDA GPU" in answer.output
    assert CliRunner().invoke(record.main, ["-o", str(tmp_path), "--only", "x"]).exit_code == 2
