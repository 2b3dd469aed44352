"""Trace files of a directory."""

from __future__ import annotations

import os
from pathlib import Path

from tracekit.trace.errors import TraceError

SUFFIXES = (".json", ".json.gz", ".json.zst")


def find_traces(directory: str | os.PathLike[str]) -> list[Path]:
    """The trace files in a directory and below it, by name (rank-2 before rank-10).

    Raises:
        TraceError: it is no directory, cannot be listed, or holds none.
    """
    root = Path(directory)
    if not root.is_dir():
        raise TraceError(f"{root}: is not a directory.")
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(root)
        for name in names
        if name.lower().endswith(SUFFIXES) and not name.startswith(".")
    ]
    if not found:
        raise TraceError(f"{root}: holds no trace; its files should end in {', '.join(SUFFIXES)}.")
    return sorted(found, key=_by_number)


def _by_number(path: Path) -> tuple[tuple[int, str], ...]:
    import re

    parts = re.split(r"(\d+)", str(path))
    return tuple((int(p), p) if p.isdigit() else (-1, p) for p in parts)
