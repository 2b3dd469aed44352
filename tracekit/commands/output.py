"""Where a command's result goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click


def write(text: str, path: str | None) -> None:
    """Write a result to stdout (path None or '-') or to a file.

    Raises:
        click.UsageError: if the file cannot be written.
        BrokenPipeError: if stdout's reader has gone.
    """
    if path is None or path == "-":
        _to_stdout(text)
        return
    try:
        _to_file(text, Path(path))
    except OSError as error:
        why = error.strerror or str(error)
        raise click.UsageError(f"Cannot write {path}: {why}") from None


def check_writable(path: str | None) -> None:
    """Refuse an output path before the work is done, not after.

    Raises:
        click.UsageError: if its folder is missing or it is a folder itself.
    """
    if path is None or path == "-":
        return
    target = Path(path)
    if not path:
        raise click.UsageError("-o names no file")
    if target.is_dir():
        raise click.UsageError(f"Cannot write {path}: it is a directory")
    if not target.parent.is_dir():
        raise click.UsageError(f"Cannot write {path}: there is no directory {target.parent}")


def check_apart(path: str | None, inputs: list[str]) -> None:
    """Refuse to write the result over one of the files that it is made from.

    Raises:
        click.UsageError: if `path` is one of `inputs`.
    """
    for file in inputs if path is not None else ():
        try:
            same = Path(file).is_file() and Path(file).samefile(path or "")
        except OSError:
            continue
        if same:
            raise click.UsageError(f"Cannot write {path}: it is one of the traces")


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _to_stdout(text: str) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        why = error.strerror or str(error)
        raise click.UsageError(f"Cannot write to standard output: {why}") from None


def _to_file(text: str, target: Path) -> None:
    if target.exists() and not target.is_file():  # /dev/stdout, a named pipe
        target.write_text(text, "utf-8")
        return
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
