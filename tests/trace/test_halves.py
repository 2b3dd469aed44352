"""A large plain file read by two processes gives what one process gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trace.kineto import document, op
from tracekit.trace import read as module
from tracekit.trace.model import SCHEMA, TEXT
from tracekit.trace.read import read


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Reads a text with one process and with two."""

    def reads(text: str, expect_fork: bool = True):
        path = tmp_path / "t.json"
        path.write_bytes(text.encode())
        alone = read(path)
        forks = []

        class Counted(module.Fork):
            def receive(self, into):
                half = super().receive(into)
                forks.append(half is not None)
                return half

        monkeypatch.setattr(module, "SMALLEST", 0)
        monkeypatch.setattr(module, "can_fork", lambda: True)
        monkeypatch.setattr(module, "Fork", Counted)
        together = read(path)
        assert forks == ([True] if expect_fork else [])
        return alone, together

    return reads


def assert_same(one, other):
    assert (one.t0_ns, one.bytes, one.header, one.threads, one.health) == (
        other.t0_ns, other.bytes, other.header, other.threads, other.health
    )  # fmt: skip
    for kind, columns in SCHEMA.items():
        for column, dtype in columns.items():
            a, b = one.tables[kind].columns[column], other.tables[kind].columns[column]
            if dtype == TEXT:
                assert list(a) == list(b)
            else:
                np.testing.assert_array_equal(a, b)


def events(count):
    kernel = op(0).replace("cpu_op", "kernel").replace('"Input Dims"', '"stream": 7, "grid"')
    meta = (
        '  {\n    "name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 2,\n'
        '    "args": {\n      "name": "t"\n    }\n  }'
    )
    return [op(i, f"op{i % 17}") if i % 3 else kernel for i in range(count)] + [meta]


def test_sound(both):
    assert_same(*both(document(events(200))))


def test_damaged_in_both_halves(both):
    listed = events(200)
    for at in (20, 150):
        listed[at] = op(at, 'a "b"')
    listed[60] = op(60).replace('"dur"', '"dur')
    listed[170] = op(170).replace('"dur"', '"dur')
    alone, together = both(document(listed))
    assert_same(alone, together)
    assert alone.health.events_skipped == 2


def test_truncated(both):
    assert_same(*both(document(events(200))[:-300]))


def test_a_list_that_ends_in_the_first_half(both):
    tail = '"more": [' + ",".join('\n  {\n    "ph": "not an event"\n  }' for _ in range(2000)) + "]"
    alone, together = both(document(events(50), tail=tail), expect_fork=False)
    assert_same(alone, together)
    assert len(alone.header["more"]) == 2000


def test_a_process_that_dies(tmp_path, monkeypatch):
    import os

    path = tmp_path / "t.json"
    path.write_text(document(events(200)))
    alone = read(path)
    monkeypatch.setattr(module, "SMALLEST", 0)
    monkeypatch.setattr(module, "can_fork", lambda: True)
    monkeypatch.setattr("tracekit.trace.parallel._send", lambda *_: os._exit(3))
    assert_same(alone, read(path))
