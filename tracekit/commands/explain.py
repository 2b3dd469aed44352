"""`tracekit explain [CODE]`: a detector's own documentation, and its thresholds."""

from __future__ import annotations

import dataclasses
import sys
from difflib import get_close_matches
from types import ModuleType

import click

from tracekit.commands.output import write


@click.command(short_help="Explain a finding: what it detects, how it is measured, its thresholds.")
@click.argument("code", required=False)
@click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto")
def command(code: str | None, color: str) -> int:
    """Explain a finding, by its code or name; without CODE, list them all.

    \b
    Examples:
      tracekit explain
      tracekit explain LCH001
      tracekit explain layout-transpose
    """
    from tracekit.detectors.registry import modules
    from tracekit.report.style import Style, style_for

    style: Style = style_for(sys.stdout, color)
    found = modules()
    if code is None:
        write(_listing(found, style), None)
        return 0
    wanted = code.strip().upper()
    for module in found:
        if wanted in (module.CODE, module.NAME.upper()):
            write(page(module, style), None)
            return 0
    family = [m for m in found if wanted and m.CODE.startswith(wanted)]
    if family:
        write(_listing(family, style), None)
        return 0
    raise click.UsageError(unknown(code, known_codes()))


def known_codes() -> list[str]:
    """The codes of all detectors."""
    from tracekit.detectors.registry import modules

    return [m.CODE for m in modules()]


def unknown(code: str, known: list[str]) -> str:
    """A sentence for a code that no detector has."""
    close = get_close_matches(code.upper(), known, 1, 0.5)
    hint = f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."
    return f"No finding has the code {code!r}. {hint}"


def _listing(found: list[ModuleType], style: object) -> str:
    from tracekit.report.style import Style, wrap

    assert isinstance(style, Style)
    width = max(len(m.NAME) for m in found)
    lines = []
    for module in found:
        head = f"{module.CODE}  {module.NAME:<{width}}  "
        first, *more = wrap(_summary(module), style.width, " " * len(head), head)
        lines += [style.paint(module.CODE, "bold") + first.removeprefix(module.CODE), *more]
    return "\n".join([*lines, "", "tracekit explain CODE tells more.", ""])


def _summary(module: ModuleType) -> str:
    """First paragraph of the page, without the code and name it may open with."""
    first = " ".join((module.__doc__ or "").strip().partition("\n\n")[0].split())
    for opening in (module.CODE, module.NAME):
        first = first.removeprefix(opening).lstrip(" :.-")
    return first


def page(module: ModuleType, style: object) -> str:
    """A detector's docstring and the thresholds in its `Config`."""
    from tracekit.report.style import Style, sentence, wrap

    assert isinstance(style, Style)
    _, _, rest = (module.__doc__ or "").strip().partition("\n\n")
    lines = [style.paint(f"{module.CODE} {module.NAME}", "bold"), ""]
    lines += [*wrap(sentence(_summary(module)), style.width), ""]
    lines += [*rest.strip("\n").splitlines(), "", style.paint("Thresholds", "bold")]
    config = module.Config()
    fields = dataclasses.fields(config)
    if not fields:
        lines.append("  none")
    for field in fields:
        value = getattr(config, field.name)
        shown = f"{value:g}" if isinstance(value, int | float) else str(value)
        unit = field.metadata.get("unit", "")
        lines.append(f"  {field.name} = {shown} {unit}".rstrip())
        source = field.metadata.get("source")
        if source:
            lines += wrap(str(source), style.width, "      ")
    bold = [style.paint(x, "bold") if x.startswith("## ") else x.rstrip() for x in lines]
    return "\n".join(bold) + "\n"
