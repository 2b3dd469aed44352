"""Reading CIFAR-10's published archives, python and binary version, packed or unpacked.

Format: https://www.cs.toronto.edu/~kriz/cifar.html. The python version is a pickle; it is read by
an unpickler that can build NumPy arrays and nothing else, so a hostile file cannot run code.
"""

from __future__ import annotations

import hashlib
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tracekit.workload.errors import WorkloadError

__all__ = ["read_cifar10"]

ARCHIVES = {
    "python": (170_498_071, "c58f30108f718f92721af3b95e74349a"),
    "binary": (170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
}
"""Bytes and md5 of the two published archives."""

PYTHON_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
BINARY_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
ARCHIVE_NAMES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
"""As published; looked for in a folder without unpacked batches."""
IMAGES_A_BATCH = 10_000
PIXELS = 3 * 32 * 32
LARGEST_BATCH = 64 << 20
"""No published batch file is over 32 MB; a larger one is not read into memory."""

Images = npt.NDArray[np.uint8]


def read_cifar10(path: Path) -> Images:
    """The 50,000 training images as uint8 ``[N, 3, 32, 32]``.

    ``path`` is an archive, the folder it lies in, or the folder of an unpacked one.

    Raises ``WorkloadError`` naming the file and the damage: half-downloaded, not the published
    archive, a missing or damaged batch.
    """
    if path.is_dir():
        try:
            inner = unpacked(path)
            if inner is not None:
                return from_folder(inner)
        except OSError as damage:
            raise WorkloadError(f"{path} cannot be read: {damage}.") from damage
        packed = [path / name for name in ARCHIVE_NAMES if (path / name).is_file()]
        if not packed:
            raise WorkloadError(
                f"{path} holds no CIFAR-10 batch (data_batch_1 or data_batch_1.bin) and no archive "
                f"({' or '.join(ARCHIVE_NAMES)})."
            )
        path = packed[0]
    try:
        check_archive(path)
        return from_archive(path)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as damage:
        raise WorkloadError(f"{path} cannot be read as an archive: {damage}.") from damage


def check_archive(path: Path) -> None:
    """Compare size and md5 with the published archives before anything in it is trusted."""
    size = path.stat().st_size
    sizes = {expected: version for version, (expected, _) in ARCHIVES.items()}
    if size not in sizes:
        likely = "binary" if "bin" in path.name else "python"
        whole = ARCHIVES[likely][0]
        if size < whole:
            raise WorkloadError(
                f"{path} is half-downloaded: {size:,} of {whole:,} bytes of the CIFAR-10 {likely} "
                "archive; download it again."
            )
        raise WorkloadError(
            f"{path} is not the published CIFAR-10 archive: {size:,} bytes where the {likely} "
            f"version has {whole:,}."
        )
    expected_md5 = ARCHIVES[sizes[size]][1]
    with path.open("rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != expected_md5:
        raise WorkloadError(
            f"{path} is damaged: its md5 is {md5}, the published archive's is {expected_md5}; "
            "download it again."
        )


def from_archive(path: Path) -> Images:
    """Batches straight from the tar file; nothing is unpacked to the disk."""
    with tarfile.open(path) as archive:
        members = {Path(member.name).name: member for member in archive if member.isfile()}
        names = batch_names(members.keys() | set(), path)

        def batches() -> Iterator[tuple[str, IO[bytes], int]]:
            for name in names:
                file = archive.extractfile(members[name])
                assert file is not None  # isfile() above
                yield f"{path}, {name}", file, members[name].size

        return stack(batches())


def unpacked(folder: Path) -> Path | None:
    """Where an unpacked archive's batches lie: the folder itself or one in it; None where none."""
    for inner in (folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin"):
        present = {file.name for file in inner.iterdir()} if inner.is_dir() else set()
        if present & {*PYTHON_BATCHES, *BINARY_BATCHES}:
            return inner
    return None


def from_folder(inner: Path) -> Images:
    """The batches of an unpacked archive."""
    names = batch_names({file.name for file in inner.iterdir() if file.is_file()}, inner)

    def batches() -> Iterator[tuple[str, IO[bytes], int]]:
        for name in names:
            file = inner / name
            with file.open("rb") as opened:
                yield str(file), opened, file.stat().st_size

    return stack(batches())


def batch_names(present: set[str], place: Path) -> tuple[str, ...]:
    """The five batch files of the version that is there; says which are missing."""
    for names in (PYTHON_BATCHES, BINARY_BATCHES):
        found = [name for name in names if name in present]
        if len(found) == len(names):
            return names
        if found:
            missing = ", ".join(name for name in names if name not in present)
            raise WorkloadError(f"{place} lacks {missing}: CIFAR-10 has five training batches.")
    raise WorkloadError(f"{place} holds no CIFAR-10 batch (data_batch_1 or data_batch_1.bin).")


def stack(batches: Iterator[tuple[str, IO[bytes], int]]) -> Images:
    """All batches as one array ``[N, 3, 32, 32]``."""
    parts = []
    for name, file, size in batches:
        if size > LARGEST_BATCH:
            raise WorkloadError(f"{name} is {size:,} bytes, too large for a CIFAR-10 batch.")
        data = file.read()
        rows = binary_rows(name, data) if name.endswith(".bin") else python_rows(name, data)
        parts.append(rows.reshape(-1, 3, 32, 32))
    return np.concatenate(parts)


def binary_rows(name: str, data: bytes) -> Images:
    """Rows of 1 label byte and 3,072 pixel bytes, label dropped."""
    if not data or len(data) != IMAGES_A_BATCH * (1 + PIXELS):
        raise WorkloadError(
            f"{name} has {len(data):,} bytes, not the {IMAGES_A_BATCH * (1 + PIXELS):,} of a "
            "CIFAR-10 binary batch."
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 1 + PIXELS)[:, 1:]


def python_rows(name: str, data: bytes) -> Images:
    """The ``data`` array of a python batch, checked for type and shape."""
    import io

    try:
        batch = ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except WorkloadError as refused:
        raise WorkloadError(f"{name}: {refused}") from refused
    except Exception as damage:  # a damaged pickle raises anything from KeyError to MemoryError
        raise WorkloadError(f"{name} is damaged: {type(damage).__name__} {damage}.") from damage
    rows = batch.get(b"data") if isinstance(batch, dict) else None
    if not (
        isinstance(rows, np.ndarray)
        and rows.dtype == np.uint8
        and rows.shape == (IMAGES_A_BATCH, PIXELS)
    ):
        raise WorkloadError(f"{name} holds no array of {IMAGES_A_BATCH:,} images of 3x32x32 bytes.")
    return rows


class ArrayUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and plain containers; refuses every other class or function."""

    def find_class(self, module: str, name: str) -> Any:
        # Archives of 2009 say numpy.core; NumPy 2 calls it numpy._core.
        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"): ("numpy", "ndarray"),
            ("numpy", "dtype"): ("numpy", "dtype"),
            ("_codecs", "encode"): ("_codecs", "encode"),
        }
        place = allowed.get((module, name))
        if place is None:
            raise WorkloadError(f"the pickle asks for {module}.{name}, which no image batch needs")
        if place[0] == "numpy._core.multiarray" and np.lib.NumpyVersion(np.__version__) < "2.0.0":
            place = ("numpy.core.multiarray", place[1])
        return super().find_class(*place)
