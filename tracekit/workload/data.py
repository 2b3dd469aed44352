"""The training images: CIFAR-10 where a path is given, a labelled stand-in otherwise.

``load_images`` gives uint8 ``[N, 3, 32, 32]`` in memory; ``loaders.py`` turns them into batches.
"""

from __future__ import annotations

import importlib.util
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tracekit.workload.cifar10 import read_cifar10
from tracekit.workload.errors import WorkloadError

__all__ = ["ImageSet", "load_images"]

PHOTOGRAPHS = {
    "skimage": ("data", ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg",
                         "motorcycle_left.png", "hubble_deep_field.jpg", "retina.jpg")),
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
}  # fmt: skip
"""Colour photographs inside the two wheels, by package; none of them is downloaded."""


@dataclass(frozen=True)
class ImageSet:
    """Images and what to call them. ``images`` is uint8 ``[N, 3, 32, 32]``."""

    images: npt.NDArray[np.uint8]
    name: str


def load_images(data: str | None, count: int = 50_000, seed: int = 0) -> ImageSet:
    """The images that ``data`` names.

    ``None``: the real-image stand-in, ``count`` 32x32 crops of the photographs that scikit-image
    and scikit-learn ship. ``"synthetic"``: smooth random colour fields, only ever used when asked
    for by name. Otherwise a path: a CIFAR-10 archive or folder, or a ``.npy`` file of uint8
    ``[N, 3, 32, 32]``. Raises ``WorkloadError`` with one sentence when that cannot be had.
    """
    if data is None:
        return photo_crops(count, seed)
    if data == "synthetic":
        return synthetic(count, seed)
    path = Path(data)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as nothing:
        raise WorkloadError(f"There is no data set at {data}.") from nothing
    except OSError as problem:
        raise WorkloadError(f"There is no data set at {data}: {problem.strerror}.") from problem
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise WorkloadError(f"{data} is neither a file nor a folder.")
    if path.suffix == ".npy" and not stat.S_ISDIR(mode):
        return from_npy(path)
    return ImageSet(read_cifar10(path), "CIFAR-10")


def photo_crops(count: int, seed: int) -> ImageSet:
    """``count`` square crops of 32 to 256 pixels a side, averaged down to 32x32."""
    missing = [name for name in ("skimage", "sklearn", "PIL") if not find_package(name)]
    if missing:
        raise WorkloadError(
            f"The image stand-in needs {' and '.join(missing)}, not installed here: "
            "pip install scikit-image scikit-learn, or give --data PATH to CIFAR-10 or a .npy "
            "file of images, or --data synthetic."
        )
    from PIL import Image

    photographs = []
    for package, (folder, names) in PHOTOGRAPHS.items():
        place = find_package(package)
        assert place is not None
        for name in names:
            if (place / folder / name).is_file():
                with Image.open(place / folder / name) as opened:
                    photographs.append(opened.convert("RGB"))
    if not photographs:
        raise WorkloadError("scikit-image and scikit-learn are installed without their images.")
    random = np.random.default_rng(seed)
    images = np.empty((count, 3, 32, 32), dtype=np.uint8)
    for index in range(count):
        photograph = photographs[index % len(photographs)]
        side = int(32 * 2 ** random.uniform(0, min(3.0, np.log2(min(photograph.size) / 32))))
        left = int(random.integers(photograph.width - side + 1))
        top = int(random.integers(photograph.height - side + 1))
        crop = photograph.resize(
            (32, 32), Image.Resampling.BOX, (left, top, left + side, top + side)
        )
        images[index] = np.asarray(crop).transpose(2, 0, 1)
    name = f"{count:,} crops of {len(photographs)} photographs (stand-in, not CIFAR-10)"
    return ImageSet(images, name)


def synthetic(count: int, seed: int) -> ImageSet:
    """Smooth random colour fields: 4x4 random colours, interpolated to 32x32."""
    random = np.random.default_rng(seed)
    corners = random.random((count, 3, 5, 5), dtype=np.float32)
    # Bilinear interpolation as two small matrix products.
    position = np.linspace(0, 4, 32, dtype=np.float32)
    weights = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(5, dtype=np.float32)))
    fields = weights @ corners @ weights.T
    images = (fields * 255).round().astype(np.uint8)
    return ImageSet(images, f"{count:,} synthetic colour fields (not photographs, not CIFAR-10)")


def from_npy(path: Path) -> ImageSet:
    """A NumPy file of uint8 ``[N, 3, 32, 32]``; pickled objects in it are refused."""
    try:
        # mapped first: a damaged header may promise more bytes than the file (or the memory) has
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, OverflowError, MemoryError) as damage:
        raise WorkloadError(f"{path} cannot be read as a NumPy file: {damage}.") from damage
    if not isinstance(images, np.ndarray):
        raise WorkloadError(f"{path} is an archive of arrays (.npz), not one array (.npy).")
    if (
        images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[1:] != (3, 32, 32)
        or len(images) == 0
    ):
        raise WorkloadError(
            f"{path} holds {images.dtype} of shape {images.shape}, not uint8 (N, 3, 32, 32)."
        )
    return ImageSet(np.array(images), f"{len(images):,} images of {path.name}")


def find_package(name: str) -> Path | None:
    """Where an installed package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def main() -> None:
    """``python -m tracekit.workload.data OUT.npy [COUNT]``: the stand-in, for another machine."""
    target, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    images = load_images(None, count)
    np.save(target, images.images)
    print(f"{target}: {images.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
