"""Diagnoses to lay out: real dataclasses on small hand-made traces."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from tests.builders import ADD, MUL, TraceBuilder
from tracekit.analysis.analysis import Analysis, AnalysisOptions
from tracekit.detectors.finding import (
    Evidence,
    Finding,
    Fix,
    Saving,
    Undetermined,
    Where,
    severity_of,
)
from tracekit.diagnosis import Diagnosis
from tracekit.replay.edits import Edits
from tracekit.trace.read import read

NASTY = "evil\x1b[2J\x1b]0;pwned\x07[red]kernel[/red]\u202e\x9b31m\nnext|`line` <b>@all</b>"
"""A kernel name with terminal escapes, rich markup, bidi override, C1 control, markdown, HTML"""


def host_bound(kernel: str = ADD, *, steps: int = 3, device: str | None = "NVIDIA H200") -> bytes:
    """Steps of 25 launches 40 us apart, each of 4 us of work: the GPU mostly waits."""
    b = TraceBuilder(device)
    for _ in range(steps):
        with b.step():
            for k in range(25):
                b.call("aten::add", kernel=kernel if k % 2 else MUL, gpu=4, host=40)
    return b.bytes()


def cpu_only() -> bytes:
    """Two steps without GPU work."""
    b = TraceBuilder(None)
    for _ in range(2):
        with b.step():
            b.call("aten::add", kernel=None, host=500)
    return b.bytes()


def two_devices() -> bytes:
    """Work on GPU 0 and a little on GPU 1."""
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            b.call("aten::add", kernel=ADD, gpu=50, host=100)
            correlation = b.launch(b.clock[100])
            b.kernel(MUL, b.clock[100] + 5, 5, correlation, device=1)
            b.clock[100] += 50
    return b.bytes()


def saving(ms: float, step: float, base: str = "recorded", spread: float = 0.1) -> Saving:
    """A saving of `ms` of a step."""
    return Saving(ms, ms * (1 - spread), ms * (1 + spread), 100 * ms / step, base, step)


def finding(code: str = "LCH001", ms: float = 0.8, step: float = 1.0, **changes: Any) -> Finding:
    """A finding with every field filled."""
    price = saving(ms, step)
    made = Finding(
        code=code,
        name="launch-bound-region",
        severity=severity_of(price.percent_of_step),
        title="The GPU waits for launches",
        insight="The GPU waits for the CPU to launch its next kernel for 89 % of the step.",
        action="Capture the step in a CUDA graph.",
        impact="A graph launches all of a step's kernels at once.",
        saving=price,
        evidence=Evidence((3, 5), {"launches a step": 10, "share": float("nan")}, ("aten::add",)),
        where=Where("whole step, 10 launches", ("aten::add",)),
        fixes=(
            Fix(
                "one CUDA graph over forward, backward and optimizer",
                "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    loss = step()",
                "shapes do not change.",
                "nothing",
            ),
        ),
        confidence="high",
        fingerprint="0123456789abcdef",
        edits=Edits(),
    )
    return replace(made, **changes)


def diagnosis(
    text: bytes | None = None,
    findings: tuple[Finding, ...] = (),
    *,
    unprofiled_ms: float | None = None,
    undetermined: tuple[Undetermined, ...] = (),
    notes: tuple[str, ...] = (),
) -> Diagnosis:
    """A diagnosis of a trace's text with the given findings."""
    trace = read(io.BytesIO(host_bound() if text is None else text))
    analysis = Analysis(trace, AnalysisOptions(None, unprofiled_ms))
    total = sum(f.saving.ms_per_step for f in findings)
    return Diagnosis(
        trace,
        analysis,
        findings,
        saving(total, 1.0) if findings else None,
        tuple(f.code for f in findings),
        undetermined,
        notes,
    )
