"""The progress bar, on a terminal and off it."""

from __future__ import annotations

import io
import sys

import pytest

from tracekit.profiler import bar
from tracekit.profiler.bar import Bar
from tracekit.profiler.recorder import Phase, Progress

STEPS = [
    Progress(Phase.WAIT, 1, 1, 9.0),
    Progress(Phase.MEASURE, 1, 2, 12.0),
    Progress(Phase.MEASURE, 2, 2, 14.0),
    Progress(Phase.WARMUP, 1, 1, 20.0),
    Progress(Phase.RECORD, 1, 1, 30.0),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show() -> str:
    stream = sys.stderr
    assert isinstance(stream, io.StringIO)
    with Bar(len(STEPS)) as shown:
        shown.message("compiling")
        for step in STEPS:
            shown.step(step)
        shown.loss = 0.1234
        shown.finished()
    return stream.getvalue()


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(bar, "DRAW_EVERY_S", 0.0)
    text = show()
    for part in ("compiling", "2/5", "13.0 ms a step", "recorded", "5/5", "loss 0.1234"):
        assert part in text, part


def test_nothing_is_drawn_while_steps_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(bar, "DRAW_EVERY_S", 0.0)
    with Bar(2) as shown:
        shown.step(STEPS[0])
        assert isinstance(sys.stderr, Terminal)
        before = sys.stderr.getvalue()
        shown.step(STEPS[4])
        assert sys.stderr.getvalue() == before


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    lines = show().splitlines()
    assert lines[0] == "tracekit: compiling"
    assert "tracekit: measuring without the profiler, 2 steps at most" in lines
    assert lines[-1] == "tracekit: recorded, loss 0.1234"


def test_lines_on_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "tracekit: compiling" in show()
