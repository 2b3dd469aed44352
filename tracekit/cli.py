"""The command line: commands are loaded when they are called, so `--help` imports none of them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from tracekit import __version__

DONE, TRIPPED, USAGE, UNREADABLE = 0, 1, 2, 3
INTERNAL_ERROR, INTERRUPTED = 70, 130

# name: (module, one line for --help)
COMMANDS = {
    "diagnose": (
        "tracekit.commands.diagnose",
        "Say where a trace's step time goes, what each cause costs, what to change.",
    ),
    "explain": (
        "tracekit.commands.explain",
        "Explain a finding: what it detects, how it is measured, its thresholds.",
    ),
    "demo": (
        "tracekit.commands.demo",
        "Diagnose the bundled trace of a real training step.",
    ),
    "profile": (
        "tracekit.commands.profile",
        "Record a few steady steps, and time some without the profiler first.",
    ),
    "ladder": (
        "tracekit.commands.ladder",
        "Run the workload's optimisations one by one, measured.",
    ),
    "sample": (
        "tracekit.commands.sample",
        "Draw images from a trained workload.",
    ),
}

# import name: what to install
EXTRAS = {
    "torch": "workload",
    "triton": "workload",
    "skimage": "data",
    "sklearn": "data",
    "dash": "dashboard",
    "plotly": "dashboard",
    "dask": "cluster",
    "distributed": "cluster",
    "fsspec": "remote",
    "hta": "hta",
}


class LazyGroup(click.Group):
    """A group whose commands are modules, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return its `command`."""
        if cmd_name not in COMMANDS:
            return None
        found = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the likely command named when there is none of that name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            if not close and os.path.exists(args[0]):  # noqa: PTH110 - pathlib is slower to import
                hint = f" To diagnose a file: tracekit diagnose {args[0]}"
            ctx.fail(f"No command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tracekit", message="%(prog)s %(version)s")
def cli() -> None:
    """Why is this PyTorch training step slow, what does each cause cost, and what to change?

    \b
    Examples:
      tracekit demo                            a real trace, diagnosed
      tracekit diagnose trace.json.gz          your own trace
      tracekit diagnose traces/ --format json  every trace of a folder, for a script
      tracekit explain LCH001                  what a finding means
      tracekit profile train.py -- --epochs 1  record a trace of a script

    The result goes to stdout, progress to stderr.

    \b
    Exit status:
      0    done
      1    --fail-on tripped
      2    wrong usage, or an optional package is missing
      3    a path holds no readable trace
      70   a fault in tracekit itself
      130  interrupted
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    _open_streams()
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. Every expected failure is one sentence on stderr."""
    try:
        result = cli.main(args=args, prog_name="tracekit", standalone_mode=False)
        _flush()
        return result if isinstance(result, int) else DONE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code if isinstance(error, click.UsageError) else USAGE
    except BrokenPipeError:
        _silence_stdout()
        return DONE
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            return _fault()
        _say(
            f"This command needs the package {package}, which is not installed: "
            f"pip install 'torch-tracekit[{EXTRAS[package]}]'"
        )
        return USAGE
    except Exception:
        return _fault()


def _open_streams() -> None:
    """Standard streams that the caller closed (`>&-`) lead nowhere, as empty ones do; else the
    next file opened would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))


def _say(sentence: str) -> None:
    click.echo(f"tracekit: {sentence}", err=True)


def _fault() -> int:
    traceback.print_exc()
    _say(f"This is a fault in tracekit {__version__}, not in your trace. Please report the above.")
    return INTERNAL_ERROR


def _flush() -> None:
    """Meet a broken pipe here, not in the interpreter's shutdown."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()


def _silence_stdout() -> None:
    from tracekit.commands.output import silence_stdout

    silence_stdout()
