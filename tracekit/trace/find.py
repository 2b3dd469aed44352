"""Trace files of a directory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from tracekit.trace.errors import TraceError

SUFFIXES = (".json", ".json.gz", ".json.zst")


def find_traces(
    directory: str | os.PathLike[str], unlisted: Callable[[str, TraceError], object] | None = None
) -> list[Path]:
    """The trace files in a directory and below it, by name (rank-2 before rank-10).

    Args:
        directory: where to look.
        unlisted: called with each folder below it that cannot be listed, and why; without it,
            the first such folder is an error.

    Raises:
        TraceError: it is no directory, cannot be listed, or holds none.
    """
    root = Path(directory)

    def failed(error: OSError) -> None:
        folder = str(error.filename)
        why = TraceError(f"{folder}: cannot be listed ({error.strerror or error}).")
        if unlisted is None or folder == str(root):
            raise why
        unlisted(folder, why)

    if not root.is_dir():
        raise TraceError(f"{root}: is not a directory.")
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(root, onerror=failed)
        for name in names
        if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        if not _is_special(Path(folder) / name) and not _is_manifest(Path(folder) / name)
    ]
    if not found:
        raise TraceError(f"{root}: holds no trace; its files should end in {', '.join(SUFFIXES)}.")
    return sorted(found, key=_by_number)


def _is_special(path: Path) -> bool:
    """A named pipe, socket or device: reading one may never end."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a broken link, say: reading it will tell
        return False


def _is_manifest(path: Path) -> bool:
    """What a recorder writes beside its trace (`manifest.json`): no trace, though JSON."""
    if not re.fullmatch(r"manifest(-rank\d+)?\.json|.+\.manifest\.json", path.name):
        return False
    try:
        with path.open("rb") as file:
            return file.read(64).split()[:2] == [b"{", b'"schema_version":']
    except OSError:  # reading it will tell
        return False


def _by_number(path: Path) -> tuple[tuple[int, str], ...]:
    parts = re.split(r"(\d+)", str(path))
    return tuple((int(p), p) if p.isdecimal() else (-1, p) for p in parts)
