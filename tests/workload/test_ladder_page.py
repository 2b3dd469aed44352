"""The pages on the ladder show what the measured files hold.

After a new measurement: TRACEKIT_UPDATE_SNAPSHOTS=1 pytest tests/workload/test_ladder_page.py
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tracekit.commands.ladder import default_output, write_pages
from tracekit.workload import ladder_report

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def ladder(name: str = "ladder") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / f"{name}.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize(
    ("page", "name", "content"),
    [
        ("README.md", "table of: docs/ladder.json", ladder_report.short_table(ladder())),
        ("docs/ladder.md", "ladder: ladder.json", ladder_report.summary(ladder())),
        (
            "docs/ladder.md",
            "ladder: ladder_b768.json",
            ladder_report.summary(ladder("ladder_b768")),
        ),
    ],
    ids=["README", "batch 128", "batch 768"],
)
def test_tables_are_the_measured_files(page: str, name: str, content: str) -> None:
    path = ROOT / page
    made = ladder_report.with_block(path.read_text("utf-8"), name, content)
    assert made is not None, f"{page} has no block {name}"
    if os.environ.get("TRACEKIT_UPDATE_SNAPSHOTS"):
        path.write_text(made, "utf-8")
    assert made == path.read_text("utf-8")


def test_the_step_times_beside_the_blog_are_the_measured_ones() -> None:
    page = (DOCS / "ladder.md").read_text("utf-8")
    table = page[page.index("## What each rung gained") : page.index("## Same training")]
    for name, column in (("ladder", 3), ("ladder_b768", 4)):
        for row in ladder(name)["rows"]:
            if row["rung"] != "eager":
                (line,) = re.findall(rf"^\| {row['rung']} \|.*$", table, re.M)
                assert line.split("|")[column].strip() == f"{row['ms']:.2f}"


def test_same_training_is_the_measured_one() -> None:
    page = (DOCS / "ladder.md").read_text("utf-8")
    same = json.loads((DOCS / "same_training.json").read_text("utf-8"))
    assert same["agrees"] and same["steps"] == 200
    assert {run["rung"] for run in same["runs"]} == {"0", "1", "2", "3", "4", "5"}
    shown = re.findall(r"^\| (\d)(?:, control)? \| (0\.\d+) \| ?([-+.\d]*)", page, re.M)
    assert shown == [
        (run["rung"], f"{run['loss']:.5f}", f"{100 * run['relative_difference']:+.2f}" if n else "")
        for n, run in enumerate(same["runs"])
    ]


def test_the_graphed_step_is_its_gpu_work() -> None:
    (row,) = (row for row in ladder()["rows"] if row["rung"] == "5")
    assert row["ms"] < 1.05 * row["gpu_work_ms"]
    assert row["gpu"] == "NVIDIA H200" and row["batch"] == 128


def test_pages_with_a_place_for_a_ladder_keep_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "notes.md"
    page.write_text("before\n<!-- ladder: mine.json -->\nold\n<!-- end -->\nafter\n")
    assert write_pages(tmp_path / "mine.json", "new\n", "whole") == [page]
    assert page.read_text() == "before\n<!-- ladder: mine.json -->\nnew\n<!-- end -->\nafter\n"
    alone = tmp_path / "other.md"
    assert write_pages(tmp_path / "other.json", "new\n", "whole") == [alone]
    assert alone.read_text() == "whole"


def test_findings_are_read_again_from_kept_traces() -> None:
    found = {"rows": [row for row in ladder()["rows"] if row["rung"] in ("4", "5")]}
    for row in found["rows"]:
        row["findings_before"] = row["findings_after"] = [{"code": "OLD"}]
    ladder_report.read_findings_again(found, ROOT / "tests" / "fixtures" / "rungs")
    graphs, one = found["rows"]
    assert graphs["findings_before"] is None
    assert one["findings_before"] == graphs["findings_after"] != [{"code": "OLD"}]
    assert [finding["code"] for finding in one["findings_after"]] == ["LAY001"]


def test_a_trial_does_not_overwrite_the_documented_results() -> None:
    assert default_output("cuda", "cifar10") == Path("docs/ladder.json")
    assert default_output("cpu", "cifar10") == Path("ladder.json")
    assert default_output("cuda:0", "tiny") == Path("ladder.json")
