"""Destinations, manifests and the rewritten file, with everything that can go wrong in them."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from tests.profiler.conftest import load
from tracekit.profiler import export
from tracekit.profiler.destination import NEEDED_BYTES, Destination, prepare, resolve
from tracekit.profiler.environment import Rank, _cudnn
from tracekit.profiler.errors import RecordError
from tracekit.profiler.manifest import About, Manifest
from tracekit.profiler.plan import Options
from tracekit.profiler.session import profile

EVIL = ["train.py", 'say "hi"', "C:\\data\\new", "naïve Ünïcode 日本", "tab\tnewline\n", "\udcff"]
SHOWN = [*EVIL[:-1], r"\udcff"]
"""A byte that is not UTF-8 stands as text: strict readers refuse it as a lone surrogate."""


def manifest(**changed: Any) -> Manifest:
    fields: dict[str, Any] = {
        "complete": True, "steps": 1, "steps_asked": 1, "partial_step": False,
        "trace": "t.json", "unprofiled": None, "about": About(command=EVIL), "versions": {},
        "gpu": None, "rank": 0, "world_size": 1, "options": Options(), "phases": {},
    }  # fmt: skip
    return Manifest(**{**fields, **changed})


def write(target: Path, text: str | bytes, **options: Any) -> dict[str, Any]:
    data = text.encode() if isinstance(text, str) else text
    beside = target.with_name("manifest.json")
    export.write(
        Destination(target, beside), manifest(), lambda p: Path(p).write_bytes(data), **options
    )
    return load(target)


def kineto(events: int = 1, name: str = "op") -> str:
    rows = ",\n".join(f'{{"ph": "X", "name": "{name}", "ts": {i}}}' for i in range(events))
    return f' {{\n "schemaVersion": 1,\n "traceEvents": [{rows}],"traceName": "/tmp/x y.json" }}'


def test_any_command_line_survives_in_the_file_and_beside_it(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.json.gz", kineto())
    assert trace["tracekit"]["command"] == SHOWN
    assert json.loads((tmp_path / "manifest.json").read_text()) == trace["tracekit"]
    assert list(trace) == ["tracekit", "schemaVersion", "traceEvents", "traceName"]
    assert trace["traceName"] == "t.json.gz"


def test_the_real_profiler_with_an_evil_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/" + EVIL[0], *EVIL[1:]])
    with profile(tmp_path / "a 'quoted\" name.json", wait=0, measure=1, steps=1, quiet=True) as p:
        for _ in range(3):
            p.step()
    assert p.recording is not None
    trace = load(p.recording.destination.trace)
    assert trace["tracekit"]["command"] == SHOWN
    assert trace["traceName"] == "a 'quoted\" name.json"


@pytest.mark.parametrize("events", [0, 1, 400, 40_000])
def test_files_of_every_size_stay_what_they_were(tmp_path: Path, events: int) -> None:
    text = kineto(events)
    trace = write(tmp_path / "t.json", text)
    del trace["tracekit"]
    assert trace == {**json.loads(text), "traceName": "t.json"}


@pytest.mark.parametrize("shift", range(0, 40, 3))
def test_an_unfinished_mark_is_renamed_wherever_a_chunk_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    monkeypatch.setattr(export, "CHUNK", 64)
    monkeypatch.setattr(export, "TAIL", 40)
    text = kineto(2, "ProfilerStep#1").replace("{", "{" + " " * shift, 1)
    text = text.replace("ProfilerStep#1", "ProfilerStep#12", 1)
    trace = write(tmp_path / "t.json", text, unfinished=1)
    names = [e["name"] for e in trace["traceEvents"]]
    assert names == ["ProfilerStep#12", "Interrupted step#1"]


@pytest.mark.parametrize("cut", [5, 40, 200, 1])
def test_a_file_the_profiler_did_not_finish_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / "t.json").write_text("what was there before")
    with pytest.raises(RecordError, match="could not write the whole trace"):
        write(tmp_path / "t.json", kineto(20)[:-cut])
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
    assert (tmp_path / "t.json").read_text() == "what was there before"


@pytest.mark.parametrize("text", ["", "[1]", "nonsense {"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecordError, match="exported no trace"):
        write(tmp_path / "t.json", text)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: IO[bytes], data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(gzip.GzipFile, "write", full)
    with pytest.raises(RecordError, match="no space left on device"):
        write(tmp_path / "t.json.gz", kineto())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_refused_up_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=NEEDED_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RecordError, match="MiB free"), profile(tmp_path):
        pytest.fail("the program must not start")


@pytest.mark.parametrize("out", ["/dev/full", "/dev/null/x", "/proc/nowhere"])
def test_what_is_no_directory_is_refused_up_front(out: str) -> None:
    with pytest.raises(RecordError, match="cannot write to"):
        prepare(resolve(out, Rank(0, 1)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused_up_front(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RecordError, match="permission denied"):
        prepare(resolve(tmp_path / "new", Rank(0, 1)))


@pytest.mark.parametrize(
    ("out", "rank", "trace", "beside"),
    [
        ("d", Rank(0, 1), "d/trace.json.gz", "d/manifest.json"),
        ("d", Rank(3, 8), "d/trace-rank3.json.gz", "d/manifest-rank3.json"),
        ("d/x.json.gz", Rank(0, 1), "d/x.json.gz", "d/x.manifest.json"),
        ("d/x.json", Rank(1, 2), "d/x-rank1.json", "d/x-rank1.manifest.json"),
        ("v1.2", Rank(0, 1), "v1.2/trace.json.gz", "v1.2/manifest.json"),
    ],
)
def test_names(out: str, rank: Rank, trace: str, beside: str) -> None:
    destination = resolve(out, rank)
    assert destination == Destination(Path(trace).absolute(), Path(beside).absolute())
    assert destination.shown == trace


@pytest.mark.parametrize("out", ["", "trace.json.zst", "trace.gz"])
def test_a_file_of_another_kind_is_refused(out: str) -> None:
    with pytest.raises(RecordError) as refused:
        resolve(out, Rank(0, 1))
    assert refused.value.usage


@pytest.mark.parametrize("name", ["x" * 250 + ".json.gz", "taken.json"])
def test_a_name_that_cannot_be_written_is_refused_up_front(tmp_path: Path, name: str) -> None:
    (tmp_path / "taken.manifest.json").mkdir()
    with pytest.raises(RecordError, match=r"cannot write to .*(name too long|is a directory)"):
        prepare(resolve(tmp_path / name, Rank(0, 1)))


@pytest.mark.parametrize("folder", ["back\\slash", 'quo"te\\\n', "naïve", "\udcff"])
def test_the_real_profiler_into_a_folder_with_an_evil_name(tmp_path: Path, folder: str) -> None:
    with profile(tmp_path / folder, wait=0, measure=1, steps=1, quiet=True) as p:
        for _ in range(3):
            p.step()
    assert sorted(f.name for f in (tmp_path / folder).iterdir()) == [
        "manifest.json",
        "trace.json.gz",
    ]
    assert load(tmp_path / folder / "trace.json.gz")["traceName"] == "trace.json.gz"


def test_a_profiler_that_leaves_no_file_at_all(tmp_path: Path) -> None:
    destination = resolve(tmp_path, Rank(0, 1))
    with pytest.raises(RecordError, match="is the disk full"):
        export.write(destination, manifest(), lambda _: None)


def test_an_output_folder_that_the_program_removed_is_made_again(tmp_path: Path) -> None:
    with profile(tmp_path / "out", wait=0, measure=1, steps=1, quiet=True) as p:
        (tmp_path / "out").rmdir()
        for _ in range(3):
            p.step()
    assert (tmp_path / "out" / "trace.json.gz").is_file()


def test_a_rank_writes_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with profile(tmp_path, wait=0, measure=1, steps=1, quiet=True) as p:
        for _ in range(3):
            p.step()
    trace = load(tmp_path / "trace-rank1.json.gz")
    assert (trace["tracekit"]["rank"], trace["tracekit"]["world_size"]) == (1, 2)
    assert (tmp_path / "manifest-rank1.json").exists()


@pytest.mark.parametrize(
    ("number", "version"), [(91900, "9.19.0"), (90100, "9.1.0"), (8902, "8.9.2")]
)
def test_cudnn_versions(number: int, version: str) -> None:
    assert _cudnn(number) == version
