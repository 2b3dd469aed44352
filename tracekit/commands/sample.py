"""`tracekit sample`: a grid of images from a checkpoint of the training workload."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="sample", short_help="Draw images from a trained workload.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="The picture to write, a .png.")  # fmt: skip
@click.option("--images", "count", default=64, show_default=True, type=click.IntRange(1, 4096))
@click.option("--sampler", type=click.Choice(["ddim", "ddpm"]), default="ddim", show_default=True,
              help="ddim takes --steps steps, ddpm all 1000.")  # fmt: skip
@click.option("--steps", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", default=0, show_default=True)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
def command(
    checkpoint: Path,
    output: Path,
    count: int,
    sampler: str,
    steps: int,
    seed: int,
    device: str,
) -> int:
    """Draw images from CHECKPOINT with its averaged weights and write them as one picture.

    \b
    Examples:
      tracekit sample ddpm.pt -o grid.png
      tracekit sample ddpm.pt -o grid.png --images 16 --sampler ddpm --device cpu

    CHECKPOINT is made by `python -m tracekit.workload.train -o CHECKPOINT`.
    """
    from tracekit.workload.errors import WorkloadError

    try:
        from tracekit.workload.sample import grid, png, sample_checkpoint
    except ModuleNotFoundError as missing:
        raise click.UsageError(
            f"Sampling needs {missing.name}: pip install 'torch-tracekit[workload]'"
        ) from missing
    if not output.parent.is_dir():
        raise click.UsageError(f"Cannot write {output}: there is no directory {output.parent}")
    try:
        images = sample_checkpoint(
            checkpoint, count, sampler=sampler, steps=steps, seed=seed, device=device
        )
        write(output, png(grid(images)))
    except WorkloadError as problem:
        raise click.ClickException(str(problem)) from problem
    except OSError as problem:
        raise click.ClickException(f"Cannot write {output}: {problem.strerror}") from problem
    click.echo(str(output))
    return 0


def write(path: Path, data: bytes) -> None:
    """Write the file whole or not at all; a pipe or a device takes the bytes as they come."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
