"""The registry of rungs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

from tracekit.workload.errors import WorkloadError
from tracekit.workload.rungs import RUNGS, Rung, UnknownRung, parse_rungs, rung

CONFIGURATION = [f.name for f in fields(Rung)[fields(Rung).index(
    next(f for f in fields(Rung) if f.name == "compile")):]]  # fmt: skip


def test_the_ladder_is_eager_then_0_to_5() -> None:
    assert list(RUNGS) == ["eager", "0", "1", "2", "3", "4", "5"]
    assert [each.number for each in RUNGS.values()] == [-1, 0, 1, 2, 3, 4, 5]
    assert [key for key, each in RUNGS.items() if each.needs_cuda] == ["4", "5"]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("0", {"compile"}),
        ("1", {"channels_last"}),
        ("2", {"sync_loss"}),
        ("3", {"optimizer"}),
        ("4", {"compile", "scope", "graph"}),
        ("5", {"compile", "graph"}),
    ],
)
def test_each_rung_differs_from_the_one_before_in_one_thing(key: str, changes: set[str]) -> None:
    ladder = list(RUNGS.values())
    here = RUNGS[key]
    before = ladder[ladder.index(here) - 1]
    assert {name for name in CONFIGURATION if getattr(here, name) != getattr(before, name)} == (
        changes
    )
    assert here.name != before.name
    assert here.reason.endswith(".")


def test_a_rung_never_leaves_what_it_clears() -> None:
    for each in RUNGS.values():
        assert not set(each.clears) & set(each.leaves)


def test_keys_may_be_numbers() -> None:
    assert rung(5) is rung("5") is RUNGS["5"]
    assert rung(" eager ").key == "eager"


def test_an_unknown_rung_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownRung, match=r"no rung '9'; the rungs are eager, 0, 1, 2, 3, 4, 5\."):
        rung("9")
    assert issubclass(UnknownRung, ValueError)
    assert issubclass(UnknownRung, WorkloadError)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("eager,0-5", ["eager", "0", "1", "2", "3", "4", "5"]),
        ("3,1,1", ["1", "3"]),
        ("0-2, eager", ["eager", "0", "1", "2"]),
    ],
)
def test_lists_of_rungs(text: str, keys: list[str]) -> None:
    assert [each.key for each in parse_rungs(text)] == keys


@pytest.mark.parametrize("text", ["", " , ", "0-9", "3-1", "fast"])
def test_bad_lists_of_rungs(text: str) -> None:
    with pytest.raises(UnknownRung):
        parse_rungs(text)


def test_rungs_and_commands_import_no_torch() -> None:
    code = (
        "import sys, tracekit.workload.rungs, tracekit.commands.ladder, tracekit.commands.sample;"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
