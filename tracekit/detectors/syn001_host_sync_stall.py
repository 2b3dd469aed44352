"""SYN001 host-sync-stall: the host waits for the GPU, and the GPU then waits for the host.

## What it detects
Calls that block the host until the GPU is done (`.item()`, `.cpu()`, `nonzero`, `torch.cuda.
synchronize()`), where the GPU ran dry during the wait and idled until the host had launched again.

## Why it matters
The host must run ahead of the GPU to keep it fed. A wait in the middle of a step throws that lead
away. What costs is the idle that follows, not the wait: a trace that waits 96 of 121 ms with the
GPU 98.8 % busy loses next to nothing. On an H200 one `.item()` a step cost 0.4 % of a GPT step.

## How it is measured
A gap in the GPU's time line is a sync's when the host was blocked in a wait for the GPU at the
moment the GPU ran dry, and ends with the first work launched afterwards. Waits are grouped by the
call that waits and the op that made it. The price is the step replayed with the group's waits not
waiting: where the host is the bottleneck anyway, or a second wait takes the first one's place, the
replay says so and the price is small.

Where a loop reads small results one by one (`float(p.grad.norm())` for each parameter), most of the
cost is not the waiting: each turn dispatches its ops, launches its kernels and calls `.item()`. The
price then also takes away the host time of all turns but two (one op over all tensors, one read)
and joins their kernels into one of the same total time; waits alone are the low end.

A boolean mask as an index (`rows[mask]`) costs more than its wait, too: it is counted, compacted
and gathered by, and once more in the backward pass. Where what it took is then only reduced, or the
mask assigns, the price takes that host time and those kernels away but for the launches of a
`torch.where`, at the pace at which the program launches; again the waits alone are the low end.

## Example
    cudaStreamSynchronize in aten::item, once a step: 0.8 ms a step of GPU idle

## Fix
Keep the number on the GPU and read it rarely; read many at once (`torch._foreach_norm`); use
`torch.where` for masks; pin and `non_blocking` copies. See the finding's own fix.

## False positives
A wait at the end of a recording (the profiler's own) is outside the steps. A wait on a busy GPU is
no finding. Removing one of two waits often moves the wait to the other: see the combined saving.
Large copies from or to pageable memory are SYN002's. A loop whose turns change what the next one
reads (a solver, a search) cannot read once, and is priced by its waits alone.

## References
https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html (avoid unnecessary CPU-GPU sync)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.copies import BLOCKING_BYTES, pageable_copies, waits_for
from tracekit.analysis.phases import PHASES
from tracekit.analysis.reads import Run, find_runs
from tracekit.detectors.finding import Detection, Draft, Evidence, Undetermined, Where
from tracekit.detectors.host_time import length
from tracekit.detectors.mask_index import BACKWARD, INDEX, masked_uses, without_mask
from tracekit.detectors.read_loops import one_read, read_once, spent_ns
from tracekit.detectors.sync_fixes import action, fixes
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "SYN001"
NAME = "host-sync-stall"


@dataclass(frozen=True)
class Config:
    """Thresholds of SYN001."""

    min_idle_us: float = field(
        default=5.0,
        metadata={
            "unit": "us of GPU idle a step",
            "source": "one launch latency: no wait can cost less and be seen",
        },
    )
    max_unknown_percent: float = field(
        default=10.0,
        metadata={
            "unit": "% of the step that is GPU idle of unknown cause",
            "source": "beyond it most waits' cost is hidden in what was not recorded",
        },
    )
    max_findings: int = field(
        default=5,
        metadata={"unit": "findings", "source": "what a person reads; the rest are counted"},
    )
    min_turns: int = field(
        default=8,
        metadata={
            "unit": "reads in a row that one read could replace",
            "source": "judgement: fewer are a handful of metrics",
        },
    )
    min_turns_percent: float = field(
        default=1.0,
        metadata={
            "unit": "% of the step that the host spends in such a row, or in masks as an index",
            "source": "the severity 'low' begins there",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """A finding for each waiting op whose waits left the GPU idle, the costliest first."""
    trace, steps = analysis.trace, analysis.steps
    if not len(trace.table("gpu")):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    if not len(trace.table("launches")):
        why = "the trace has no runtime calls, so waits cannot be seen"
        return Detection(undetermined=(Undetermined(CODE, NAME, why),))
    idle_of = _idle_after(analysis)
    groups = _groups(analysis)
    runs = {
        k: find_runs(analysis, np.array(calls, np.int64), config.min_turns)
        for k, calls in groups.items()
    }
    masks = {
        k: without_mask(analysis, masked_uses(analysis, np.array(calls, np.int64)))
        for k, calls in groups.items()
    }
    large = config.min_turns_percent / 100 * float(steps.wall_ns.sum())
    cost: dict[str, float] = {}
    for key, calls in groups.items():
        around = max(spent_ns(runs[key]), length(masks[key].remove_host))
        idle = sum(idle_of.get(c, 0) for c in calls)
        cost[key] = max(idle, around if around >= large else 0)
    worth = [k for k in groups if cost[k] >= config.min_idle_us * 1e3 * max(len(steps), 1)]
    worth.sort(key=lambda k: (-cost[k], k))
    return Detection(
        tuple(
            _draft(analysis, groups[k], idle_of, runs[k], masks[k])
            for k in worth[: config.max_findings]
        ),
        _hidden(analysis, groups, config),
        () if "aten::item" in groups else _host_items(analysis),
    )


def _idle_after(analysis: Analysis) -> dict[int, int]:
    """Waiting call (row in `launches`) to the GPU idle it left behind, ns."""
    gaps = analysis.gaps
    mine = gaps.of("host_sync")
    idle: dict[int, int] = {}
    for call, ns in zip(
        gaps.call[mine].tolist(), (gaps.end - gaps.start)[mine].tolist(), strict=True
    ):
        idle[call] = idle.get(call, 0) + ns
    return idle


def _groups(analysis: Analysis) -> dict[str, list[int]]:
    """Waiting calls inside the steps, by the op that made them (by the call where none did)."""
    launches, steps = analysis.trace.table("launches"), analysis.steps
    start, end = int(steps.mark_start[0]), max(int(steps.mark_end[-1]), int(steps.end[-1]))
    call = analysis.waits.call
    for direction in ("HtoD", "DtoH"):
        large = pageable_copies(analysis, direction, BLOCKING_BYTES)
        call = np.setdiff1d(call, waits_for(analysis, large))
    begin = launches.ts[call]
    groups: dict[str, list[int]] = {}
    for row in call[(begin >= start) & (begin < end)].tolist():
        chain = _chain(analysis, row)
        # The backward of an index by a mask waits because the forward does: one cause.
        name = INDEX if BACKWARD in chain else _op(chain)
        name = name or launches.text("name")[row] or "a wait"
        groups.setdefault(name, []).append(row)
    return groups


def _chain(analysis: Analysis, call: int) -> tuple[str, ...]:
    """The ops around a call, outermost first, without autograd's own frame."""
    ops, links = analysis.trace.table("ops"), analysis.links
    chain = [ops.text("name")[row] or "" for row in links.chain(int(links.launch_op[call]))]
    while chain and chain[0].startswith("autograd::engine"):
        chain.pop(0)
    return tuple(chain)


def _op(chain: tuple[str, ...]) -> str | None:
    """The op a user knows: the outermost aten op, else the innermost of the chain."""
    return next((op for op in chain if op.startswith("aten::")), chain[-1] if chain else None)


def _hidden(
    analysis: Analysis, groups: dict[str, list[int]], config: Config
) -> tuple[Undetermined, ...]:
    """Long waits in a trace whose idle cannot be trusted: nobody can say what they cost."""
    steps, gaps = analysis.steps, analysis.gaps
    wall = int(steps.wall_ns.sum())
    unknown = int((gaps.end - gaps.start)[gaps.of("unknown")].sum())
    if not wall or 100 * unknown < config.max_unknown_percent * wall:
        return ()
    dur = analysis.trace.table("launches").ints("dur")
    waited = {name: int(dur[calls].sum()) for name, calls in groups.items()}
    long = sorted((n for n in waited if 100 * waited[n] > wall), key=lambda n: -waited[n])[:3]
    if not long:
        return ()
    names = ", ".join(f"{n} ({waited[n] / 1e6 / len(steps):.1f} ms a step)" for n in long)
    return (
        Undetermined(
            CODE,
            NAME,
            f"what the host's waits in {names} cost: {100 * unknown / wall:.0f} % of the step is "
            "GPU idle without a recorded reason (kernels are missing from the recording)",
        ),
    )


def _host_items(analysis: Analysis) -> tuple[str, ...]:
    """`aten::item` that made no runtime call read a tensor on the host: no sync, however many."""
    ops, launch_op = analysis.trace.table("ops"), analysis.links.launch_op
    item = ops.text("name").where(lambda n: n == "aten::item")
    scalar = ops.text("name").where(lambda n: n == "aten::_local_scalar_dense")
    called = np.zeros(len(ops) + 1, bool)
    called[launch_op] = True
    parent = analysis.links.op_parent
    called[parent[np.flatnonzero(scalar & called[:-1])]] = True
    silent = int((item & ~called[:-1]).sum())
    if not silent:
        return ()
    return (
        f"{silent} of {int(item.sum())} aten::item calls read tensors on the host: "
        "they made no runtime call and wait for no GPU work",
    )


def _often(calls: int, steps: int) -> str:
    if calls == steps:
        return "once a step"
    if calls < steps:
        return f"in {calls} of {steps} steps"
    return f"{calls / steps:.3g} times a step"


def _draft(
    analysis: Analysis, calls: list[int], idle_of: dict[int, int], runs: list[Run], mask: Edits
) -> Draft:
    launches, steps = analysis.trace.table("launches"), analysis.steps
    costly = sorted(calls, key=lambda c: (-idle_of.get(c, 0), c))
    forward = [c for c in costly if BACKWARD not in _chain(analysis, c)] or costly
    chain = _chain(analysis, forward[0])
    api = launches.text("name")[forward[0]] or "a wait"
    op = _op(chain)
    count = max(len(steps), 1)
    rows: Ints = np.array(calls, np.int64)
    # A blocking copy and the synchronize after it are one wait to the user.
    often = _often(sum(1 for c in calls if launches.text("name")[c] == api), count)
    waited = float(launches.ints("dur")[rows].sum()) / 1e6 / count
    idle_ms = sum(idle_of.get(c, 0) for c in calls) / 1e6 / count
    where = f"{api} in {op}" if op else api
    title = f"{op or api} makes the host wait for the GPU"
    insight = (
        f"{where} blocks the host {often}; the GPU runs dry meanwhile and idles "
        f"{idle_ms:.2f} ms a step until the next launch."
    )
    counts: dict[str, float | int | str] = {
        "waiting calls a step": round(len(calls) / count, 2),
        "host waiting, ms a step": round(waited, 3),
        "GPU idle after them, ms a step": round(idle_ms, 3),
    }
    waits = Edits(drop_waits=rows)
    lines: tuple[str, ...] = ()
    if runs:
        turns = sum(len(r) for r in runs) / count
        spent = spent_ns(runs) / 1e6 / count
        title = f"{op or api} reads {turns:.3g} numbers a step one by one"
        insight = (
            f"{turns:.3g} times a step a small result is computed, read and waited for, one after "
            f"the other: {spent:.2f} ms of host time a step, {idle_ms:.2f} ms of GPU idle."
        )
        counts |= {
            "reads in a row a step": round(turns, 1),
            "host in them, ms a step": round(spent, 3),
        }
        lines = tuple(dict.fromkeys(" > ".join((*r.ops, op or api)) for r in runs))[:4]
    if not mask.empty:
        spent = length(mask.remove_host) / 1e6 / count
        counts["host in masks more than in torch.where, ms a step"] = round(spent, 3)
    return Draft(
        code=CODE,
        name=NAME,
        title=title,
        insight=insight,
        action=(
            "Compute all of them in one op and read them once, and rarely."
            if runs
            else action(chain, api)
        ),
        impact="The host can run ahead again, as far as nothing else makes it wait.",
        edits=waits | read_once(analysis, runs) | mask,
        pessimistic=waits if runs or not mask.empty else None,
        evidence=Evidence(
            event_ids=tuple(int(launches.ints("id")[c]) for c in costly[:20]),
            counts=counts,
            lines=lines,
        ),
        where=Where(text=f"{where}, {often}", ops=chain, phase=_phase(analysis, calls)),
        fixes=((one_read(runs[0].ops),) if runs else ()) + fixes(chain, api),
        confidence="high" if chain else "medium",
    )


def _phase(analysis: Analysis, calls: list[int]) -> str | None:
    """Phase of the work that was last launched before the waits, by majority."""
    linked = np.flatnonzero(analysis.links.gpu_launch >= 0)
    if not len(linked):
        return None
    begin = analysis.trace.table("launches").ts
    launched = begin[analysis.links.gpu_launch[linked]]
    order = np.argsort(launched, kind="stable")
    at = np.searchsorted(launched[order], begin[np.array(calls)], "right") - 1
    phases = analysis.phases[linked[order[np.maximum(at, 0)]]]
    name = PHASES[int(np.bincount(phases).argmax())]
    return None if name == "unknown" else name
