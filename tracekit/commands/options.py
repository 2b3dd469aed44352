"""Options and argument types that `diagnose` and `demo` share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

FORMATS = ("text", "json", "markdown")
FAIL_ON = ("high", "medium", "low")


@dataclass(frozen=True)
class Request:
    """What the user asked of a diagnosis."""

    format: str
    select: tuple[str, ...] | None
    ignore: tuple[str, ...]
    steps: tuple[int, int] | None
    unprofiled_ms: float | None
    fail_on: str | None
    output: str | None
    color: str


def step_range(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """'A:B' as two numbers: steps A, A+1, ... B-1, counted from 0."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{0,18}):(\d{0,18})", value, re.ASCII)
    if not match or value == ":":
        raise click.BadParameter(f"{value!r} is not a range of steps such as 2:5 (2, 3 and 4).")
    first = int(match[1] or 0)
    last = int(match[2]) if match[2] else 2**62
    if last <= first:
        raise click.BadParameter(
            f"{value!r} holds no step: the second number is one past the last step."
        )
    return first, last


def milliseconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A positive, finite number."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise click.BadParameter(f"{value!r} is not a positive number of milliseconds.")
    return number


def codes(values: tuple[str, ...]) -> tuple[str, ...]:
    """Codes given as repeated options, comma-separated, or both."""
    return tuple(c.strip() for value in values for c in value.split(",") if c.strip())


def check_codes(request: Request) -> None:
    """Refuse a code that no detector has, before anything is read.

    Raises:
        click.UsageError: naming the closest code.
    """
    wanted = [*(request.select or ()), *request.ignore]
    if not wanted:
        return
    from tracekit.commands.explain import known_codes, unknown

    known = known_codes()
    for prefix in wanted:
        if not any(code.startswith(prefix.upper()) for code in known):
            raise click.UsageError(unknown(prefix, known))


def diagnosis_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Request` to a command."""
    for option in reversed(
        (
            click.option(
                "--format",
                "format",
                type=click.Choice(FORMATS),
                default="text",
                show_default=True,
                help="How to write the report.",
            ),
            click.option(
                "--select",
                multiple=True,
                metavar="CODES",
                help="Only these detectors: codes or their beginnings, comma-separated.",
            ),
            click.option(
                "--ignore", multiple=True, metavar="CODES", help="None of these detectors."
            ),
            click.option(
                "--steps",
                callback=step_range,
                metavar="A:B",
                help="Only steps A to B-1, counted from 0.",
            ),
            click.option(
                "--unprofiled-ms",
                callback=milliseconds,
                metavar="MS",
                help="Step time measured without the profiler; savings are corrected to it.",
            ),
            click.option(
                "--fail-on",
                type=click.Choice(FAIL_ON),
                help="Exit 1 if a finding is of this severity or above.",
            ),
            click.option(
                "-o",
                "--output",
                metavar="FILE",
                help="Write the report to a file (whole or not at all) instead of stdout.",
            ),
            click.option(
                "--color",
                type=click.Choice(("auto", "always", "never")),
                default="auto",
                show_default=True,
                help="Colour the text report; auto: on a terminal, unless NO_COLOR is set.",
            ),
        )
    ):
        function = option(function)
    return function


def request(
    *,
    format: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    steps: tuple[int, int] | None,
    unprofiled_ms: float | None,
    fail_on: str | None,
    output: str | None,
    color: str,
) -> Request:
    """The options as a `Request`, checked."""
    from tracekit.commands.output import check_writable

    made = Request(
        format, codes(select) or None, codes(ignore), steps, unprofiled_ms, fail_on, output, color
    )
    check_writable(output)
    check_codes(made)
    return made
