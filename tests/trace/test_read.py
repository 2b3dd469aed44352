"""Sound files: every layout, packing and spelling gives the same tables."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tests.trace.kineto import FIRST_US, document, load, one, op, ops
from tracekit.trace.chunks import Chunks
from tracekit.trace.errors import TraceError
from tracekit.trace.find import find_traces
from tracekit.trace.model import SCHEMA, TEXT
from tracekit.trace.read import read
from tracekit.trace.sources import Source
from tracekit.trace.table import Strings

TEXT_OF_SIX = document(ops(6))


def rows(trace, kind="ops"):
    """A table as comparable tuples."""
    table = trace.tables[kind]
    return list(zip(*(list(c) for c in table.columns.values()), strict=True))


def layouts():
    data = json.loads(TEXT_OF_SIX)
    events = data.pop("traceEvents")
    yield "kineto", TEXT_OF_SIX
    yield "json.dump", json.dumps({**data, "traceEvents": events})
    yield "compact", json.dumps({**data, "traceEvents": events}, separators=(",", ":"))
    yield "indented", json.dumps({**data, "traceEvents": events}, indent=2)
    yield "header behind", json.dumps({"traceEvents": events, **data})
    yield "list", json.dumps(events)
    yield "keys sorted", json.dumps({**data, "traceEvents": events}, sort_keys=True)
    yield "byte order mark", "\ufeff" + TEXT_OF_SIX


@pytest.mark.parametrize(("layout", "text"), list(layouts()))
def test_a_layout_changes_nothing(layout, text):
    trace = load(text)
    ids, times = trace.table("ops").ints("id"), trace.table("ops").ts
    assert ids.tolist() == list(range(6))
    assert times.tolist() == [i * 10_000 + i for i in range(6)]
    assert trace.table("ops").ints("dur").tolist() == [1500] * 6
    assert trace.table("ops").ints("external_id").tolist() == [1, 2, 3, 4, 5, 6]
    assert trace.health.damage == []
    assert not trace.health.tolerant
    if layout != "list":
        assert trace.header == {"schemaVersion": 1, "traceName": "x.json"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_packings_are_told_by_content(tmp_path, pack):
    path = tmp_path / "misnamed.json"
    path.write_bytes(pack(TEXT_OF_SIX.encode()))
    trace = read(path)
    assert rows(trace) == rows(load(TEXT_OF_SIX))
    assert trace.bytes == len(TEXT_OF_SIX)
    assert trace.path == str(path)


def test_several_gzip_and_zstd_members():
    text = TEXT_OF_SIX.encode()
    for pack in (gzip.compress, zstandard.compress):
        packed = pack(text[:700]) + pack(text[700:])
        assert rows(load(packed)) == rows(load(text))
        assert load(packed).health.damage == []


def test_standard_input(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(TEXT_OF_SIX.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    trace = read("-")
    assert trace.path == "<stdin>"
    assert len(trace.table("ops")) == 6


def test_progress_reaches_the_size(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(TEXT_OF_SIX)
    seen = []
    read(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(TEXT_OF_SIX), len(TEXT_OF_SIX))


@pytest.mark.parametrize("block", [1, 7, 64, 300, 1000, 100_000])
def test_block_sizes_change_nothing(block):
    from tracekit.trace.assemble import assemble
    from tracekit.trace.reader import Reader

    for _, text in layouts():
        chunks = Chunks(iter(Source(io.BytesIO(text.encode()), block=block)))
        reader = Reader(chunks)
        reader.run()
        _, tables, _ = assemble(reader.sink)
        assert tables["ops"].ints("id").tolist() == list(range(6))
        assert list(tables["ops"].text("shapes"))[3].replace(" ", "") == "[[1,3],[]]"
        assert reader.health.damage == []


def test_every_table_has_its_documented_columns():
    trace = load(TEXT_OF_SIX)
    assert set(trace.tables) == set(SCHEMA)
    for kind, columns in SCHEMA.items():
        table = trace.tables[kind]
        assert list(table.columns) == list(columns)
        for column, dtype in columns.items():
            data = table.columns[column]
            if dtype == TEXT:
                assert isinstance(data, Strings)
                assert data.codes.dtype == np.int32
            else:
                assert data.dtype == np.dtype(dtype)


def test_frames():
    frame = load(TEXT_OF_SIX).ops
    assert list(frame["name"]) == ["aten::mm"] * 6
    assert frame["ts"].dtype == np.int64


def test_rows_are_sorted_whatever_the_order_in_the_file():
    events = json.loads(TEXT_OF_SIX)["traceEvents"]
    events += [{**events[2], "dur": 9.0, "name": "parent"}]
    one_way, other_way = load(json.dumps(events)), load(json.dumps(events[::-1]))
    for kind in SCHEMA:
        first = [r[1:] for r in rows(one_way, kind)]
        assert first == [r[1:] for r in rows(other_way, kind)]
    names = list(one_way.table("ops").text("name"))
    assert names[2:4] == ["parent", "aten::mm"], "the longer of two comes first"


def test_missing_fields_are_minus_one():
    trace = one(args={})
    table = trace.table("ops")
    assert table.ints("external_id").tolist() == [-1, -1]
    assert list(table.text("shapes")) == [None, None]


def test_the_origin_leaves_metadata_out():
    meta = (
        '{"name": "process_name", "ph": "M", "ts": 0.0, "pid": 1, "tid": 0, "args": {"name": "p"}}'
    )
    trace = load(document([meta, op(1), op(0)], header='\n  "baseTimeNanoseconds": 1700000000000,'))
    assert trace.table("ops").ts.tolist() == [0, 10_001]
    assert trace.t0_ns == FIRST_US * 1000 + 1_700_000_000_000
    assert list(trace.table("meta").text("value")) == ["p"]


def test_old_casing():
    trace = load(
        json.dumps(
            [
                {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 2,
                 "args": {"stream": 7, "device": 0, "correlation": 9, "external id": 4}},
                {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 8,
                 "dur": 2, "args": {"stream": 7, "device": 0, "correlation": 10, "bytes": 64}},
                {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 3, "tid": 3,
                 "ts": 1, "dur": 2, "args": {"correlation": 9, "external id": 4}},
                {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 3, "tid": 3,
                 "ts": 0, "dur": 4, "args": {"Input dims": [[2]]}},
                {"ph": "s", "cat": "async_gpu", "name": "launch", "id": 9, "pid": 3, "tid": 3,
                 "ts": 1},
            ]
        )
    )  # fmt: skip
    gpu = trace.table("gpu")
    assert list(gpu.text("kind")) == ["kernel", "memcpy"]
    assert gpu.ints("external_id").tolist() == [4, -1]
    assert gpu.ints("bytes").tolist() == [-1, 64]
    assert trace.table("launches").ints("external_id").tolist() == [4]
    assert list(trace.table("ops").text("shapes")) == ["[[2]]"]
    assert trace.health.ignored_by_kind == {"flow arrow async_gpu": 1}


def test_ids_written_as_text():
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 1, "args": {}}
    trace = load(
        json.dumps(
            [
                {**event, "pid": "GPU 1", "tid": "stream 7"},
                {**event, "pid": "worker", "tid": "main", "cat": "cpu_op"},
                {**event, "pid": 5, "tid": -12, "cat": "cpu_op", "ts": 1},
            ]
        )
    )
    gpu, cpu = trace.table("gpu"), trace.table("ops")
    assert (gpu.ints("device")[0], gpu.ints("stream")[0]) == (1, 7)
    assert trace.threads[1, 7] == "stream 7"
    assert cpu.ints("tid")[1] == -12
    pid, tid = cpu.ints("pid")[0], cpu.ints("tid")[0]
    assert pid < -1
    assert tid < -1
    assert pid != tid
    assert trace.threads[pid, tid] == "main"


def test_integers_beyond_64_bits_are_counted_not_rounded():
    trace = one(args={"External id": 2**64, "Sequence number": 2**63 - 1})
    table = trace.table("ops")
    assert table.ints("external_id").tolist() == [-1, -1]
    assert table.ints("seq").tolist()[1] == 2**63 - 1
    assert trace.health.altered == {"an integer does not fit in 64 bits": 1}


def test_numbers_written_as_text():
    trace = one(cat="cuda_runtime", name="hipMemcpy", args={"size": "2560", "kind": "1"})
    calls = trace.table("launches")
    assert calls.ints("bytes").tolist() == [2560]
    assert list(calls.text("memcpy_kind")) == ["HtoD"]
    assert list(calls.text("vendor")) == ["hip"]


def test_a_runtime_event_named_invalid_is_kept():
    calls = one(cat="cuda_runtime", name="INVALID").table("launches")
    assert list(calls.text("vendor")) == ["other"]
    assert list(calls.text("kind")) == ["other"]


def test_negative_and_missing_durations_are_counted():
    trace = one(dur=-4)
    assert trace.table("ops").ints("dur").tolist() == [1000, 0]
    assert trace.health.altered == {"negative duration: taken as 0": 1}


def test_an_event_without_a_time_is_counted():
    text = document([op(0), op(1).replace(f'"ts": {FIRST_US + 10}.001,', "")])
    trace = load(text)
    assert trace.health.skipped_by_cause == {"the event has no time": 1}
    assert (trace.health.events, trace.health.events_skipped) == (1, 1)


def test_memory_instants():
    row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "pid": 1, "tid": 1}
    args = {"Total Reserved": 8, "Total Allocated": 4, "Bytes": -2, "Addr": 77, "Device Id": 0}
    trace = load(
        json.dumps(
            [
                {**row, "ts": 5, "args": {**args, "Device Type": 1}},
                {**row, "ts": 2, "args": {**args, "Device Type": 0}},
                {**row, "ts": 2, "name": "something else"},
            ]
        )
    )
    memory = trace.table("memory")
    assert memory.ts.tolist() == [0, 3000]
    assert memory.ints("device").tolist() == [-1, 0]
    assert memory.ints("bytes").tolist() == [-2, -2]
    assert trace.health.ignored_by_kind == {"cpu_instant_event (ph i)": 1}


def test_mtia_waits_are_no_work():
    row = {"ph": "X", "cat": "mtia_ccp_events", "pid": 17, "tid": 4, "ts": 1, "dur": 5}
    names = ["pe_exe", "dma_request", "event_wait", "event_record", "remote"]
    events = [{**row, "name": n, "args": {"stream": 9}} for n in names]
    trace = load(json.dumps([*events, {**row, "cat": "mtia_runtime", "name": "synchronize"}]))
    gpu = trace.table("gpu")
    assert sorted(zip(gpu.text("name"), gpu.text("kind"), strict=True)) == [
        ("dma_request", "memcpy"),
        ("pe_exe", "kernel"),
        ("remote", "kernel"),
    ]
    assert list(trace.table("launches").text("kind")) == ["sync_device"]
    assert sum(trace.health.ignored_by_kind.values()) == 2


def test_every_event_is_accounted_for():
    flow = '  {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 1, "cat": "ac2g", "name": "ac2g"}'
    odd = '  {"ph": "B", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 2, "ts": 1}'
    unknown = '  {"ph": "X", "cat": "new_thing", "name": "x", "pid": 1, "tid": 2, "ts": 1}'
    trace = load(document([op(0), flow, odd, unknown]))
    assert trace.health.events == 4
    assert trace.health.ignored_by_kind == {
        "flow arrow ac2g": 1,
        "cpu_op (ph B)": 1,
        "category new_thing": 1,
    }


def test_directories(tmp_path):
    with pytest.raises(TraceError, match=r"holds no trace"):
        find_traces(tmp_path)
    for name in ("rank-10.json", "rank-2.json.gz", "notes.txt"):
        (tmp_path / name).write_text("")
    assert [p.name for p in find_traces(tmp_path)] == ["rank-2.json.gz", "rank-10.json"]
    (tmp_path / "rank-3²1.json").write_text("")  # a digit that int() does not read
    os.mkfifo(tmp_path / "pipe.json")  # opening it would wait for ever
    assert [p.name for p in find_traces(tmp_path)][-1] == "rank-10.json"
    with pytest.raises(TraceError, match=r"is not a directory"):
        find_traces(tmp_path / "rank-10.json")


def test_reading_does_not_import_pandas():
    import subprocess

    code = "import sys, tracekit.trace.read; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_file_is_left_open(tmp_path):
    path = Path(tmp_path) / "t.json"
    path.write_text("[1]")
    with pytest.raises(TraceError):
        read(path)  # a leak would be a ResourceWarning, which is an error here


def test_a_folder_that_cannot_be_listed_is_told(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("")
    (tmp_path / "locked").mkdir()
    real = os.scandir

    def scandir(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    told = []
    found = find_traces(tmp_path, lambda folder, why: told.append((folder, str(why))))
    assert [p.name for p in found] == ["a.json"]
    locked = str(tmp_path / "locked")
    assert told == [(locked, f"{locked}: cannot be listed (Permission denied).")]
    for folder in (tmp_path, tmp_path / "locked"):
        with pytest.raises(TraceError, match=r"locked: cannot be listed \(Permission denied\)\.$"):
            find_traces(folder)


def test_numbers_that_a_column_cannot_hold():
    args = {"registers per thread": 2**33, "est. achieved occupancy %": 1e300, "device": 0}
    trace = one(cat="kernel", args=args)
    assert trace.gpu.registers[0] == -1
    assert trace.gpu.occupancy[0] == -1
    assert trace.health.altered == {
        "an integer does not fit in 32 bits": 1,
        "a field is not a number": 1,
    }
    assert one(cat="kernel", args={"est. achieved occupancy %": 10**400}).gpu.occupancy[0] == -1


def test_a_rank_below_zero_is_no_rank():
    text = document([op(0)], header='"distributedInfo": {"rank": -5, "world_size": 2},')
    assert (load(text).rank, load(text).world_size) == (None, 2)


@pytest.mark.parametrize("name", ["", "a\0b.json"])
def test_names_of_no_file(name):
    with pytest.raises(TraceError, match=r"\.$"):
        read(name)
