"""Rules of the house that no linter knows."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = sorted((ROOT / "tracekit").rglob("*.py"))


def test_no_file_is_a_grab_bag() -> None:
    assert not [p for p in PYTHON if p.stem in ("utils", "util", "helpers", "misc", "common")]


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") <= 400
    assert not text.strip() or text.lstrip().startswith(('"""', 'r"""'))


def test_every_extra_that_the_command_line_names_exists() -> None:
    from tracekit.cli import EXTRAS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_the_version_is_one() -> None:
    from tracekit import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_schema_and_its_page_agree() -> None:
    schema = json.loads((ROOT / "tracekit/report/schema.json").read_text("utf-8"))
    page = (ROOT / "docs/report-json.md").read_text("utf-8")
    for section, content in schema["properties"].items():
        assert f"`{section}`" in page, section
        for field in content.get("properties", {}):
            assert f"`{field}`" in page, f"{section}.{field}"


def test_links_between_pages_hold() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_bundled_trace_is_small() -> None:
    from tracekit import demo

    assert demo.trace_path().stat().st_size < 1_200_000


def test_shell_scripts_parse() -> None:
    for script in ("scripts/test.sh", ".ci/run"):
        subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_the_architecture_names_files_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    files = [p.as_posix() for p in (*PYTHON, *(ROOT / "tests").rglob("*.py"))]
    for name in re.findall(r"`([\w/]+\.py)`", page):
        assert any(file.endswith(f"/{name}") for file in files), name
