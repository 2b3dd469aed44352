"""A file, a stream or standard input as blocks of uncompressed text.

What a file is packed with is told by its first bytes, not by its name. A stream that is cut or
damaged gives what was read before that, and the damage.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from tracekit.trace.errors import TraceError

BLOCK = 1 << 20
_ZSTD_PIECE = 1 << 10
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

Progress = Callable[[int, int], None]


class Source:
    """Uncompressed blocks of a trace: iterate it once.

    Args:
        source: a path, "-" for standard input, or an object with `read(size) -> bytes`.
        progress: called with (bytes read of the file, the file's size or 0) after each block.
        block: bytes to read at a time. A megabyte of events, decoded, about fills a core's cache.
        start, stop: the part of a plain file to read.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        progress: Progress | None = None,
        block: int = BLOCK,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.name, self._file, self.size = _opened(source)
        self._own = not hasattr(source, "read") and self.name != "<stdin>"
        self.path = self.name if self._own else None
        """where it can be opened again"""
        self._progress = progress
        self._block = block
        self._done = start
        self._stop = stop
        if start:
            self._file.seek(start)
        self.damage: str | None = None
        """why the stream ended early, once it has been read"""
        self.packed: str | None = None
        self.bytes = 0
        """uncompressed bytes given so far"""

    def __iter__(self) -> Iterator[bytes]:
        try:
            first = self._read()
            if first.startswith(_GZIP):
                self.packed = "gzip"
                blocks = self._gunzip(first)
            elif first.startswith(_ZSTD):
                self.packed = "zstd"
                blocks = self._unzstd(first)
            else:
                blocks = self._plain(first)
            for block in blocks:
                self.bytes += len(block)
                yield block
        finally:
            self.close()

    def close(self) -> None:
        """Closes the file, if it was opened here."""
        if self._own:
            self._file.close()

    def _read(self) -> bytes:
        try:
            want = self._block
            if self._stop is not None:
                want = max(0, min(want, self._stop - self._done))
            block = self._file.read(want)
        except OSError as error:
            raise TraceError(
                f"{self.name}: cannot be read at byte {self._done} ({error.strerror or error})."
            ) from error
        self._done += len(block)
        if self._progress is not None:
            self._progress(self._done, self.size)
        return block

    def _plain(self, block: bytes) -> Iterator[bytes]:
        while block:
            yield block
            block = self._read()

    def _gunzip(self, block: bytes) -> Iterator[bytes]:
        unzip = zlib.decompressobj(wbits=31)
        while block:
            try:
                out = unzip.decompress(block, self._block)
            except zlib.error as error:
                self.damage = f"the gzip stream is damaged ({_reason(error)})"
                return
            if out:
                yield out
            if unzip.eof:
                block = (unzip.unused_data or self._read()).lstrip(b"\0")
                if not block:
                    block = self._read().lstrip(b"\0")
                if block and not block.startswith(_GZIP[: len(block)]):
                    self.damage = "bytes that are not gzip follow the gzip stream"
                    return
                if block:
                    unzip = zlib.decompressobj(wbits=31)
            else:
                block = unzip.unconsumed_tail or self._read()
        if not unzip.eof and self._done:
            try:
                out = unzip.flush()
            except zlib.error:
                out = b""
            if out:
                yield out
            if not unzip.eof:
                self.damage = "the gzip stream ends early"

    def _unzstd(self, block: bytes) -> Iterator[bytes]:
        packer = zstandard.ZstdDecompressor()
        unzip = packer.decompressobj()
        begun = False
        held: list[bytes] = []
        size = 0
        while block:
            at = 0
            while at < len(block):
                # zstd has no limit for what a call gives, but no byte expands to over 32 KB
                piece = block[at : at + _ZSTD_PIECE]
                at += len(piece)
                try:
                    out = unzip.decompress(piece)
                except zstandard.ZstdError as error:
                    self.damage = f"the zstd stream is damaged ({_reason(error)})"
                    yield b"".join(held)
                    return
                begun = not unzip.eof
                if unzip.eof:
                    at -= len(unzip.unused_data)
                    unzip = packer.decompressobj()
                held.append(out)
                size += len(out)
                if size >= self._block:
                    yield b"".join(held)
                    held, size = [], 0
            block = self._read()
        if begun:
            self.damage = "the zstd stream ends early"
        if held:
            yield b"".join(held)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("Error ").strip()


def _opened(source: str | os.PathLike[str] | BinaryIO) -> tuple[str, BinaryIO, int]:
    if not isinstance(source, str | os.PathLike):
        return str(getattr(source, "name", "<stream>")), source, 0
    if source == "-":
        return "<stdin>", sys.stdin.buffer, 0
    if not os.fspath(source):
        raise TraceError("'': is not the name of a file.")
    path = Path(source)
    try:
        if path.is_dir():
            raise TraceError(f"{path}: is a directory, not a trace file.")
        file = path.open("rb", buffering=0)
        return str(path), file, path.stat().st_size
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file.") from None
    except PermissionError:
        raise TraceError(f"{path}: cannot be opened, permission denied.") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be opened ({error.strerror or error}).") from None
    except ValueError as error:  # a NUL in the name
        raise TraceError(f"{str(path)!r}: cannot be opened ({error}).") from None
