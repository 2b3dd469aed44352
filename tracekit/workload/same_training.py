"""Do all rungs train the same thing? Train each from the same weights and data, and compare.

``python -m tracekit.workload.same_training --rungs 0-5 --steps 200 --seed 0``

Every rung starts from the same weights and sees the same images in the same order, with dropout on.
Noise, times and dropout masks are equal in distribution, not in value: compiled code draws them
from other kernels. So losses are compared on one fixed set of noised images, with dropout off and
in float32, and rung 0 is also trained a second time with other noise, to show how far two equal
trainings lie apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch

from tracekit.workload.data import ImageSet, load_images
from tracekit.workload.diffusion import TIMESTEPS, denoising_loss
from tracekit.workload.errors import WorkloadError
from tracekit.workload.rungs import RUNGS, Rung, UnknownRung, parse_rungs
from tracekit.workload.train_step import PRESETS, Trainer, build

TOLERANCE = 0.05
"""Largest relative difference of the fixed-set loss from rung 0's; the control row says how much
of that two trainings of one rung differ by."""

FIXED_IMAGES = 1024


def fixed_loss(trainer: Trainer, images: ImageSet, seed: int) -> float:
    """Loss on a fixed set of noised images, dropout off, float32, no compilation."""
    random = torch.Generator().manual_seed(seed + 1)
    count = min(FIXED_IMAGES, len(images.images))
    x0 = torch.from_numpy(images.images[:count]).float() * (2 / 255) - 1
    # Times spread evenly, so that the mean is not one of a lucky draw.
    t = torch.linspace(0, TIMESTEPS - 1, count).long()
    noise = torch.randn(x0.shape, generator=random)
    trainer.model.eval()
    total = 0.0
    with torch.no_grad():
        for first in range(0, count, trainer.batch):
            piece = slice(first, first + trainer.batch)
            images_at, times, drawn = (part[piece].to(trainer.device) for part in (x0, t, noise))
            loss = denoising_loss(trainer.model, trainer.schedule, images_at, times, drawn)
            total += loss.item() * len(images_at)
    trainer.model.train()
    return total / count


def train(
    rung: Rung, images: ImageSet, steps: int, noise_seed: int, **given: Any
) -> dict[str, Any]:
    """Train ``rung`` for ``steps`` steps, warm-up included; its loss curve and fixed-set loss."""
    trainer = build(rung, images=images, **given)
    torch.manual_seed(noise_seed)
    trainer.warm_up()
    curve = []
    while trainer.steps < steps:
        trainer.step()
        curve.append(trainer.loss())
    last = curve[-max(1, len(curve) // 4) :]
    return {
        "rung": rung.key,
        "name": rung.name,
        "steps": trainer.steps,
        "loss": fixed_loss(trainer, images, given["seed"]),
        "training_loss_last_quarter": sum(last) / len(last) if last else None,
        "ema_updates": float(trainer.ema.updates),
        "curve": curve,
    }


def compare(
    rungs: list[Rung], steps: int, seed: int, progress: Any, **given: Any
) -> dict[str, Any]:
    """All of ``rungs`` against rung 0, with a control: rung 0 again under other noise."""
    preset = PRESETS[given["preset"]]
    images = load_images(given.pop("data"), max(preset.images, given["batch"] or preset.batch))
    reference = RUNGS["0"]
    runs: list[dict[str, Any]] = []
    for rung, noise_seed, label in [
        (reference, seed, ""),
        (reference, seed + 1, " (control: other noise)"),
        *((rung, seed, "") for rung in rungs if rung is not reference),
    ]:
        run = train(rung, images, steps, noise_seed, seed=seed, **given)
        run["name"] += label
        run["relative_difference"] = run["loss"] / runs[0]["loss"] - 1 if runs else 0.0
        run["agrees"] = abs(run["relative_difference"]) <= TOLERANCE
        runs.append(run)
        progress(
            f"rung {rung.key}{label}: loss {run['loss']:.5f} on the fixed set, "
            f"{100 * run['relative_difference']:+.2f} % of rung 0's"
        )
    return {
        "schema_version": 1,
        "images": images.name,
        "steps": steps,
        "seed": seed,
        "tolerance": TOLERANCE,
        "largest_relative_difference": max(abs(run["relative_difference"]) for run in runs),
        "control_relative_difference": runs[1]["relative_difference"],
        "agrees": all(run["agrees"] for run in runs),
        "runs": runs,
    }


@click.command()
@click.option("--rungs", default="0-5", show_default=True)
@click.option("--steps", default=200, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
@click.option("--preset", default="cifar10", show_default=True)
@click.option("--device", default="cuda", show_default=True)
@click.option("--batch", type=click.IntRange(1))
@click.option("--data", help="CIFAR-10 archive or folder, .npy of images, or 'synthetic'.")
@click.option("--compile-backend", default="inductor", hidden=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the JSON here.")
@click.pass_context
def main(
    context: click.Context,
    /,
    rungs: str,
    steps: int,
    seed: int,
    output: Path | None,
    **given: Any,
) -> None:
    """Train every rung from the same start and say whether their losses agree (exit 1 if not)."""
    try:
        result = compare(
            parse_rungs(rungs), steps, seed, lambda text: click.echo(text, err=True), **given
        )
    except UnknownRung as unknown:
        raise click.UsageError(str(unknown)) from unknown
    except WorkloadError as problem:
        raise click.ClickException(str(problem)) from problem
    text = json.dumps(result, indent=1) + "\n"
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    context.exit(0 if result["agrees"] else 1)


if __name__ == "__main__":
    main()
