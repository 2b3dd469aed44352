"""Checkpoints resume exactly, and damaged ones are refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.workload.small import SMALL, trainer
from tracekit.workload.checkpoint import load_checkpoint, read_checkpoint, save_checkpoint
from tracekit.workload.errors import WorkloadError
from tracekit.workload.rungs import rung
from tracekit.workload.train_step import Trainer

WITH_DROPOUT = replace(SMALL, unet=replace(SMALL.unet, dropout=0.1))


def losses(built: Trainer, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        built.step()
        found.append(built.loss())
    return found


@pytest.mark.parametrize("stepped_before_loading", [0, 2])
def test_resumes_bitwise(tmp_path: Path, stepped_before_loading: int) -> None:
    running = trainer("eager", preset=WITH_DROPOUT)
    losses(running, 3)
    save_checkpoint(running, tmp_path / "ddpm.pt")
    expected = losses(running, 8)  # into the second epoch
    resumed = trainer("eager", preset=WITH_DROPOUT, seed=123)
    losses(resumed, stepped_before_loading)
    load_checkpoint(resumed, tmp_path / "ddpm.pt")
    assert resumed.steps == 3
    assert losses(resumed, 8) == expected
    for mine, theirs in zip(resumed.ema.weights(), running.ema.weights(), strict=True):
        assert torch.equal(mine, theirs)
    assert [file.name for file in tmp_path.iterdir()] == ["ddpm.pt"]


def test_loading_keeps_every_tensor_where_a_graph_would_look_for_it(tmp_path: Path) -> None:
    running = trainer("eager")
    losses(running, 1)
    save_checkpoint(running, tmp_path / "ddpm.pt")

    def addresses() -> list[int]:
        moments = [t for state in running.optimizer.state.values() for t in state.values()]
        tensors = [*running.parameters, *running.ema.averages, running.ema.updates, *moments]
        return [tensor.data_ptr() for tensor in tensors]

    before = addresses()
    load_checkpoint(running, tmp_path / "ddpm.pt")
    assert addresses() == before


def test_another_rung_may_go_on(tmp_path: Path) -> None:
    running = trainer("eager")
    losses(running, 2)
    save_checkpoint(running, tmp_path / "ddpm.pt")
    other = trainer(replace(rung("3"), compile=None))
    load_checkpoint(other, tmp_path / "ddpm.pt")
    assert other.optimizer.state[other.parameters[0]]["step"].item() == 2
    torch.manual_seed(0)
    expected = losses(running, 2)
    torch.manual_seed(0)
    assert losses(other, 2) == pytest.approx(expected, rel=1e-4)


def test_before_the_first_step(tmp_path: Path) -> None:
    save_checkpoint(trainer("eager"), tmp_path / "ddpm.pt")
    resumed = trainer("eager")
    load_checkpoint(resumed, tmp_path / "ddpm.pt")
    resumed.step()
    assert resumed.steps == 1


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "ddpm.pt"
    with pytest.raises(WorkloadError, match="no checkpoint at"):
        read_checkpoint(path)
    built = trainer("eager")
    save_checkpoint(built, path)
    with pytest.raises(WorkloadError, match="made with batch 4, not 8"):
        load_checkpoint(trainer("eager", batch=8), path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no checkpoint", whole[:50]):
        path.write_bytes(damaged)
        with pytest.raises(WorkloadError, match="cannot be read as a checkpoint"):
            read_checkpoint(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(WorkloadError, match="no checkpoint of this workload"):
        read_checkpoint(path)


def test_an_unwritable_place_is_said_and_the_old_file_kept(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="could not be written"):
        save_checkpoint(trainer("eager"), tmp_path / "missing" / "ddpm.pt")
