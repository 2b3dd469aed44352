"""`tracekit ladder`: every rung of the training workload, timed side by side."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

DONE, FAILED, UNREADABLE, INTERRUPTED = 0, 1, 3, 130
RECORDINGS = Path("tests/fixtures/rungs")
"""Where a checkout keeps a recording of each rung."""


def default_output(device: str, preset: str) -> Path:
    """Where results go: a trial must not take the place of the results that the docs show."""
    real = device.startswith("cuda") and preset == "cifar10"
    return Path("docs/ladder.json" if real else "ladder.json")


@click.command(name="ladder", short_help="Run the workload's optimisations one by one, measured.")
@click.option("--rungs", default="eager,0-5", show_default=True, help="Such as eager,0-5 or 0,3.")
@click.option("--steps", default=20, show_default=True, type=click.IntRange(1),
              help="Steps of a timed block.")  # fmt: skip
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1),
              help="Blocks of each rung.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1), help="Images a step; the preset's when left out.")
@click.option("--preset", type=click.Choice(["cifar10", "tiny"]), default="cifar10",
              show_default=True)  # fmt: skip
@click.option("--device", default="cuda", show_default=True, help="cuda or cpu.")
@click.option("--data", help="CIFAR-10 archive or folder, .npy of images, or 'synthetic'.")
@click.option("--loader", type=click.Choice(["resident", "dataloader", "ffcv"]),
              help="Where batches come from.  [default: resident]")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="The numbers; a .md page is written beside it. [default: docs/ladder.json, "
              "or ladder.json for a trial: on the CPU, or with another preset]")  # fmt: skip
@click.option("--plot/--no-plot", default=True, show_default=True,
              help="Also a .png beside it (needs matplotlib).")  # fmt: skip
@click.option("--traces", type=click.Path(path_type=Path, file_okay=False),
              help="Keep each rung's recorded trace in this folder; with --render and --verify, "
              "the folder to read them from.")  # fmt: skip
@click.option("--render", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Run nothing: write page and plot from an earlier result; with --traces, its "
              "findings too are read again.")  # fmt: skip
@click.option(
    "--verify",
    is_flag=True,
    help="Run nothing: hold what the rungs' recordings predict against the ladder.",
)
@click.option("--ladder", default="docs/ladder.json", show_default=True,
              type=click.Path(path_type=Path, dir_okay=False),
              help="The measured ladder for --verify.")  # fmt: skip
@click.option("--compile-backend", default="inductor", hidden=True)
def command(
    render: Path | None, output: Path | None, plot: bool, verify: bool, ladder: Path, **given: Any
) -> int:
    """Run the rungs of the training workload side by side and say what each one gains.

    \b
    Examples:
      tracekit ladder                                the whole ladder on the GPU
      tracekit ladder --rungs 0,5 --batch 512        two rungs, a larger batch
      tracekit ladder --preset tiny --device cpu --rungs eager,0 --steps 3 --rounds 3
      tracekit ladder --render docs/ladder.json      page and plot again, nothing run
      tracekit ladder --verify                       predictions of the recordings, measured

    Ctrl-C keeps what was measured. The table goes to stdout, progress to stderr.
    """
    from tracekit.workload import ladder_report
    from tracekit.workload.errors import WorkloadError
    from tracekit.workload.rungs import UnknownRung

    if verify:
        if render is not None:
            raise click.UsageError("--verify and --render are two commands; give one of them")
        verified(ladder, given["traces"] or RECORDINGS)
        return DONE
    if output is None:
        output = default_output(given["device"], given["preset"])
    if render is not None:
        try:
            result = json.loads(render.read_text(encoding="utf-8"))
            if given["traces"] is not None:
                ladder_report.read_findings_again(result, given["traces"])
            page = ladder_report.markdown(result)
        except (ValueError, KeyError, TypeError) as damage:
            raise click.UsageError(f"{render} is no result of a ladder: {damage!r}") from damage
        output = render
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            result = measured(**given)
        except UnknownRung as unknown:
            raise click.UsageError(str(unknown)) from unknown
        except (WorkloadError, OSError) as problem:
            raise click.ClickException(str(problem)) from problem
        page = ladder_report.markdown(result)
    click.echo(ladder_report.text_table(result), nl=False)
    if all(row["ms"] is None for row in result["rows"]):
        raise click.ClickException("nothing was measured, so nothing was written")
    written = []
    try:
        if render is None or given["traces"] is not None:
            write(output, json.dumps(result, indent=1, allow_nan=False) + "\n")
            written.append(output)
        written += write_pages(output, ladder_report.summary(result), page)
        if plot and not ladder_report.plot(result, output.with_suffix(".png")):
            click.echo("no plot: matplotlib is not installed", err=True)
    except OSError as problem:
        raise click.ClickException(f"{problem.filename}: {problem.strerror}") from problem
    click.echo(f"written: {', '.join(map(str, written))}", err=True)
    failed = any(row["error"] for row in result["rows"])
    code = FAILED if failed else DONE if result["complete"] else INTERRUPTED
    if code:
        click.get_current_context().exit(code)
    return code


def verified(ladder: Path, traces: Path) -> None:
    """Print what came true and write it as ``predictions.md`` beside the ladder."""
    from tracekit.trace.errors import TraceError
    from tracekit.workload import verify
    from tracekit.workload.errors import WorkloadError

    try:
        result = verify.load(ladder)
        rows = verify.verify(result, traces)
    except WorkloadError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except TraceError as damage:
        click.echo(f"Error: {damage}", err=True)
        click.get_current_context().exit(UNREADABLE)
    click.echo(verify.text_table(rows), nl=False)
    target = ladder.with_name("predictions.md")
    try:
        write(target, verify.markdown(rows, result))
    except OSError as problem:
        raise click.ClickException(f"{problem.filename}: {problem.strerror}") from problem
    click.echo(f"written: {target}", err=True)


def measured(rungs: str, **given: Any) -> dict[str, Any]:
    """Parse the rungs, refuse what cannot run, and run the ladder."""
    from tracekit.workload.errors import WorkloadError
    from tracekit.workload.rungs import parse_rungs

    chosen = parse_rungs(rungs)
    try:
        from tracekit.workload.ladder import Settings, run_ladder
        from tracekit.workload.train_step import usable_device
    except ModuleNotFoundError as missing:
        raise WorkloadError(
            f"The ladder needs {missing.name}: pip install 'torch-tracekit[workload]'"
        ) from missing
    try:
        for rung in chosen:
            usable_device(rung, given["device"])
    except WorkloadError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    arguments = [*sys.argv[1:]]
    if arguments[:1] == ["ladder"]:
        arguments = arguments[1:]
    return run_ladder(
        Settings(chosen, **given),
        command=shlex.join(["tracekit", "ladder", *arguments]),
        progress=lambda message: click.echo(message, err=True),
    )


def write_pages(output: Path, summary: str, page: str) -> list[Path]:
    """Rewrite the block of this ladder in the pages beside it; without one, write its own page.

    So a page can hold several ladders and what people wrote about them.
    """
    from tracekit.workload.ladder_report import with_block

    updated = []
    for beside in sorted(output.parent.glob("*.md")):
        text = with_block(beside.read_text(encoding="utf-8"), f"ladder: {output.name}", summary)
        if text is not None:
            write(beside, text)
            updated.append(beside)
    if not updated:
        write(output.with_suffix(".md"), page)
        updated.append(output.with_suffix(".md"))
    return updated


def write(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    command()
