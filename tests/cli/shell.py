"""Runs the command line as a user's shell does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    """What a finished command left."""

    code: int
    out: str
    err: str


def tracekit(
    *args: str | Path, stdin: bytes = b"", cwd: Path | None = None, **environment: str
) -> Done:
    """Run `tracekit ARGS` in a process of its own, with no terminal."""
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", *map(str, args)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=env,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
