"""`tracekit demo`: the bundled trace, diagnosed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from tracekit.commands import options
from tracekit.commands.diagnose import diagnose_paths


@click.command(short_help="Diagnose the bundled trace of a real training step.")
@click.option("--path", "only_path", is_flag=True, help="Only print the trace's path.")
@options.diagnosis_options
def command(only_path: bool, **given: Any) -> int:
    """Diagnose the bundled trace: three training steps of a small diffusion model on an H200.

    The same as `tracekit diagnose` on that file with the step time that was measured without the
    profiler (59.0 ms).

    \b
    Examples:
      tracekit demo
      tracekit demo --format json
      tracekit diagnose "$(tracekit demo --path)"
    """
    from tracekit import demo
    from tracekit.commands.output import write

    request = options.request(**given)
    path = demo.trace_path()
    if only_path:
        write(f"{path}\n", request.output)
        return 0
    if request.unprofiled_ms is None:
        request = replace(request, unprofiled_ms=demo.UNPROFILED_MS)
    return diagnose_paths((str(path),), request)
