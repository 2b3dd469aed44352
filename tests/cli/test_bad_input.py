"""What bad input gets: one sentence naming the file and the cause, exit 3, no traceback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import Done, tracekit
from tests.report.samples import host_bound

BAD: dict[str, Callable[[Path], object]] = {
    "missing.json": lambda p: None,
    "directory": lambda p: p.mkdir(),
    "empty.json": lambda p: p.write_bytes(b""),
    "blank.json": lambda p: p.write_bytes(b" \n\n "),
    "empty.json.gz": lambda p: p.write_bytes(gzip.compress(b"")),
    "zero-bytes.json.gz": lambda p: p.write_bytes(b""),
    "no-events.json": lambda p: p.write_bytes(b'{"traceEvents": []}'),
    "not-a-trace.json": lambda p: p.write_bytes(json.dumps({"loss": [1, 2]}).encode()),
    "memory-timeline.json": lambda p: p.write_bytes(b"[[0, 1, 2], [[1, 2], [3, 4]]]"),
    "junk.json": lambda p: p.write_bytes(bytes(range(256)) * 40),
    "text.json": lambda p: p.write_bytes(b"hello, this is a log\n" * 50),
    "junk.json.gz": lambda p: p.write_bytes(b"\x1f\x8b" + bytes(range(256)) * 4),
    "junk.json.zst": lambda p: p.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(range(256)) * 4),
    "only-numbers.json": lambda p: p.write_bytes(b"[1, 2, 3]"),
    "null.json": lambda p: p.write_bytes(b"null"),
}


def refused(done: Done, name: str) -> None:
    assert done.code == 3, done
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith("tracekit: ")
    assert name in done.err
    assert done.err.count("\n") == 1
    assert done.err.rstrip().endswith(".")


@pytest.mark.parametrize("name", BAD)
def test_refused_with_one_sentence(name: str, tmp_path: Path) -> None:
    BAD[name](tmp_path / name)
    refused(tracekit("diagnose", name, cwd=tmp_path), name)


def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "locked.json"
    path.write_bytes(host_bound())
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        refused(tracekit("diagnose", path), "locked.json")
    else:
        pytest.skip("this user may read everything")


def test_standard_input_that_is_no_trace() -> None:
    refused(tracekit("diagnose", "-", stdin=b"no trace"), "<stdin>")
    refused(tracekit("diagnose", "-", stdin=b""), "<stdin>")


def test_a_name_with_escapes_is_harmless(tmp_path: Path) -> None:
    done = tracekit("diagnose", "mis\x1b[2Jsing.json", cwd=tmp_path)
    assert done.code == 3
    assert "\x1b" not in done.err
    assert r"mis\x1b[2Jsing.json" in done.err


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_cut_trace_is_read_as_far_as_it_goes(cut: float, suffix: str, tmp_path: Path) -> None:
    text = host_bound(steps=40)
    whole = gzip.compress(text, 1) if suffix == ".json.gz" else text
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[: int(len(whole) * cut)])
    done = tracekit("diagnose", path, "--format", "json")
    assert done.code == 0, done.err
    health = json.loads(done.out)["health"]
    assert health["status"] == "degraded"
    assert health["damage"]
    assert "degraded" in tracekit("diagnose", path).out


def test_one_bad_path_among_several(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(host_bound())
    (tmp_path / "bad.json").write_bytes(b"")
    done = tracekit("diagnose", "bad.json", "good.json", "--format", "json", cwd=tmp_path)
    assert done.code == 3
    assert done.err.count("\n") == 1
    loaded = json.loads(done.out)
    assert [r["trace"]["path"] for r in loaded["reports"]] == ["good.json"]
    assert [u["path"] for u in loaded["unreadable"]] == ["bad.json"]
