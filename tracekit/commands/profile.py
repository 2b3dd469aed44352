"""`tracekit profile`: record a trace of a script, a module, or a rung of the workload."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from tracekit.commands import output

if TYPE_CHECKING:
    from tracekit.profiler.plan import Options, Plan
    from tracekit.profiler.rung import RungRequest

USAGE, FAILED = 2, 1


@click.command(
    name="profile",
    epilog="Options of your own script go after `--`.",
    context_settings={"max_content_width": 100},
)
@click.argument("script", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--rung", metavar="N", help="Record a rung of the built-in workload (eager, 0-5).")
@click.option("-o", "--out", default="traces", show_default=True, metavar="DIR|FILE",
              help="Where to write: a directory, or a .json.gz file.")  # fmt: skip
@click.option("--steps", default=3, show_default=True, type=click.IntRange(min=1),
              help="Steps to record.")  # fmt: skip
@click.option("--wait", type=click.IntRange(min=0), metavar="N",
              help="Script: steps to ignore first.  [default: 10]")  # fmt: skip
@click.option("--measure", type=click.IntRange(min=0), metavar="N",
              help="Script: steps to time without the profiler.  [default: 10]")  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=1), metavar="N",
              help="Script: steps with the profiler prepared but off.  [default: 1]")  # fmt: skip
@click.option("--step-on", type=click.Choice(["optimizer", "forward"]),
              help="Script: what ends a step.  [default: optimizer]")  # fmt: skip
@click.option("--stop-after-recording", is_flag=True, help="Script: end it once it is recorded.")
@click.option("--shapes/--no-shapes", default=True, show_default=True, help="Record input shapes.")
@click.option("--stacks", is_flag=True, help="Record the Python line of each operator (large).")
@click.option("--memory", is_flag=True, help="Record allocations.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]),
              help="Rung: where it runs.  [default: cuda]")  # fmt: skip
@click.option("--preset", type=click.Choice(["cifar10", "tiny"]),
              help="Rung: the network; tiny ends in about a minute on a CPU.  "
              "[default: cifar10]")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), help="Rung: images a step.")
@click.option("--data", metavar="PATH",
              help="Rung: CIFAR-10 archive or folder, .npy of images, or 'synthetic'; photographs "
              "of the extra [data] when left out.")  # fmt: skip
@click.option("--seed", type=int, help="Rung: of weights, noise and batches.  [default: 0]")
@click.option("--compile-backend", hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    script: str | None,
    args: tuple[str, ...],
    module: str | None,
    rung: str | None,
    out: str,
    steps: int,
    wait: int | None,
    measure: int | None,
    warmup: int | None,
    step_on: Literal["optimizer", "forward"] | None,
    stop_after_recording: bool,
    shapes: bool,
    stacks: bool,
    memory: bool,
    device: str | None,
    preset: str | None,
    batch: int | None,
    data: str | None,
    seed: int | None,
    compile_backend: str | None,
) -> None:
    """Record a few steady steps, and time some without the profiler first.

    \b
      tracekit profile train.py -- --its arguments
      tracekit profile -m package.module -- --its arguments
      tracekit profile --rung 5 -o traces/rung5

    The script is not edited and runs to its end; its steps are counted by its optimizer. DIR
    gets trace.json.gz and manifest.json; under torchrun each rank writes its own
    (torchrun ... -m tracekit profile train.py).

    The exit status is the script's own; 1 where it ran and nothing was recorded.
    """
    from tracekit.profiler.errors import RecordError
    from tracekit.profiler.plan import Options, Plan

    options = Options(record_shapes=shapes, with_stack=stacks, profile_memory=memory)
    for_script = {"--wait": wait, "--measure": measure, "--warmup": warmup, "--step-on": step_on,
                  "--stop-after-recording": stop_after_recording or None}  # fmt: skip
    for_rung = {"--device": device, "--preset": preset, "--batch": batch, "--data": data,
                "--seed": seed, "--compile-backend": compile_backend}  # fmt: skip
    try:
        if rung is not None:
            if script is not None or module is not None:
                raise RecordError("give a script, or -m, or --rung: only one of them", usage=True)
            _refuse(for_script, "a script, not for --rung")
            from tracekit.profiler.rung import RungRequest

            request = RungRequest(
                rung=rung,
                preset=preset or "cifar10",
                device=device or "cuda",
                batch=batch,
                data=data,
                seed=seed or 0,
                steps=steps,
                compile_backend=compile_backend or "inductor",
                options=options,
            )
            _rung(request, out)
            return
        _refuse(for_rung, "--rung, not for a script")
        plan = Plan(
            wait=10 if wait is None else wait,
            measure=10 if measure is None else measure,
            warmup=1 if warmup is None else warmup,
            steps=steps,
        )
        if module is not None and script is not None:
            args = (script, *args)
        if module is None and script is None:
            raise RecordError("nothing to run: give a script, -m MODULE or --rung N", usage=True)
        status = _script(
            script if module is None else None,
            module,
            args,
            out,
            plan,
            options,
            step_on or "optimizer",
            stop_after_recording,
        )
    except RecordError as error:
        _fail(error, ctx)
    ctx.exit(status)


def _script(
    script: str | None,
    module: str | None,
    args: tuple[str, ...],
    out: str,
    plan: Plan,
    options: Options,
    step_on: Literal["optimizer", "forward"],
    stop_after_recording: bool,
) -> int:
    """Run and record; the exit status: the script's own, or 1 where it ran but not a step was."""
    from tracekit.profiler.recorder import say
    from tracekit.profiler.runner import exit_status, load_module, load_script
    from tracekit.profiler.script import profile_script

    try:
        program = load_module(module) if module is not None else load_script(script or "")
    except SyntaxError as error:
        return exit_status(error)
    outcome = profile_script(
        program,
        args,
        out=out,
        plan=plan,
        options=options,
        command=_command_line(),
        step_on=step_on,
        stop_after_recording=stop_after_recording,
    )
    # the script's globals live until the interpreter ends, as they do under `python`
    globals()["_kept"] = outcome.main
    if outcome.recording is not None:
        say(str(outcome.recording))
        say(f"read it with: tracekit diagnose {outcome.recording.destination.shown}")
        return outcome.status
    say(outcome.trouble or "nothing was recorded")
    return outcome.status or FAILED


def _rung(request: RungRequest, out: str) -> None:
    from tracekit.profiler.recorder import say
    from tracekit.profiler.rung import profile_rung

    recording = profile_rung(request, out=out, command=_command_line())
    say(str(recording))
    path = recording.destination.shown
    try:
        from tracekit.diagnosis import diagnose
        from tracekit.report.style import style_for
        from tracekit.report.text import render

        text = render(diagnose(path), style_for(sys.stdout))
    except ModuleNotFoundError as error:
        # the recorder runs where the reader's packages are missing (a bare GPU machine)
        say(f"not diagnosed here (no {error.name}); read it with: tracekit diagnose {path}")
        return
    output.write(text, None)


def _refuse(options: Mapping[str, object], place: str) -> None:
    from tracekit.profiler.errors import RecordError

    for name, value in options.items():
        if value is not None:
            raise RecordError(f"{name} is for {place}", usage=True)


def _fail(error: Exception, ctx: click.Context) -> NoReturn:
    usage = bool(getattr(error, "usage", False))
    if usage:
        raise click.UsageError(str(error), ctx=ctx)
    click.echo(f"tracekit: {error}", err=True)
    ctx.exit(FAILED)


def _command_line() -> list[str]:
    """The command line as typed, without the folder of the program itself."""
    name = os.path.basename(sys.argv[0])  # noqa: PTH119
    return ["tracekit" if name == "__main__.py" else name, *sys.argv[1:]]
