"""Accounting law 1: times are exact to the nanosecond, however the file writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trace.kineto import document, load, one, op
from tracekit.trace.times import LONGEST_NS, MISSING, NeedsText, ns_column, ns_of_text

nanoseconds = st.integers(0, 2**61)


def us_text(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


@given(st.lists(st.integers(0, LONGEST_NS - 1), min_size=1, max_size=20), nanoseconds)
def test_starts_are_exact(offsets, base):
    times = [base + t for t in offsets]
    trace = load(document([op(0, us=us_text(t)) for t in times]))
    found = sorted(trace.t0_ns + t for t in trace.table("ops").ts.tolist())
    assert found == sorted(times)


@given(st.lists(st.integers(0, 2**43 * 1000 - 1), min_size=1, max_size=20))
def test_floats_below_2_to_the_43_us_are_exact(times):
    assert ns_column([float(us_text(t)) for t in times]).tolist() == times


@given(st.lists(st.integers(-(2**51), 2**51), min_size=1))
def test_integers_are_exact(times):
    assert ns_column(times).tolist() == [t * 1000 for t in times]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1700000000000000.123", 1700000000000000123),
        ("1700000000000000.001", 1700000000000000001),
        ("1700000000000000.1", 1700000000000000100),
        ("1700000000000000", 1700000000000000000),
        ('"5107718255264.180"', 5107718255264180),
        ('"12"', 12000),
        ("1.7e15", 1700000000000000000),
        ("-3.5", -3500),
    ],
)
def test_spellings(text, ns):
    trace = load(document([op(0, us=text)]))
    assert trace.t0_ns == ns


def test_one_late_decimal_makes_the_chunk_be_read_as_text():
    texts = ["1700000000000000", "1700000000000001.257", "1700000000000002"]
    trace = load(document([op(0, us=t) for t in texts]))
    assert trace.table("ops").ts.tolist() == [0, 1257, 2000]


def test_large_decimals_ask_for_their_text():
    with pytest.raises(NeedsText):
        ns_column([1.7e15 + 0.25])


@pytest.mark.parametrize("text", [b"", b"null", b"nan", b"1e99", b'"soon"', b"[1]"])
def test_no_time(text):
    assert ns_of_text(text) == MISSING


@pytest.mark.parametrize("text", ["1e999999", "-9e500000", "9" * 9_000, "1e999999999999999999999"])
def test_no_time_however_large(text):
    assert ns_of_text(text.encode()) == MISSING


@given(st.decimals(-(10**15), 10**15, places=3, allow_nan=False))
def test_text_agrees_with_decimal(value: Decimal):
    assert ns_of_text(str(value).encode()) == int(value * 1000)


def test_the_origin_is_the_first_event_with_a_base_time():
    text = document([op(1, us="20.001"), op(0, us="10.5")], header='\n"baseTimeNanoseconds": 7,')
    trace = load(text)
    assert trace.t0_ns == 10_507
    assert trace.table("ops").ts.tolist() == [0, 9501]


def test_a_start_that_no_recording_reaches_is_counted_and_left_out():
    """One start of 0 among times since 1970 would make the file span decades."""
    texts = ["0", "1700000000000000.5", "1700000000000001", "1700000000000002", "9e14"]
    trace = load(document([op(i, us=t) for i, t in enumerate(texts)]))
    assert trace.table("ops").ts.tolist() == [0, 500, 1500]
    assert trace.table("ops").ints("id").tolist() == [1, 2, 3]
    assert trace.health.events == 3
    assert trace.health.events_skipped == 2
    assert trace.health.skipped_by_cause == {"a start days away from all others": 2}


def test_a_duration_of_years_is_cut():
    trace = one(dur=4e15)
    assert int(trace.table("ops").end.max()) == LONGEST_NS
    assert trace.health.altered == {"a duration of more than ten days: cut to that": 1}
