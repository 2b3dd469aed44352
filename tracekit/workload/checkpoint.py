"""Checkpoints that resume exactly: the next losses are those of the run that was never stopped.

A checkpoint holds the weights, the EMA, the optimizer's moments, the state of the CPU's and the
GPU's random generators, the loader's position and the number of steps. It is read with
``torch.load(weights_only=True)``, which builds tensors and plain containers and runs no code.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tracekit.workload.errors import WorkloadError
from tracekit.workload.train_step import Trainer

__all__ = ["SCHEMA_VERSION", "load_checkpoint", "read_checkpoint", "save_checkpoint"]

SCHEMA_VERSION = 1


def save_checkpoint(trainer: Trainer, path: str | Path) -> None:
    """Write ``trainer`` to ``path``, all or nothing. Raises ``WorkloadError`` if it cannot."""
    path = Path(path)
    state = {
        "schema_version": SCHEMA_VERSION,
        "rung": trainer.rung.key,
        "preset": trainer.preset.name,
        "batch": trainer.batch,
        "steps": trainer.steps,
        "model": trainer.model.state_dict(),
        "ema": trainer.ema.state(),
        "optimizer": {
            key: [state_of(trainer, p, key) for p in trainer.parameters]
            for key in ("step", "exp_avg", "exp_avg_sq")
        },
        "loader": trainer.loader.state(),
        "rng_cpu": torch.get_rng_state(),
        "rng_device": (
            torch.cuda.get_rng_state(trainer.device) if trainer.device.type == "cuda" else None
        ),
    }
    partial = path.with_name(path.name + ".partial")
    try:
        torch.save(state, partial)
        partial.replace(path)
    except (OSError, RuntimeError) as problem:  # torch reports a full disk as RuntimeError
        partial.unlink(missing_ok=True)
        raise WorkloadError(f"The checkpoint {path} could not be written: {problem}.") from problem


def state_of(trainer: Trainer, parameter: Tensor, key: str) -> Tensor | None:
    """One optimizer tensor of one parameter; None before the first step."""
    found: Tensor | None = trainer.optimizer.state.get(parameter, {}).get(key)
    return found


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The checkpoint's content on the CPU. Raises ``WorkloadError`` if it is none or damaged."""
    path = Path(path)
    if not path.is_file():
        raise WorkloadError(f"There is no checkpoint at {path}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that torch did not write
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as bad:  # a damaged pickle raises anything from IndexError to MemoryError
        # torch's own words advise to load it with weights_only=False, which would run its code
        reason = "" if isinstance(bad, pickle.UnpicklingError) else f": {first_line(bad)}"
        raise WorkloadError(
            f"{path} cannot be read as a checkpoint of this workload{reason}."
        ) from bad
    if not isinstance(state, dict) or state.get("schema_version") != SCHEMA_VERSION:
        raise WorkloadError(f"{path} is no checkpoint of this workload (schema {SCHEMA_VERSION}).")
    return state


def first_line(error: Exception) -> str:
    """The first line of an error's message, without its full stop, or the error's name."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def load_checkpoint(trainer: Trainer, path: str | Path) -> None:
    """Put ``trainer`` where the checkpoint's run stood; ``WorkloadError`` if it does not fit.

    Everything is copied in place, so this works before and after a rung has captured its graph.
    The rung may differ from the checkpoint's: all rungs train the same thing.
    """
    state = read_checkpoint(path)
    for what in ("preset", "batch"):
        mine = {"preset": trainer.preset.name, "batch": trainer.batch}[what]
        if state[what] != mine:
            raise WorkloadError(f"{path} was made with {what} {state[what]}, not {mine}.")
    trainer.model.load_state_dict(state["model"])
    trainer.ema.load(**state["ema"])
    moments = state["optimizer"]
    for index, parameter in enumerate(trainer.parameters):
        saved = {key: tensors[index] for key, tensors in moments.items()}
        restore_moments(trainer, parameter, saved)
    trainer.loader.load_state(state["loader"])
    trainer.steps = state["steps"]
    trainer.loss()  # forget losses from before
    torch.set_rng_state(state["rng_cpu"])
    if trainer.device.type == "cuda" and state["rng_device"] is not None:
        torch.cuda.set_rng_state(state["rng_device"], trainer.device)


def restore_moments(trainer: Trainer, parameter: Tensor, saved: dict[str, Tensor | None]) -> None:
    """One parameter's step count and moments, in place where the optimizer already has them."""
    mine = trainer.optimizer.state[parameter]
    for key, value in saved.items():
        if value is None:  # saved before the first step
            trainer.optimizer.state.pop(parameter, None)
            return
        if key in mine:
            mine[key].copy_(value)
        elif key == "step":
            # foreach AdamW counts on the CPU, fused and capturable AdamW on the device.
            counts_on_device = trainer.rung.optimizer == "fused"
            mine[key] = value.to(trainer.device if counts_on_device else "cpu")
        else:
            mine[key] = torch.empty_like(parameter, requires_grad=False).copy_(value)
