"""`tracekit diagnose PATH...`"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options, output
from tracekit.commands.options import Request
from tracekit.commands.progress import Progress

if TYPE_CHECKING:
    from tracekit.diagnosis import Diagnosis

TRIPPED, UNREADABLE = 1, 3


@click.command(
    short_help="Say where a trace's step time goes, what each cause costs, what to change."
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@options.diagnosis_options
def command(paths: tuple[str, ...], **given: Any) -> int:
    """Say where the time of a training step goes, what each cause costs and what to change.

    PATH is a trace of torch.profiler (.json, .json.gz, .json.zst), a directory of traces, or -
    for standard input.

    \b
    Examples:
      tracekit diagnose trace.json.gz
      tracekit diagnose trace.json.gz --unprofiled-ms 85   a step took 85 ms unprofiled
      tracekit diagnose trace.json.gz --steps 2:5          steps 2, 3 and 4 only
      tracekit diagnose trace.json.gz --select LAY,SYN001  these detectors only
      tracekit diagnose traces/ --format json -o all.json  every trace of a folder
      tracekit diagnose trace.json --fail-on high          exit 1 on a high finding
      zcat trace.json.gz | tracekit diagnose -

    One PATH gives one report. Several, or a directory, give a list: text reports one after the
    other, JSON as {"reports": [...], "unreadable": [...]}. A path that holds no readable trace
    is named on stderr, the others are reported, and the exit status is 3.
    """
    return diagnose_paths(paths, options.request(**given))


def diagnose_paths(paths: tuple[str, ...], request: Request) -> int:
    """Diagnose every path, write one result, return the exit status."""
    if paths.count("-") > 1:
        raise click.UsageError("Standard input (-) can be given only once.")
    files, unreadable = expand(paths)
    output.check_apart(request.output, files)
    many = len(paths) > 1 or os.path.isdir(paths[0])  # noqa: PTH112
    found: list[Diagnosis] = []
    for path in files:
        result = _diagnose(path, request)
        if isinstance(result, str):
            unreadable[path] = result
        else:
            found.append(result)
    for why in unreadable.values():
        click.echo(f"tracekit: {why}", err=True)
    if found or (many and request.format == "json"):
        output.write(_render(found, unreadable, request, many=many), request.output)
    if unreadable:
        return UNREADABLE
    return TRIPPED if any(_trips(d, request.fail_on) for d in found) else 0


def expand(paths: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Trace files of the paths, directories walked; and the paths that have none, with why."""
    from tracekit.trace.errors import TraceError
    from tracekit.trace.find import find_traces

    files: dict[str, None] = {}
    bad: dict[str, str] = {}

    def unlisted(folder: str, why: TraceError) -> None:
        bad[folder] = _sentence(why)

    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112
            files[path] = None
            continue
        try:
            files.update(dict.fromkeys(str(p) for p in find_traces(path, unlisted)))
        except TraceError as error:
            bad[path] = _sentence(error)
    return list(files), bad


def _diagnose(path: str, request: Request) -> Diagnosis | str:
    """The diagnosis of one file, or why it cannot be read."""
    from tracekit.diagnosis import diagnose
    from tracekit.trace.errors import TraceError

    progress = Progress(path)
    try:
        return diagnose(
            path,
            select=request.select,
            ignore=request.ignore,
            steps=request.steps,
            unprofiled_ms=request.unprofiled_ms,
            progress=progress,
        )
    except TraceError as error:
        return _sentence(error)
    except ValueError as error:
        if request.steps is None:
            raise
        raise click.UsageError(f"{path}: {_sentence(error)}") from error
    finally:
        progress.close()


def _sentence(error: Exception) -> str:
    from tracekit.report.style import clean

    return clean(str(error))


def _render(
    found: list[Diagnosis], unreadable: dict[str, str], request: Request, *, many: bool
) -> str:
    if request.format == "json":
        from tracekit.report import json

        return json.render_many(found, unreadable) if many else json.render(found[0])
    if request.format == "markdown":
        from tracekit.report import markdown

        return "\n---\n\n".join(markdown.render(d) for d in found)
    from tracekit.report import text
    from tracekit.report.style import Style, style_for

    to_file = request.output not in (None, "-")
    style = (
        Style(color=request.color == "always") if to_file else style_for(sys.stdout, request.color)
    )
    rule = "\n" + style.paint("-" * style.width, "dim") + "\n\n"
    return rule.join(text.render(d, style) for d in found)


def _trips(d: Diagnosis, fail_on: str | None) -> bool:
    from tracekit.detectors.finding import SEVERITIES

    if fail_on is None:
        return False
    limit = SEVERITIES.index(fail_on)
    return any(SEVERITIES.index(f.severity) <= limit for f in d.findings)
