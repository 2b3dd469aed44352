"""Damaged files: every readable event is read with its right time, the rest is counted."""

from __future__ import annotations

import gzip
import re

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trace.kineto import document, load, op, ops
from tracekit.trace import mend
from tracekit.trace.errors import TraceError

COUNT = 6
SOUND = document(ops(COUNT))


def with_fourth(event: str) -> str:
    return document([*ops(3), event, *[op(i) for i in range(4, COUNT)]])


def names(trace):
    return list(trace.table("ops").text("name"))


def assert_times(trace, ids=range(COUNT)):
    """The events of these positions are there with their own times (from event 0's)."""
    table = trace.table("ops")
    assert table.ints("id").tolist() == list(ids)
    assert table.ts.tolist() == [i * 10_000 + i % 1000 for i in ids]
    assert table.ints("dur").tolist() == [1500] * len(list(ids))


MENDED = {
    "Windows path": (r"torch\cuda\__init__.py(219)", r"torch\cuda\__init__.py(219)"),
    "path that ends in a backslash": ("C:\\dir\\", "C:\\dir\\"),
    "raw quotes": ('say "hi" now', 'say "hi" now'),
    "one raw quote": ('5" disk', '5" disk'),
    "raw newline": ("a\nb", "a b"),
    "control character": ("a\x01b", "a b"),
    "half a surrogate pair": ("a\\ud800b", "a\ufffdb"),
    "several at once": ('C:\\x "y"\t\x02', 'C:\\x "y"  '),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("fault", MENDED)
def test_a_bad_name_is_mended(fault, pack):
    written, read = MENDED[fault]
    trace = load(pack(with_fourth(op(3, written)).encode()))
    assert_times(trace)
    assert names(trace)[3] == read
    assert trace.table("ops").ints("external_id").tolist() == [1, 2, 3, 4, 5, 6]
    assert trace.health.tolerant
    assert trace.health.events_skipped == 0
    place = trace.health.damage[0].offset
    assert SOUND.index('"External id": 3') < place < SOUND.index('"External id": 5')


def test_bytes_that_are_not_utf8():
    text = with_fourth(op(3, "a@@b")).encode().replace(b"@@", b"\xff\xfe")
    trace = load(text)
    assert_times(trace)
    assert names(trace)[3] == "a\ufffd\ufffdb"
    assert trace.health.altered == {mend.UTF8: 1}


@pytest.mark.parametrize(
    "more",
    [
        ', "x": N/A',
        ', "x": nan, "y": -Infinity, "z": NaN',
        ', "x": [nan,inf, 1]',
        ", ",
        ', "x": [1, 2, ]',
        ',, "x": 1',
    ],
)
def test_values_that_are_not_json(more):
    trace = load(with_fourth(op(3, more=more)))
    assert_times(trace)
    assert trace.table("ops").ints("external_id").tolist() == [1, 2, 3, 4, 5, 6]


def test_a_time_that_is_no_number():
    trace = load(re.sub(r'"ts": \d+294\.003', '"ts": nan', SOUND))
    assert_times(trace, [0, 1, 2, 4, 5])
    assert trace.health.skipped_by_cause == {"the event has no time": 1}


def test_a_broken_key_in_args_keeps_what_stands_before_it():
    trace = load(with_fourth(op(3).replace('"Input Dims"', '"Input Dims')))
    assert_times(trace)
    assert trace.table("ops").ints("external_id").tolist()[3] == 4
    assert list(trace.table("ops").text("shapes"))[3] is None


def test_a_broken_key_beside_the_time_loses_the_event():
    trace = load(with_fourth(op(3).replace('"dur"', '"dur')))
    assert_times(trace, [0, 1, 2, 4, 5])
    assert trace.health.skipped_by_cause == {"unreadable event": 1}
    damage = trace.health.damage
    assert [(d.offset, d.events) for d in damage] == [(SOUND.index(op(3).strip()), 1)]


def test_commas():
    assert_times(load(SOUND.replace("\n  ],", ",\n  ],")))
    trace = load(SOUND.replace("  },\n", "  }\n", 1))
    assert_times(trace)
    assert trace.health.altered == {"a comma missing between events": 1}


def test_junk_between_events():
    trace = load(SOUND.replace("  },\n  {", "  },\n some junk here\n  {", 1))
    assert_times(trace)
    assert [(d.cause, d.events) for d in trace.health.damage] == [("text that is no event", 0)]


@pytest.mark.parametrize("args", ["null", "[]", '"text"', "5"])
def test_args_of_another_type(args):
    assert_times(load(with_fourth(re.sub(r'"args": \{.*?\}', f'"args": {args}', op(3), flags=16))))


def test_fields_of_another_type():
    trace = load(with_fourth(op(3).replace('"External id": 4', '"External id": true')))
    assert_times(trace)
    assert trace.table("ops").ints("external_id").tolist()[3] == -1
    trace = load(with_fourth(op(3).replace('"aten::mm"', "17")))
    assert names(trace)[3] == "17"


def test_deep_nesting_is_no_recursion():
    assert_times(load(with_fourth(op(3, more=', "x": ' + "[" * 20_000 + "]" * 20_000))))


def test_objects_among_the_args_are_no_events():
    more = ', "x": [{"name": 1}, {"name": 2, "ph": "X"}]'
    for name in ("fine", 'a "b"', "a\x01"):
        assert_times(load(with_fourth(op(3, name, more))))


def test_a_run_of_nul_bytes_never_joins_two_events():
    at = SOUND.index('"ts"', SOUND.index('"External id": 3')) + 30
    trace = load(SOUND[:at] + "\0" * 250 + SOUND[at + 250 :])
    table = trace.table("ops")
    sound = {(i * 10_000 + i, f"[[1, {i}], []]") for i in range(COUNT)}
    found = set(zip(table.ts.tolist(), table.text("shapes"), strict=True))
    assert {f for f in found if f[1] is not None} <= sound
    assert trace.health.damage


@pytest.mark.parametrize("cut", range(100, len(SOUND) - 1, 97))
def test_a_truncated_file(cut):
    whole = SOUND[:cut].count("\n  }")
    if whole == 0:
        return
    trace = load(SOUND[:cut])
    times = trace.table("ops").ts.tolist()
    assert times[:whole] == [i * 10_000 + i for i in range(whole)]
    assert len(times) <= whole + 1
    assert trace.health.tolerant
    assert trace.health.damage


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_that_is_cut(pack):
    text = document([op(i, f"aten::op{i * 7919 % 1009}") for i in range(3000)])
    packed = pack(text.encode())
    trace = load(packed[: len(packed) * 2 // 3])
    assert 500 < len(trace.table("ops")) < 3000
    assert_times(trace, range(len(trace.table("ops"))))
    causes = [d.cause for d in trace.health.damage]
    assert any("stream ends early" in c for c in causes), causes


def test_a_damaged_gzip_stream():
    packed = bytearray(gzip.compress(document(ops(3000)).encode()))
    packed[len(packed) // 2] ^= 0xFF
    packed[len(packed) // 2 + 1] ^= 0xFF
    try:
        trace = load(bytes(packed))
    except TraceError as error:
        assert "gzip" in str(error)
    else:
        assert trace.health.damage


def test_a_second_trace_behind_the_first():
    trace = load(SOUND + SOUND)
    assert_times(trace)
    assert trace.health.skipped_by_cause == {"in a second trace behind the first": 6}


def test_a_file_that_begins_in_the_middle():
    trace = load(SOUND[200:])
    assert len(trace.table("ops")) == 5
    assert trace.health.damage[0].offset == 0


@pytest.mark.parametrize("header", ['\n "x": nan,', '\n "broken: 1,', '\n "x": "a\x01",'])
def test_a_damaged_header(header):
    trace = load(document(ops(COUNT), header))
    assert_times(trace)
    assert trace.header["traceName"] == "x.json"
    assert [d.cause for d in trace.health.damage] == ["the header is not readable in full"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_events_that_the_damage_does_not_touch_are_read(data):
    """Overwrite one stretch with anything: the events outside it are all read, at their times."""
    sound = SOUND.encode()
    first, end = sound.index(b"[") + 1, sound.rindex(b"]")
    start = data.draw(st.integers(first, end - 1))
    junk = data.draw(
        st.one_of(
            st.binary(min_size=1, max_size=60),
            st.text('{}[]",:\\ \n', min_size=1, max_size=20).map(str.encode),
            st.sampled_from([b"\0" * 100, b'"', b"\\", b"}", b"{", b"]", b'{"ph": "X"', b"]}"]),
        )
    )
    stop = min(end, start + data.draw(st.integers(0, 80)))
    damaged = sound[:start] + junk + sound[stop:]
    spans = [
        (sound.index(op(i).strip().encode()), len(op(i).strip().encode())) for i in range(COUNT)
    ]
    # an event is touched by what falls into it or on the separator at either side of it
    whole = [i for i, (at, size) in enumerate(spans) if stop <= at - 4 or start >= at + size + 4]
    trace = load(damaged)
    found = set(trace.table("ops").ts.tolist())
    origin = trace.t0_ns
    for i in whole:
        own = int(op(i).split('"ts": ')[1].split(",")[0].replace(".", ""))
        if not ends_the_list(junk):
            assert own - origin in found, (i, damaged)


def ends_the_list(junk: bytes) -> bool:
    """Whether junk may rightly be taken for the end of the event list."""
    return b"]" in junk


def test_damage_in_every_event_stays_linear():
    """No time is measured: quadratic behaviour would show as minutes."""
    for name in ('a "b" c', r"x\y", "a\x01"):
        trace = load(document([op(i, name) for i in range(1500)]))
        assert len(trace.table("ops")) == 1500
    trace = load(document([op(i).replace('"dur"', '"dur') for i in range(1500)] + [op(1)]))
    assert len(trace.table("ops")) == 1
    assert trace.health.events_skipped == 1500
    assert len(trace.health.damage) == 1000


def test_a_text_without_an_end_takes_little_memory():
    """A pattern that tries again at every byte would remember each: 130 bytes a byte."""
    import tracemalloc

    text = document([op(0)])[:-20].encode() + b', {"ph": "X", "name": "' + b"a" * (4 << 20)
    tracemalloc.start()
    trace = load(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert trace.table("ops").ints("id").tolist() == [0]
    assert peak < 20 * len(text)
