"""Where a recording goes, checked before the program has run for hours."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tracekit.profiler.environment import Rank
from tracekit.profiler.errors import RecordError

NEEDED_BYTES = 32 << 20
"""Free space below which a recording is refused up front (a small one is 1 to 100 MB)."""

_SUFFIXES = (".json.gz", ".json")


@dataclass(frozen=True)
class Destination:
    """The two files of one recording."""

    trace: Path
    manifest: Path

    @property
    def compressed(self) -> bool:
        """True where the trace is gzipped."""
        return self.trace.name.endswith(".gz")


def resolve(out: str | os.PathLike[str], rank: Rank) -> Destination:
    """The files for `out`: a directory, or a file that ends in .json or .json.gz.

    A directory gets `trace.json.gz` and `manifest.json`; a file `NAME.json.gz` gets
    `NAME.manifest.json` beside it. In a job of several ranks each has its own:
    `trace-rank3.json.gz`, `manifest-rank3.json`; `NAME-rank3.json.gz`.
    """
    path = Path(out)
    tag = f"-rank{rank.rank}" if rank.world_size > 1 else ""
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix) and not path.is_dir():
            stem = path.name.removesuffix(suffix) + tag
            return Destination(
                path.with_name(stem + suffix), path.with_name(stem + ".manifest.json")
            )
    return Destination(path / f"trace{tag}.json.gz", path / f"manifest{tag}.json")


def prepare(destination: Destination) -> None:
    """Make the directory and prove that it can be written to.

    Raises `RecordError` with a sentence for a path that is no directory, is not writable, or
    has less than `NEEDED_BYTES` free.
    """
    folder = destination.trace.parent
    if folder.exists() and not folder.is_dir():
        raise RecordError(f"cannot write to {folder}: it is not a directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".tracekit-probe-{os.getpid()}"
        try:
            probe.write_bytes(b"\0" * 4096)
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise RecordError(f"cannot write to {folder}: {reason(error)}") from error
    if free < NEEDED_BYTES:
        raise RecordError(
            f"cannot record to {folder}: {free / 2**20:.0f} MiB free there, "
            f"{NEEDED_BYTES / 2**20:.0f} MiB needed at least"
        )


def reason(error: OSError) -> str:
    """The system's own words for an error, in lower case ("no space left on device")."""
    words = error.strerror or str(error) or type(error).__name__
    return words[0].lower() + words[1:]
