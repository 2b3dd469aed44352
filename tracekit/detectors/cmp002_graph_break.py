"""CMP002 graph-break: compiled code that is left and entered again within one call.

## What it detects
`Torch-Compiled Region` inside another one, in a step whose GPU idles for it: a graph break, where
torch.compile had to leave its graph (a print, a log call, `.item()`, a branch on a tensor's value,
a function it does not know) and compiled the rest of the function as another graph.

## Why it matters
Every part checks its guards, enters and leaves the autograd function and Inductor's code again,
some 100 us of host time in the forward pass and again in the backward pass. Nothing is fused across
the break, and no CUDA graph spans it.

## How it is measured
The compiled code of the rest of a function is called from that of its beginning, so that regions
nest; functions that are compiled by themselves and called one after the other do not. The price is
the step replayed without the host time between the last kernel of one part and the first of the
next, in the forward pass and in the matching nodes of the backward pass; eager ops that launch work
between the parts stay. Triton kernels of different parts that go over the same grid, with no other
work in between, become one: Inductor fuses them once they are in one graph (their GPU time is left
as it is). The range: only what is outside Inductor's own code, without fusing, up to the eager ops'
dispatch as well.

## Example
    6 graph breaks a step, 2.4 ms of host time a step between compiled parts

## Fix
`TORCH_LOGS=graph_breaks` names each break's line and reason; `fullgraph=True` makes a break an
error. Take the cause out of the compiled function, or give it a form that can be compiled.

## False positives
Breaks in a step that the GPU limits cost nothing: the host runs ahead, and they are a note, no
finding. One region forward and one backward is no break, nor are the regions of several models, or
of a function that Dynamo gave up on and whose callees it compiled one by one. A break around an op
that cannot be compiled has to stay.

## References
https://docs.pytorch.org/docs/stable/torch.compiler_faq.html (graph breaks)
https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.compiled_regions import FUNCTION, REGION, Broken, broken_calls
from tracekit.analysis.intervals import covered, union
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of_ops
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "CMP002"
NAME = "graph-break"


@dataclass(frozen=True)
class Config:
    """Thresholds of CMP002."""

    min_idle_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the step that the GPU idles while the host is between compiled parts",
            "source": "the severity 'low' begins there",
        },
    )
    min_steps_percent: float = field(
        default=50.0,
        metadata={
            "unit": "% of the steps with a break",
            "source": "judgement: less often is logging or evaluation, not the training step",
        },
    )
    min_functions: float = field(
        default=3.0,
        metadata={
            "unit": "compiled functions a step, from which unmarked regions are undetermined",
            "source": "one or two are a model and its loss",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding."""
    ops, steps = analysis.trace.table("ops"), analysis.steps
    count = max(len(steps), 1)
    if not ops.text("name").where(lambda n: n.startswith(REGION)).any():
        called = int(ops.text("name").where(lambda n: n == FUNCTION).sum()) / count
        if called < config.min_functions:
            return Detection()
        why = (
            f"{called:.3g} compiled functions a step, but the recording does not mark compiled "
            "regions, so breaks cannot be told from functions compiled one by one"
        )
        return Detection(undetermined=(Undetermined(CODE, NAME, why),))
    found = broken_calls(analysis)
    if not found:
        return Detection()
    begin = ops.ts[np.array([b.regions[0] for b in found])]
    step = np.searchsorted(steps.mark_start, begin, "right") - 1
    if 100 * len(np.unique(step)) < config.min_steps_percent * count:
        return Detection()
    breaks = sum(b.breaks for b in found) / count
    spans = np.concatenate([b.spans for b in found])
    wall = float(steps.wall_ns.sum())
    idle = _idle_ns(analysis, spans)
    if wall <= 0 or 100 * idle < config.min_idle_percent * wall:
        note = (
            f"{breaks:.3g} graph breaks a step in compiled code cost next to nothing: the GPU is "
            "busy with other work meanwhile"
        )
        return Detection(notes=(note,))
    return Detection((_draft(analysis, found, breaks, spans, idle),))


def _idle_ns(analysis: Analysis, spans: Ints) -> float:
    """GPU idle during the spans."""
    gaps = union(analysis.gaps.start, analysis.gaps.end)
    start, end = union(spans[:, 1], spans[:, 2])
    return float(covered(gaps, start, end).sum())


def _draft(
    analysis: Analysis, found: list[Broken], breaks: float, spans: Ints, idle: float
) -> Draft:
    ops, count = analysis.trace.table("ops"), max(len(analysis.steps), 1)
    inner = np.concatenate([b.regions[1:] for b in found])
    spent = float((spans[:, 2] - spans[:, 1]).sum()) / 1e6 / count
    names = dict.fromkeys(ops.text("name")[r] or "" for r in inner.tolist())
    outside = np.concatenate([b.outside for b in found])
    everything = np.concatenate([b.everything for b in found])
    fused = _fused(analysis, found)
    return Draft(
        code=CODE,
        name=NAME,
        title="graph breaks cut compiled code into parts",
        insight=(
            f"{breaks:.3g} graph breaks a step: the host spends {spent:.2f} ms a step between the "
            f"kernels of one compiled part and those of the next, and the GPU idles "
            f"{idle / 1e6 / count:.2f} ms of it."
        ),
        action="Find each break with TORCH_LOGS=graph_breaks; take its cause out of the function.",
        impact="One entry into compiled code instead of many; kernels can fuse across the cuts.",
        edits=Edits(remove_host=spans) | fused,
        pessimistic=Edits(remove_host=outside),
        optimistic=Edits(remove_host=everything) | fused,
        evidence=Evidence(
            event_ids=tuple(int(i) for i in ops.ints("id")[inner[:20]]),
            counts={
                "graph breaks a step": round(breaks, 2),
                "host between compiled parts, ms a step": round(spent, 3),
                "GPU idle meanwhile, ms a step": round(idle / 1e6 / count, 3),
                "kernels that could be part of another, a step": round(
                    len(fused.remove_gpu) / count, 1
                ),
            },
            lines=tuple(names)[:5],
        ),
        where=where_of_ops(
            analysis,
            np.array([b.regions[0] for b in found], np.int64),
            f"{breaks:.3g} breaks a step",
        ),
        fixes=(_FIND, _LOGGING),
        confidence="high",
    )


def _fused(analysis: Analysis, found: list[Broken]) -> Edits:
    """One kernel in the place of each group, as long as all of it together: what its parts
    write for the backward pass is written by the one as well."""
    duration = analysis.trace.table("gpu").ints("dur")
    groups = [g for b in found for g in b.fused]
    none = np.empty(0, np.int64)
    return Edits(
        remove_gpu=np.concatenate([none, *(g[1:] for g in groups)]),
        resize_gpu=np.array([g[0] for g in groups], np.int64),
        resize_ns=np.array([duration[g].sum() for g in groups], np.int64),
        remove_host=np.concatenate([b.fused_spans for b in found]),
    )


_FIND = Fix(
    title="find the breaks, then forbid them",
    code=(
        "TORCH_LOGS=graph_breaks python train.py      # each break: file, line, reason\n"
        "model = torch.compile(model, fullgraph=True)  # once they are gone: a break is an error"
    ),
    applies_when="the cause can leave the compiled function, or be written so that it compiles",
    numerics="as torch.compile: fused operations round differently in the last bits",
)
_LOGGING = Fix(
    title="no reads, prints or branches on values inside",
    code=(
        "out = model(x)                    # compiled: returns what is to be logged\n"
        "log(out.detach())                 # after the call; was: print(x.mean()) inside\n"
        "y = torch.where(ok, y, 0.0)       # was: if ok: ... else: y = 0"
    ),
    applies_when="the break is a log call, .item(), or an if on a tensor",
    numerics="nothing",
)
