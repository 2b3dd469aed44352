"""Where a recording goes, checked before the program has run for hours."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from tracekit.profiler.environment import Rank
from tracekit.profiler.errors import RecordError

NEEDED_BYTES = 32 << 20
"""Free space below which a recording is refused up front (a small one is 1 to 100 MB)."""

_SUFFIXES = (".json.gz", ".json")
_OTHER_SUFFIXES = (".gz", ".zst", ".zip")


@dataclass(frozen=True)
class Destination:
    """The two files of one recording, absolute: the program may change its working directory."""

    trace: Path
    manifest: Path

    @property
    def shown(self) -> str:
        """The trace as a person names it."""
        return _shown(self.trace)

    @property
    def compressed(self) -> bool:
        """True where the trace is gzipped."""
        return self.trace.name.endswith(".gz")


def resolve(out: str | os.PathLike[str], rank: Rank) -> Destination:
    """The files for `out`: a directory, or a file that ends in .json or .json.gz.

    A directory gets `trace.json.gz` and `manifest.json`; a file `NAME.json.gz` gets
    `NAME.manifest.json` beside it. In a job of several ranks each has its own:
    `trace-rank3.json.gz`, `manifest-rank3.json`; `NAME-rank3.json.gz`.

    Raises `RecordError` (usage) for an empty name and for a file of another kind.
    """
    if not os.fspath(out):
        raise RecordError("the name of the output is empty", usage=True)
    path = Path(out).absolute()
    # unlike Path.is_dir, no error for a name that is too long: `prepare` refuses it
    folder = os.path.isdir(path)  # noqa: PTH112
    tag = f"-rank{rank.rank}" if rank.world_size > 1 else ""
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix) and not folder:
            stem = path.name.removesuffix(suffix) + tag
            return Destination(
                path.with_name(stem + suffix), path.with_name(stem + ".manifest.json")
            )
    if path.name.endswith(_OTHER_SUFFIXES) and not folder:
        raise RecordError(
            f"cannot record to {out}: give a directory, or a file that ends in "
            f"{' or '.join(_SUFFIXES)}",
            usage=True,
        )
    return Destination(path / f"trace{tag}.json.gz", path / f"manifest{tag}.json")


def prepare(destination: Destination) -> None:
    """Make the directory and prove that it can be written to.

    Raises `RecordError` with a sentence for a path that is no directory, is not writable, or
    has less than `NEEDED_BYTES` free, and for a file name that cannot be one.
    """
    folder = destination.trace.parent
    place = _shown(folder)
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory")
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".tracekit-probe-{os.getpid()}"
        try:
            probe.write_bytes(b"\0" * 4096)
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
        for file in (destination.trace, destination.manifest):
            place = _shown(file)
            _check_name(file)
    except OSError as error:
        raise RecordError(f"cannot write to {place}: {reason(error)}") from error
    if free < NEEDED_BYTES:
        raise RecordError(
            f"cannot record to {_shown(folder)}: {free / 2**20:.0f} MiB free there, "
            f"{NEEDED_BYTES / 2**20:.0f} MiB needed at least"
        )


def _check_name(file: Path) -> None:
    """Raises OSError for a name that the file system refuses, and for a directory."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(file.stat().st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")


def _shown(path: Path) -> str:
    """From the working directory where it lies below it, whole elsewhere."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def reason(error: OSError) -> str:
    """The system's own words for an error, in lower case ("no space left on device")."""
    words = error.strerror or str(error) or type(error).__name__
    return words[0].lower() + words[1:]
