"""Names are harmless, lines fit, numbers read well."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.report import style
from tracekit.report.style import Style, clean, columns, shorten, style_for, wrap


@given(st.text())
def test_clean_text_prints_as_it_stands(text: str) -> None:
    out = clean(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in out)
    assert not any(c in out for c in "\u202a\u202b\u202d\u202e\u2066\u2067\u2028\u2029\u200f")
    out.encode("utf-8")  # no lone surrogate


def test_clean_escapes_and_keeps_markup_literal() -> None:
    assert clean("a\x1b[31mb\n\t\x9b\u202e[red]") == r"a\x1b[31mb\n\t\x9b\u202e[red]"
    assert clean("\ud800") == r"\ud800"
    assert clean("größe 核") == "größe 核"


@given(st.text(st.characters(categories=["L", "N", "P", "S"])), st.integers(8, 60))
def test_shorten_fits(text: str, limit: int) -> None:
    assert columns(shorten(text, limit)) <= limit


def test_shorten_keeps_both_ends() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>(int, float)"
    assert shorten(name, 40) == "void at::native::vectoriz...(int, float)"
    assert shorten("short", 40) == "short"


@given(st.text(st.characters(codec="ascii")))
def test_wrap_fits(text: str) -> None:
    assert all(columns(line) <= 60 for line in wrap(text, 60, "    ", "  "))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "color", "no_color", "term", "expected"),
    [
        (Terminal(), "auto", None, "xterm", True),
        (Terminal(), "auto", "1", "xterm", False),
        (Terminal(), "auto", "", "xterm", True),
        (Terminal(), "auto", None, "dumb", False),
        (Terminal(), "never", None, "xterm", False),
        (io.StringIO(), "auto", None, "xterm", False),
        (io.StringIO(), "always", "1", "xterm", True),
    ],
)
def test_colour_is_on_where_it_should_be(
    stream: io.StringIO,
    color: str,
    no_color: str | None,
    term: str,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert style_for(stream, color).color is expected


def test_width_stays_in_its_bounds() -> None:
    assert Style(width=300).width == 100
    assert Style(width=20).width == 80


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0.0"),
        (0.084, "0.084"),
        (1.09, "1.09"),
        (27.57, "27.6"),
        (229.4, "229"),
        (1231, "1,231"),
    ],
)
def test_milliseconds(value: float, expected: str) -> None:
    assert style.ms(value) == expected


def test_shares() -> None:
    assert style.percent(1, 3) == "33 %"
    assert style.percent(0.001, 3) == "<1 %"
    assert style.percent(2.999, 3) == ">99 %"
    assert style.percent(0, 3) == "0 %"
    assert style.percent(1, 0) == "-"


def test_short_times() -> None:
    assert [style.short_time(x) for x in (0.0006, 0.012, 0.5, 3.44, 2100)] == [
        "0.6 us",
        "12 us",
        "500 us",
        "3.4 ms",
        "2.1 s",
    ]
