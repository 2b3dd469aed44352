"""What the README shows is what the program prints.

After a change that is meant: TRACEKIT_UPDATE_SNAPSHOTS=1 pytest tests/project/test_readme.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.shell import tracekit

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md"]

# An HTML comment with the command, a fenced block with its output, and an end mark.
BLOCK = re.compile(r"<!-- output of: tracekit (.+?) -->\n```\n(.*?)```\n<!-- end -->", re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_shown_output_is_real(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = BLOCK.findall(text)
    assert blocks
    for arguments, shown in blocks:
        done = tracekit(*arguments.split(), cwd=ROOT)
        assert done.code == 0
        # The demo's path depends on where the package lies.
        out = re.sub(r"^\S*/(?=ddpm32m)", "", done.out, flags=re.M)
        if os.environ.get("TRACEKIT_UPDATE_SNAPSHOTS"):
            text = text.replace(f"```\n{shown}```\n<!-- end -->", f"```\n{out}```\n<!-- end -->")
            page.write_text(text, "utf-8")
        else:
            assert shown == out
