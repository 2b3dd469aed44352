"""From a checkpoint to a picture."""

from __future__ import annotations

import errno
import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.workload.small import images
from tracekit.commands.sample import command
from tracekit.workload.checkpoint import read_checkpoint, save_checkpoint
from tracekit.workload.errors import WorkloadError
from tracekit.workload.rungs import rung
from tracekit.workload.sample import grid, png, sample_checkpoint
from tracekit.workload.train import main as train
from tracekit.workload.train_step import build


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "ddpm.pt"
    built = build(rung("eager"), preset="tiny", device="cpu", images=images())
    built.step()
    save_checkpoint(built, path)
    return path


def decoded(content: bytes) -> np.ndarray:
    """The pixels of a PNG written with filter 0, read by the standard's own layout."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", content[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(kind + body)
        chunks[kind] = body
        place += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_a_grid_is_read_back_from_its_png() -> None:
    pictures = np.arange(3 * 3 * 2 * 2, dtype=np.uint8).reshape(3, 3, 2, 2)
    found = decoded(png(grid(pictures)))
    assert found.shape == (4, 4, 3)
    np.testing.assert_array_equal(found[:2, :2], pictures[0].transpose(1, 2, 0))
    np.testing.assert_array_equal(found[:2, 2:], pictures[1].transpose(1, 2, 0))
    np.testing.assert_array_equal(found[2:, :2], pictures[2].transpose(1, 2, 0))
    assert not found[2:, 2:].any()


def test_samples_depend_on_the_seed_alone(checkpoint: Path) -> None:
    first, again, other = (
        sample_checkpoint(checkpoint, 2, steps=3, seed=seed) for seed in (0, 0, 1)
    )
    assert first.shape == (2, 3, 32, 32)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_command_writes_a_picture(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "grid.png"
    arguments = [str(checkpoint), "-o", str(target), "--images", "5", "--steps", "2"]
    done = CliRunner().invoke(command, [*arguments, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert decoded(target.read_bytes()).shape == (64, 96, 3)


def test_training_keeps_a_checkpoint_even_where_warming_up_took_every_step(tmp_path: Path) -> None:
    target = tmp_path / "ddpm.pt"
    arguments = ["--rung", "eager", "--preset", "tiny", "--device", "cpu", "--batch", "1"]
    arguments += ["--data", "synthetic", "--steps", "1", "-o", str(target)]
    done = CliRunner().invoke(train, arguments)
    assert done.exit_code == 0, done.output
    assert read_checkpoint(target)["steps"] >= 1
    assert "nan" not in done.output
    refused = CliRunner().invoke(train, [*arguments[:-1], str(tmp_path / "no" / "ddpm.pt")])
    assert (refused.exit_code, "Cannot write" in refused.output) == (2, True)


def test_a_disk_that_fills_up_keeps_the_picture_that_was_there(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "grid.png"
    target.write_bytes(b"before")

    def full(file: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    arguments = [str(checkpoint), "-o", str(target), "--images", "1", "--steps", "1"]
    done = CliRunner().invoke(command, [*arguments, "--device", "cpu"])
    assert done.exit_code == 1
    assert "No space left" in done.output
    assert [(f.name, f.read_bytes()) for f in tmp_path.iterdir()] == [("grid.png", b"before")]


def test_what_is_no_checkpoint_is_refused_without_unsafe_advice(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(pickle.dumps(print))
    with pytest.raises(WorkloadError, match="cannot be read as a checkpoint of this") as refused:
        sample_checkpoint(tmp_path / "x.pt", 1)
    assert "weights_only" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.pt", "-o", "grid.png"], 1, "no checkpoint at missing.pt"),
        (["missing.pt", "-o", "no/where/grid.png"], 2, "there is no directory"),
        (["missing.pt", "-o", "grid.png", "--steps", "0"], 2, "not in the range"),
    ],
)
def test_the_command_refuses(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, [*arguments, "--device", "cpu"])
    assert done.exit_code == code
    assert message in done.output
