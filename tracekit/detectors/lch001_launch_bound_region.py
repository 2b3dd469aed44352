"""LCH001 launch-bound-region: the GPU waits for the CPU to launch its next kernel.

## What it detects
A step, or a phase of it (forward, backward, optimizer), in which the GPU runs dry again and again
because the host needs longer to launch a kernel than the GPU needs to run it.

## Why it matters
Nothing that makes kernels faster helps such a step: its time is the host's. On an H200 a UNet
under torch.compile computed 26 ms of a step of 85 and waited for 2,188 launches the rest; removing
5.4 ms of its layout kernels would have saved nothing, one CUDA graph made it 28 ms.

## How it is measured
Every stretch of GPU idle inside the steps has one cause (`idle_launch` in the breakdown: the host
was launching, one op after another, and was in no wait, allocation, compilation or data loader).
A phase is launch-bound when that idle is at least `min_phase_idle_percent` of its time on the
GPU's time line. The price is the step replayed with the work of the launch-bound phases launched
by one graph a step: the host time between its first and last launch goes away, the kernels run
back to back with the gaps of a graph. Waits and copies to the host in between stay.

## Example
    2,188 launches a step, launched 38 us apart, run 12 us; GPU idle for launches 58 ms a step

## Fix
One CUDA graph over forward, backward and optimizer; or `torch.compile(mode="reduce-overhead")`,
which graphs each compiled region; or larger kernels (a bigger batch), which need no more launches.

## False positives
A graph replay full of tiny kernels is not launch-bound, whatever their number: gaps inside one
launch are the device's. A GPU that is busy is not, however many launches there are. A recording
in which graph replays are incomplete shows false idle; it is `unknown`, never launch-bound. The
profiler itself slows the host (1 to 11 us an event): give `--unprofiled-ms` for a true price.

## References
CUDA Graphs: https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/
`torch.cuda.CUDAGraph`, `torch.compile` modes: https://pytorch.org/docs/stable/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.links import roots
from tracekit.analysis.phases import PHASES
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined, Where
from tracekit.replay.edits import Edits, Graphed
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "LCH001"
NAME = "launch-bound-region"


@dataclass(frozen=True)
class Config:
    """Thresholds of LCH001."""

    min_idle_percent: float = field(
        default=2.0,
        metadata={
            "unit": "% of the step that the GPU idles for launches",
            "source": "below it a graph cannot pay for its restrictions",
        },
    )
    min_phase_idle_percent: float = field(
        default=20.0,
        metadata={
            "unit": "% of a phase's GPU time line",
            "source": "healthy H200 recordings stay under 3 %, launch-bound ones are over 40 %",
        },
    )
    min_work: int = field(
        default=20,
        metadata={
            "unit": "pieces of GPU work a step",
            "source": "a step of a few kernels has no launch sequence to graph",
        },
    )
    max_unlinked_percent: float = field(
        default=50.0,
        metadata={
            "unit": "% of GPU work without a recorded launch",
            "source": "without launches the host's lateness cannot be seen",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding: the launch-bound phases of the step, together."""
    steps, gpu = analysis.steps, analysis.trace.table("gpu")
    if not len(gpu):
        return Detection(undetermined=(_undetermined("the trace has no GPU events"),))
    unlinked = 100 * float((analysis.links.gpu_launch < 0).mean())
    if unlinked > config.max_unlinked_percent and steps.orphans > steps.carry_in:
        why = f"{unlinked:.0f} % of the GPU work has no recorded launch"
        return Detection(undetermined=(_undetermined(why),))
    wall = float(steps.wall_ns.sum())
    gaps = analysis.gaps
    starving = gaps.of("launch")
    idle = (gaps.end - gaps.start)[starving]
    work = steps.gpu_step >= 0
    per_step = work.sum() / max(len(steps), 1)
    if wall <= 0 or per_step < config.min_work or 100 * idle.sum() < config.min_idle_percent * wall:
        return Detection()
    starved = _starved_phases(analysis, starving, config)
    if not starved:
        return Detection()
    rows = _region(analysis, starved)
    if not len(rows):
        return Detection()
    return Detection((_draft(analysis, starved, rows, starving),))


def _undetermined(why: str) -> Undetermined:
    return Undetermined(CODE, NAME, why)


def _starved_phases(analysis: Analysis, starving: Bools, config: Config) -> list[str]:
    """Phases whose share of idle for launches is over the threshold, in the order of a step."""
    gpu, gaps = analysis.trace.table("gpu"), analysis.gaps
    phase = analysis.phases
    ended = gaps.next_gpu[starving]
    idle = np.bincount(
        phase[ended[ended >= 0]],
        weights=(gaps.end - gaps.start)[starving][ended >= 0],
        minlength=len(PHASES),
    )
    mine = analysis.device_rows[analysis.steps.gpu_step[analysis.device_rows] >= 0]
    busy = np.bincount(phase[mine], weights=gpu.ints("dur")[mine], minlength=len(PHASES))
    share = 100 * idle / np.maximum(idle + busy, 1)
    return [p for i, p in enumerate(PHASES) if share[i] >= config.min_phase_idle_percent]


def _region(analysis: Analysis, starved: list[str]) -> Ints:
    """The work that a graph over these phases holds: kernels, memsets and copies on the device;
    copies to and from the host stay outside, as do replays of graphs that exist already."""
    gpu, launches = analysis.trace.table("gpu"), analysis.trace.table("launches")
    inside = np.isin(analysis.phases, [PHASES.index(p) for p in starved])
    inside &= analysis.steps.gpu_step >= 0
    inside &= ~gpu.text("name").where(lambda n: "HtoD" in n or "DtoH" in n)
    launch = analysis.links.gpu_launch
    graphed = launches.text("kind").where(lambda k: k == "graph")[np.maximum(launch, 0)]
    return np.flatnonzero(inside & ~graphed)


def _draft(analysis: Analysis, starved: list[str], rows: Ints, starving: Bools) -> Draft:
    trace, steps, gaps = analysis.trace, analysis.steps, analysis.gaps
    gpu, launches = trace.table("gpu"), trace.table("launches")
    count = len(steps)
    launched = np.sort(launches.ts[np.unique(analysis.links.gpu_launch[rows])])
    apart = float(np.median(np.diff(launched))) / 1e3 if len(launched) > 1 else 0.0
    runs = float(np.median(gpu.ints("dur")[rows])) / 1e3
    idle = (gaps.end - gaps.start)[starving]
    idle_ms = float(idle.sum()) / 1e6 / count
    percent = 100 * idle.sum() / max(int(steps.wall_ns.sum()), 1)
    each = round(len(launched) / count)
    everything = {PHASES[c] for c in np.unique(analysis.phases[steps.gpu_step >= 0])} - {"loader"}
    whole = everything <= set(starved)
    region = "whole step" if whole else ", ".join(starved)
    worst = np.argsort(-idle, kind="stable")[:20]
    ended = gaps.next_gpu[starving][worst]
    ops = _top_ops(analysis, gaps.next_gpu[starving], idle)
    training = "backward" in everything
    without_optimizer = rows[analysis.phases[rows] != PHASES.index("optimizer")]
    return Draft(
        code=CODE,
        name=NAME,
        title=f"The GPU waits for launches ({region})",
        insight=(
            f"As recorded the GPU waits for launches {percent:.0f} % of the step: the host "
            f"launches a kernel every {apart:.0f} us, and a kernel runs {runs:.0f} us (medians)."
        ),
        action=(
            "Launch the whole step as one CUDA graph."
            if whole and training
            else f"Launch the {region} as one CUDA graph, or compile with mode=reduce-overhead."
        ),
        impact="The step becomes as long as its GPU work; until then, faster kernels save nothing.",
        edits=Edits(graphs=(Graphed(rows, whole_step=whole),)),
        pessimistic=(
            Edits(graphs=(Graphed(without_optimizer),))
            if len(without_optimizer) < len(rows)
            else None
        ),
        evidence=Evidence(
            event_ids=tuple(int(i) for i in gpu.ints("id")[ended[ended >= 0]]),
            counts={
                "launches a step": each,
                "us between launches (median)": round(apart, 1),
                "us a kernel (median)": round(runs, 1),
                "GPU idle for launches, ms a step (recorded)": round(idle_ms, 3),
            },
            lines=tuple(
                f"{name}: {ms / count:.2f} ms a step of idle before its kernels" for name, ms in ops
            ),
        ),
        where=Where(
            text=f"{region}, {each:,} launches",
            ops=tuple(name for name, _ in ops),
            phase=None if whole else starved[0],
        ),
        fixes=_fixes(training),
        confidence="high" if percent >= 10 else "medium",
    )


def _top_ops(analysis: Analysis, ended: Ints, idle: Ints) -> list[tuple[str, float]]:
    """The outermost ops before whose kernels the GPU idled longest: name and ms, the top three."""
    names, links = analysis.trace.table("ops").text("name"), analysis.links
    op = np.where(ended >= 0, links.gpu_op[np.maximum(ended, 0)], -1)
    known = op >= 0
    if not known.any():
        return []
    code = names.codes[roots(links.op_parent)[op[known]]]
    spent = np.bincount(code, weights=idle[known], minlength=len(names.values)) / 1e6
    top = sorted(np.flatnonzero(spent).tolist(), key=lambda c: (-spent[c], names.values[c]))[:3]
    return [(names.values[c], float(spent[c])) for c in top]


def _fixes(training: bool) -> tuple[Fix, ...]:
    graph = Fix(
        title="one CUDA graph over forward, backward and optimizer",
        code=(
            "static_x = torch.empty_like(batch)                    # refilled every step\n"
            "opt = torch.optim.AdamW(params, lr=torch.tensor(lr), fused=True, capturable=True)\n"
            "side = torch.cuda.Stream()\n"
            "with torch.cuda.stream(side):                          # warm up where you capture\n"
            "    for _ in range(3): train_step(static_x)\n"
            "torch.cuda.current_stream().wait_stream(side)\n"
            "graph = torch.cuda.CUDAGraph()\n"
            "with torch.cuda.graph(graph, stream=side):\n"
            "    static_loss = train_step(static_x)                 # forward, backward, step\n"
            "for batch in loader:\n"
            "    static_x.copy_(batch, non_blocking=True)\n"
            "    graph.replay()"
        ),
        applies_when=(
            "shapes are static, no .item() or data-dependent branch inside the step, "
            "gradients are zeroed with set_to_none=False or inside the graph"
        ),
        numerics="nothing",
    )
    overhead = Fix(
        title='torch.compile(mode="reduce-overhead")',
        code=(
            'model = torch.compile(model, mode="reduce-overhead")  # captures CUDA graphs\n'
            "torch.compiler.cudagraph_mark_step_begin()             # once at the start of a step"
        ),
        applies_when="the model compiles without many graph breaks; the optimizer stays outside",
        numerics="as torch.compile: fused operations round differently in the last bits",
    )
    return (graph, overhead) if training else (overhead,)
