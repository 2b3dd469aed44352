"""Contracts of the command line: where output goes, exit status, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, tracekit
from tests.report.samples import NASTY, host_bound
from tracekit import cli, demo


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(host_bound())
    return path


def test_stdin_equals_file(trace: Path) -> None:
    from_file = json.loads(tracekit("diagnose", trace, "--format", "json").out)
    done = tracekit("diagnose", "-", "--format", "json", stdin=trace.read_bytes())
    from_stdin = json.loads(done.out)
    assert from_stdin["trace"].pop("path") == "<stdin>"
    from_file["trace"].pop("path")
    assert from_stdin == from_file


def test_stdin_only_once() -> None:
    done = tracekit("diagnose", "-", "-", stdin=b"{}")
    assert done.code == 2
    assert "only once" in done.err


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_output_file_equals_stdout(form: str, trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "report"
    done = tracekit("diagnose", trace, "--format", form, "-o", target)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert target.read_text("utf-8") == tracekit("diagnose", trace, "--format", form).out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report", "trace.json"]


def test_output_replaces_and_keeps_the_mode(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("old")
    target.chmod(0o600)
    assert tracekit("diagnose", trace, "-o", target).code == 0
    assert target.read_text("utf-8") != "old"
    assert target.stat().st_mode & 0o777 == 0o600


def test_failure_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("old")
    assert tracekit("diagnose", tmp_path / "missing.json", "-o", target).code == 3
    assert target.read_text() == "old"


def test_output_to_a_directory_is_refused_before_reading(tmp_path: Path) -> None:
    done = tracekit("diagnose", tmp_path / "missing.json", "-o", tmp_path)
    assert done.code == 2
    assert "it is a directory" in done.err


def test_colour_only_when_asked_in_a_pipe(trace: Path) -> None:
    plain = tracekit("diagnose", trace).out
    assert "\x1b" not in plain
    assert "\x1b[" in tracekit("diagnose", trace, "--color", "always").out
    assert tracekit("diagnose", trace, "--color", "auto", NO_COLOR="1").out == plain


def test_names_from_the_trace_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    path.write_bytes(host_bound(NASTY, device=NASTY))
    for form in ("text", "json", "markdown"):
        done = tracekit("diagnose", path, "--format", form)
        assert done.code == 0
        assert not set(done.out) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "[red]kernel[/red]" in tracekit("diagnose", path).out


def test_output_in_an_encoding_that_lacks_characters(trace: Path) -> None:
    done = tracekit("diagnose", trace, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert r"\xb7" in done.out


def test_fail_on(trace: Path) -> None:
    assert tracekit("diagnose", trace, "--fail-on", "low", "--select", "LCH").code == 1
    assert tracekit("diagnose", trace, "--fail-on", "low", "--select", "LAY").code == 0


def test_unreadable_outranks_fail_on(trace: Path) -> None:
    assert tracekit("diagnose", trace, "missing.json", "--fail-on", "low").code == 3


def test_demo_is_diagnose_of_the_bundled_trace() -> None:
    path = tracekit("demo", "--path").out.strip()
    assert Path(path) == demo.trace_path()
    by_hand = tracekit("diagnose", path, "--unprofiled-ms", str(demo.UNPROFILED_MS))
    assert tracekit("demo").out == by_hand.out


def test_a_closed_pipe_is_silent() -> None:
    for command in ("demo --format json", "demo", "explain LCH001", "--help"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m tracekit {command} | true"],
            capture_output=True,
            cwd=ROOT,
        )
        assert done.stderr == b"", command


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupt(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "tracekit", "diagnose", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    time.sleep(1.5)  # it waits for standard input
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_a_missing_optional_package_gets_the_pip_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(name: str) -> object:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(cli, "import_module", lacking)
    assert cli.run(["profile"]) == 2
    assert "pip install 'torch-tracekit[workload]'" in capsys.readouterr().err


def test_a_fault_of_ours_is_70_and_never_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> object:
        raise RuntimeError("boom")

    monkeypatch.setattr(cli, "import_module", broken)
    assert cli.run(["demo"]) == 70
    assert "This is a fault in tracekit" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_loads_and_agrees_with_the_help(name: str) -> None:
    import click

    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    assert command.get_short_help_str(200).rstrip(".") == cli.COMMANDS[name][1].rstrip(".")


def test_progress_only_on_a_terminal_and_for_large_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tracekit.commands.progress import Progress

    Progress("a.json")(50_000_000, 100_000_000)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = Progress("a\x1b.json")
    bar(1_000_000, 2_000_000)
    assert capsys.readouterr().err == ""
    bar(50_000_000, 100_000_000)
    bar.close()
    err = capsys.readouterr().err
    assert r"reading a\x1b.json [############            ]  50 %" in err
    assert err.endswith("\r\x1b[K")


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """`line` in bash, where `$T` is tracekit."""
    environment = {**os.environ, "T": f"{sys.executable} -m tracekit", "PYTHONWARNINGS": "error"}
    return subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, env=environment)


@pytest.mark.parametrize("line", ["$T demo >&-", "$T demo 2>&-", "$T demo <&-", "$T demo >&- 2>&-"])
def test_closed_streams_are_nowhere(line: str) -> None:
    done = shell(line)
    assert done.returncode == 0
    assert done.stderr == b""


def test_a_closed_standard_input_holds_no_trace() -> None:
    done = shell("$T diagnose - <&-")
    assert done.returncode == 3
    assert done.stderr.startswith(b"tracekit: <stdin>: is empty")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout() -> None:
    done = shell("$T demo > /dev/full")
    assert done.returncode == 2
    assert b"Cannot write to standard output: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"ignored" not in done.stderr


def test_the_result_never_replaces_its_trace(trace: Path) -> None:
    before = trace.read_bytes()
    done = tracekit("diagnose", trace, "-o", trace)
    assert done.code == 2
    assert "it is one of the traces" in done.err
    assert trace.read_bytes() == before
    assert tracekit("diagnose", trace, "-o", "").code == 2
