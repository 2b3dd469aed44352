"""What is no trace is refused with one sentence: file, place, cause."""

from __future__ import annotations

import gzip
import os

import pytest
import zstandard

from tracekit.trace.errors import TraceError
from tracekit.trace.read import read

CASES = {
    "empty": (b"", "is empty"),
    "empty gzip": (gzip.compress(b""), "is empty (a gzip stream of 0 bytes)"),
    "empty zstd": (zstandard.compress(b""), "is empty (a zstd stream of 0 bytes)"),
    "gzip cut in its header": (gzip.compress(b"{}")[:6], "the gzip stream ends early"),
    "zstd cut": (zstandard.compress(b"{}" * 90)[:9], "the zstd stream"),
    "blanks": (b" \n\n", "holds only blanks"),
    "NUL bytes": (bytes(5000), "holds only blanks or NUL bytes"),
    "text": (b"hello there", "is no JSON object or list"),
    "other JSON": (b'{"a": 1, "b": 2}', "its first keys are a, b"),
    "a number": (b"3", "is no JSON"),
    "no events": (b'{"traceEvents": []}', "holds no event"),
    "an empty list": (b"[]", "holds no event"),
    "a list of numbers": (b"[1, 2]", 'has no list "traceEvents"'),
    "events that are null": (b'{"traceEvents": null}', 'has no list "traceEvents"'),
    "one broken event": (b'{"traceEvents": [{"ph": "X", "na', "no event can be read"),
    "a program": (b"\x7fELF" + bytes(range(256)) * 4, "is a program"),
    "a zip": (b"PK\x03\x04" + bytes(range(256)) * 4, "is a zip archive"),
    "junk": (bytes(range(128, 256)) * 20, "is binary data"),
    "junk in gzip": (gzip.compress(bytes(range(128, 256)) * 20), "binary data inside gzip"),
    "memory timeline": (b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "a memory timeline"),
    "rocprof": (b'{"rocprofiler-sdk-tool":[{"metadata":{}}]}', "rocprof output"),
    "execution trace": (b'{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [{"id": 2}]}',
                        "a PyTorch execution trace"),
    "memory snapshot": (b'{"segments": [], "device_traces": []}', "a CUDA memory snapshot"),
    "web page": (b"<!DOCTYPE html><html>", "a web page"),
    "pickle": (b"\x80\x04\x95" + bytes(50), "a Python pickle"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refusal(tmp_path, case):
    content, cause = CASES[case]
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError) as refused:
        read(path)
    sentence = str(refused.value)
    assert cause in sentence
    assert sentence.startswith(f"{path}: ")
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_no_such_file(tmp_path):
    with pytest.raises(TraceError, match=r"no such file\.$"):
        read(tmp_path / "none.json")


def test_a_directory(tmp_path):
    with pytest.raises(TraceError, match="is a directory"):
        read(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("{}")
    path.chmod(0)
    with pytest.raises(TraceError, match="permission denied"):
        read(path)


def test_a_stream_that_fails():
    class Broken:
        name = "pipe"

        def read(self, size):
            raise OSError(5, "Input/output error")

    with pytest.raises(TraceError, match=r"pipe: cannot be read at byte 0 \(Input/output error\)"):
        read(Broken())


@pytest.mark.parametrize("pack", [zstandard.compress, gzip.compress])
def test_a_packed_bomb_stays_small(pack):
    """Much text from few bytes: refused without ever holding it."""
    import io
    import tracemalloc

    bomb = pack(b" " * (64 << 20)) * 2
    tracemalloc.start()
    try:
        with pytest.raises(TraceError):
            read(io.BytesIO(bomb))
        assert tracemalloc.get_traced_memory()[1] < 4 * (32 << 20)
    finally:
        tracemalloc.stop()
