"""Scripts to record, and readers of what was recorded."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracekit.profiler.plan import Plan
from tracekit.profiler.runner import load_script
from tracekit.profiler.script import Outcome, profile_script

ROOT = Path(__file__).parents[2]
SMALL = Plan(wait=2, measure=3, warmup=1, steps=2)

MODEL = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
def loss():
    return model(torch.randn(2, 4)).square().sum()
"""


def load(path: Path) -> dict[str, Any]:
    """The whole file as strict JSON."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = json.loads(data.decode("utf-8"))
    assert isinstance(trace, dict)
    return trace


def marks(trace: dict[str, Any]) -> list[str]:
    """Names of the step marks on the CPU, in order of time."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    found = [
        e for e in events
        if e["name"].startswith(("ProfilerStep#", "Interrupted step#"))
        and e["cat"] == "user_annotation"
    ]  # fmt: skip
    return [e["name"] for e in sorted(found, key=lambda e: e["ts"])]


def count(trace: dict[str, Any], name: str) -> int:
    """How many events have this name."""
    return sum(e.get("name") == name for e in trace["traceEvents"])


Record = Callable[..., Outcome]


@pytest.fixture
def record_script(tmp_path: Path) -> Record:
    """Write `body` to a script and record it in this process, to `tmp_path / 'out'`."""

    def run(body: str, *arguments: str, plan: Plan = SMALL, **options: Any) -> Outcome:
        script = tmp_path / "train.py"
        script.write_text(body)
        return profile_script(
            load_script(str(script)), arguments, out=tmp_path / "out", plan=plan, **options
        )

    return run


def tracekit(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m tracekit ARGUMENTS` in a process of its own."""
    return python("-m", "tracekit", *arguments, cwd=cwd, **env)


def python(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS`, with this checkout importable."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=120,
    )


def environment(**env: str) -> dict[str, str]:
    """This process's environment, with the checkout importable and one thread for torch."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env}
