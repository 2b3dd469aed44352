"""The image sets: CIFAR-10's archives, whole and damaged, and the stand-ins."""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracekit.workload import cifar10, data
from tracekit.workload.data import load_images
from tracekit.workload.errors import WorkloadError

PER_BATCH = 20


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "IMAGES_A_BATCH", PER_BATCH)


def pixels() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(7).integers(0, 256, (5 * PER_BATCH, 3072), dtype=np.uint8)


def folder(tmp_path: Path, version: str) -> Path:
    inner = tmp_path / f"cifar-10-batches-{'py' if version == 'python' else 'bin'}"
    inner.mkdir()
    for number in range(5):
        rows = pixels()[number * PER_BATCH : (number + 1) * PER_BATCH]
        if version == "python":
            content = pickle.dumps({b"data": rows, b"labels": [0] * PER_BATCH}, protocol=2)
            (inner / f"data_batch_{number + 1}").write_bytes(content)
        else:
            labelled = np.concatenate((np.full((PER_BATCH, 1), 9, np.uint8), rows), axis=1)
            (inner / f"data_batch_{number + 1}.bin").write_bytes(labelled.tobytes())
    return inner


def archive(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small archive that passes for the published one."""
    path = tmp_path / f"cifar-10-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder(tmp_path, version), arcname="cifar-10-batches")
    content = path.read_bytes()
    md5 = hashlib.md5(content).hexdigest()
    monkeypatch.setitem(cifar10.ARCHIVES, version, (len(content), md5))
    return path


@pytest.mark.parametrize("version", ["python", "binary"])
def test_archive_and_folder_hold_the_same_images(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path, version, monkeypatch)
    found = load_images(str(path))
    assert found.name == "CIFAR-10"
    np.testing.assert_array_equal(found.images, pixels().reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(load_images(str(tmp_path)).images, found.images)


def test_half_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, "python", monkeypatch)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WorkloadError, match=f"half-downloaded: .* of {len(whole):,} bytes"):
        load_images(str(path))


def test_right_size_wrong_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, "python", monkeypatch)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(WorkloadError, match="is damaged: its md5 is"):
        load_images(str(path))


def test_another_archive(tmp_path: Path) -> None:
    path = tmp_path / "cifar-100.tar.gz"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 200 << 20)  # sparse
    with pytest.raises(WorkloadError, match="not the published CIFAR-10 archive"):
        load_images(str(path))


def test_not_an_archive_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"<html>503</html>")
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(cifar10.ARCHIVES, "python", (path.stat().st_size, md5))
    with pytest.raises(WorkloadError, match="cannot be read as an archive"):
        load_images(str(path))


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("tracekit-was-here",)


def test_a_hostile_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inner = folder(tmp_path, "python")
    (inner / "data_batch_3").write_bytes(pickle.dumps({b"data": Hostile()}))
    with pytest.raises(WorkloadError, match=r"data_batch_3: the pickle asks for \w+\.mkdir"):
        load_images(str(inner))
    assert not Path("tracekit-was-here").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "data_batch_2 is damaged"),
        (pickle.dumps({b"data": pixels()[:3]}), "holds no array of 20 images"),
        (pickle.dumps([1, 2]), "holds no array of 20 images"),
        (pickle.dumps({b"data": pixels()[:20]}, protocol=2)[:-900], "data_batch_2 is damaged"),
    ],
)
def test_damaged_python_batches(tmp_path: Path, content: bytes, complaint: str) -> None:
    inner = folder(tmp_path, "python")
    (inner / "data_batch_2").write_bytes(content)
    with pytest.raises(WorkloadError, match=complaint):
        load_images(str(inner))


def test_a_cut_binary_batch(tmp_path: Path) -> None:
    inner = folder(tmp_path, "binary")
    (inner / "data_batch_5.bin").write_bytes(b"\0" * 1000)
    with pytest.raises(WorkloadError, match="1,000 bytes, not the 61,460"):
        load_images(str(inner))


def test_a_missing_batch(tmp_path: Path) -> None:
    inner = folder(tmp_path, "python")
    (inner / "data_batch_4").unlink()
    with pytest.raises(WorkloadError, match="lacks data_batch_4"):
        load_images(str(inner))


def test_an_empty_folder_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="holds no CIFAR-10 batch"):
        load_images(str(tmp_path))
    with pytest.raises(WorkloadError, match="no data set at"):
        load_images(str(tmp_path / "missing"))


def test_a_path_that_is_neither_file_nor_folder(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.npy"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(WorkloadError, match="neither a file nor a folder"):
            load_images(str(tmp_path / name))
    with pytest.raises(WorkloadError, match="too long"):
        load_images("x" * 300)


def test_batches_that_are_no_files(tmp_path: Path) -> None:
    for number, make in enumerate((os.mkfifo, os.mkdir, lambda p: p.symlink_to("nowhere"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for batch in range(1, 6):
            make(folder / f"data_batch_{batch}")
        with pytest.raises(WorkloadError, match="holds no CIFAR-10 batch"):
            load_images(str(folder))


def test_a_numpy_file_that_promises_more_than_it_has(tmp_path: Path) -> None:
    file = tmp_path / "images.npy"
    np.save(file, np.zeros((1, 3, 32, 32), np.uint8))
    for claim in (b"(9999999, 3, 32, 32), }      ", b"(9999999999999, 3, 32, 32), }"):
        start = file.read_bytes().replace(b"(1, 3, 32, 32), }            "[: len(claim)], claim)
        (tmp_path / "claim.npy").write_bytes(start)
        with pytest.raises(WorkloadError, match="cannot be read as a NumPy file"):
            load_images(str(tmp_path / "claim.npy"))
    np.savez(tmp_path / "two.npz", a=np.zeros(1))
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    with pytest.raises(WorkloadError, match="not one array"):
        load_images(str(tmp_path / "two.npy"))


def test_numpy_files(tmp_path: Path) -> None:
    images = pixels().reshape(-1, 3, 32, 32)
    np.save(tmp_path / "images.npy", images)
    np.testing.assert_array_equal(load_images(str(tmp_path / "images.npy")).images, images)
    np.save(tmp_path / "wrong.npy", images.astype(np.float32))
    with pytest.raises(WorkloadError, match="holds float32"):
        load_images(str(tmp_path / "wrong.npy"))
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(WorkloadError, match="cannot be read as a NumPy file"):
        load_images(str(tmp_path / "bad.npy"))
    np.save(tmp_path / "objects.npy", np.array([Hostile()]), allow_pickle=True)
    with pytest.raises(WorkloadError, match="cannot be read as a NumPy file"):
        load_images(str(tmp_path / "objects.npy"))


def test_the_stand_in_is_real_images_and_says_what_it_is() -> None:
    pytest.importorskip("skimage")
    pytest.importorskip("sklearn")
    found = load_images(None, 40)
    assert found.images.shape == (40, 3, 32, 32)
    assert "stand-in, not CIFAR-10" in found.name
    np.testing.assert_array_equal(found.images, load_images(None, 40).images)
    assert len({image.tobytes() for image in found.images}) == 40
    # Neighbouring pixels of photographs are alike, unlike those of noise.
    across = np.abs(np.diff(found.images.astype(int), axis=3)).mean()
    assert across < 25


def test_without_the_photographs_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "find_package", lambda name: None)
    with pytest.raises(WorkloadError, match="pip install scikit-image scikit-learn, or give"):
        load_images(None)


def test_synthetic_only_when_asked_and_labelled() -> None:
    found = load_images("synthetic", 16)
    assert found.images.shape == (16, 3, 32, 32)
    assert "not photographs, not CIFAR-10" in found.name


def test_a_folder_is_looked_into_for_the_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"half")
    with pytest.raises(WorkloadError, match=r"cifar-10-python\.tar\.gz is half-downloaded: 4 of"):
        load_images(str(tmp_path))
    (tmp_path / "cifar-10-python.tar.gz").unlink()
    with pytest.raises(
        WorkloadError, match=f"{tmp_path} holds no CIFAR-10 batch .* and no archive"
    ):
        load_images(str(tmp_path))
