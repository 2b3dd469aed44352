"""What every command prints: exit code, stdout, stderr, kept in `snapshots/`.

After a change that is meant: TRACEKIT_UPDATE_SNAPSHOTS=1 pytest tests/cli/test_snapshots.py, then
read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.shell import tracekit
from tests.report.samples import cpu_only, host_bound
from tracekit import demo
from tracekit.report.style import columns

KEPT = Path(__file__).parent / "snapshots"

COMMANDS: dict[str, list[str]] = {
    "help": ["--help"],
    "version": ["--version"],
    "no-such-command": ["diagnoze"],
    "a-file-for-a-command": ["host-bound.json"],
    "diagnose-help": ["diagnose", "--help"],
    "diagnose-nothing": ["diagnose"],
    "diagnose-demo": ["diagnose", "demo.json.gz", "--unprofiled-ms", "59"],
    "diagnose-demo-select": ["diagnose", "demo.json.gz", "--select", "LAY"],
    "diagnose-host-bound": ["diagnose", "host-bound.json"],
    "diagnose-cpu-only": ["diagnose", "cpu-only.json"],
    "diagnose-json": ["diagnose", "host-bound.json", "--format", "json"],
    "diagnose-markdown": ["diagnose", "host-bound.json", "--format", "markdown"],
    "diagnose-several": ["diagnose", "host-bound.json", "missing.json", "cpu-only.json"],
    "diagnose-directory": ["diagnose", "traces"],
    "diagnose-fail-on": ["diagnose", "host-bound.json", "--fail-on", "high", "--select", "LCH"],
    "diagnose-steps": ["diagnose", "host-bound.json", "--steps", "1:2"],
    "diagnose-no-such-step": ["diagnose", "host-bound.json", "--steps", "7:9"],
    "diagnose-bad-steps": ["diagnose", "host-bound.json", "--steps", "5:2"],
    "diagnose-bad-ms": ["diagnose", "host-bound.json", "--unprofiled-ms", "nan"],
    "diagnose-bad-code": ["diagnose", "host-bound.json", "--select", "LAY01"],
    "diagnose-bad-output": ["diagnose", "host-bound.json", "-o", "nowhere/report.txt"],
    "explain": ["explain"],
    "explain-help": ["explain", "--help"],
    "explain-LCH001": ["explain", "lch001"],
    "explain-family": ["explain", "LAY"],
    "explain-typo": ["explain", "LYA001"],
    "demo-help": ["demo", "--help"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few traces."""
    where = tmp_path_factory.mktemp("traces")
    (where / "host-bound.json").write_bytes(host_bound())
    (where / "cpu-only.json").write_bytes(cpu_only())
    (where / "demo.json.gz").write_bytes(demo.trace_path().read_bytes())
    (where / "traces").mkdir()
    (where / "traces" / "rank-10.json").write_bytes(cpu_only())
    (where / "traces" / "rank-2.json").write_bytes(cpu_only())
    return where


@pytest.mark.parametrize("name", COMMANDS)
def test_snapshot(name: str, folder: Path) -> None:
    done = tracekit(*COMMANDS[name], cwd=folder)
    shown = "\n".join(
        [
            f"$ tracekit {' '.join(COMMANDS[name])}",
            f"exit {done.code}",
            "--- stdout",
            done.out,
            "--- stderr",
            done.err,
        ]
    )
    if COMMANDS[name][0] == "diagnose" and "--format" not in COMMANDS[name]:
        assert all(columns(line) <= 100 for line in done.out.splitlines())
    kept = KEPT / f"{name}.txt"
    if os.environ.get("TRACEKIT_UPDATE_SNAPSHOTS"):
        KEPT.mkdir(exist_ok=True)
        kept.write_text(shown, "utf-8")
    assert shown == kept.read_text("utf-8")


def test_no_snapshot_is_left_over() -> None:
    assert {p.stem for p in KEPT.glob("*.txt")} == set(COMMANDS)
