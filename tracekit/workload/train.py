"""Train and keep checkpoints.

``python -m tracekit.workload.train --rung 5 --steps 20000 -o ddpm.pt``, then
``tracekit sample ddpm.pt -o grid.png``.
"""

from __future__ import annotations

import math
from pathlib import Path

import click

from tracekit.workload.errors import WorkloadError
from tracekit.workload.rungs import UnknownRung, rung


@click.command()
@click.option("--rung", "key", default="5", show_default=True, help="Which rung executes it.")
@click.option("--steps", default=20_000, show_default=True, type=click.IntRange(1),
              help="Train up to this step.")  # fmt: skip
@click.option("--preset", type=click.Choice(["cifar10", "tiny"]), default="cifar10",
              show_default=True)  # fmt: skip
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--batch", type=int, help="Images a step; the preset's when left out.")
@click.option("--data", help="CIFAR-10 archive or folder, .npy of images, or 'synthetic'.")
@click.option("--loader", type=click.Choice(["resident", "dataloader", "ffcv"]),
              help="Where batches come from.")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("--compile-backend", default="inductor", hidden=True)
@click.option("--every", default=1000, show_default=True, type=click.IntRange(1),
              help="Steps between checkpoints.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue from the checkpoint if it exists.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
def main(
    key: str,
    steps: int,
    preset: str,
    device: str,
    batch: int | None,
    data: str | None,
    loader: str | None,
    seed: int,
    compile_backend: str,
    every: int,
    resume: bool,
    output: Path,
) -> None:
    """Train the DDPM and write a checkpoint that resumes exactly."""
    from tracekit.workload.checkpoint import load_checkpoint, save_checkpoint
    from tracekit.workload.train_step import build

    if output.is_dir() or not output.parent.is_dir():
        raise click.UsageError(f"Cannot write {output}: it is a directory or lies in none")
    try:
        trainer = build(
            rung(key), preset=preset, device=device, batch=batch, data=data, seed=seed,
            loader=loader, compile_backend=compile_backend,
        )  # fmt: skip
        if resume and output.exists():
            load_checkpoint(trainer, output)
        trainer.warm_up(lambda message: click.echo(message, err=True))
        kept = None
        while trainer.steps < steps or kept != trainer.steps:
            if trainer.steps < steps:
                trainer.step()
            # warming up takes real steps, so that it alone may reach the last one
            if trainer.steps % every == 0 or trainer.steps >= steps:
                loss = trainer.loss()  # NaN where warming up, which told its own, took every step
                told = "" if math.isnan(loss) else f": loss {loss:.4f}"
                click.echo(f"step {trainer.steps}{told}", err=True)
                save_checkpoint(trainer, output)
                kept = trainer.steps
    except UnknownRung as unknown:
        raise click.UsageError(str(unknown)) from unknown
    except WorkloadError as problem:
        raise click.ClickException(str(problem)) from problem


if __name__ == "__main__":
    main()
