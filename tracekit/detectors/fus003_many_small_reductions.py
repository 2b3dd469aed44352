"""FUS003 many-small-reductions: many tensors reduced to a number each, one kernel at a time.

## What it detects
A loop over tensors that sums them, takes their norms or looks for their largest element one
by one: at least `min_run` full reductions (sum, mean, norm, max, any, ...) in a row, between
which there is only what belongs to them: an elementwise op that makes the input
(`g.abs().max()`), arithmetic on single numbers, stacking them, a number read on the host.

## Why it matters
Each one costs a launch or two, some microseconds of Python, and kernels that end before they
fill the GPU. Thousands of them took 20 ms where one multi-tensor kernel took 30 us. Reading
each number on the host adds a wait for each.

## How it is measured
By the recorded shapes: the reduction leaves one number. All kernels of a run become one that
reads the tensors once at half of the device's copy bandwidth (what `torch._foreach_norm`
reached on 364 gradients, 41 M elements, in an H200 recording); on an unknown device they keep
their GPU time. The host time from the first to the last op of the run goes
but for that of one call (3.5 us a tensor for foreach norms in the same recording, 1 us to
stack tensors otherwise), and so do the waits for the numbers but for one. Pauses
longer than `max_pause_ns` between two ops of a run stay, for they may be other work.

## Example
    float(p.grad.norm()) for 74 parameters: 74 norms, 74 copies to the host, 74 waits.

## Fix
One multi-tensor call: torch.nn.utils.get_total_norm(grads), torch._foreach_norm(grads).

## False positives
Bias gradients are sums of the backward pass, between its other work, and cannot be put
together; so are reductions in a forward pass. Reductions over some dimensions only, and large
tensors that keep the GPU busy, are not counted. Without shapes the answer is undetermined.

## References
https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import device_peaks
from tracekit.analysis.reductions import READS, Run, find_runs
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.host_time import all_but, length
from tracekit.detectors.place import where_of_ops
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "FUS003"
NAME = "many-small-reductions"

_RECORDED = "torch._foreach_norm of 364 gradients in an H200 recording"


@dataclass(frozen=True)
class Config:
    """Thresholds of FUS003."""

    min_run: int = field(
        default=16,
        metadata={"unit": "reductions in a row", "source": "judgement: fewer are not a loop"},
    )
    max_median_ns: int = field(
        default=20_000,
        metadata={
            "unit": "ns of GPU time a reduction, median",
            "source": "judgement: longer ones fill the GPU and hide their launches",
        },
    )
    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, GPU and host time that would go",
            "source": "judgement: under what a step time repeats to",
        },
    )
    efficiency: float = field(
        default=0.5,
        metadata={"unit": "share of the device's copy bandwidth", "source": _RECORDED},
    )
    norm_host_ns: float = field(
        default=3_500.0,
        metadata={"unit": "ns of host time a tensor in one foreach norm", "source": _RECORDED},
    )
    stack_host_ns: float = field(
        default=1_000.0,
        metadata={
            "unit": "ns of host time a tensor to stack tensors and reduce them at once",
            "source": "judgement",
        },
    )
    min_kernel_ns: float = field(
        default=5_000.0,
        metadata={"unit": "ns", "source": "judgement: no multi-tensor kernel is shorter"},
    )
    max_pause_ns: int = field(
        default=100_000,
        metadata={
            "unit": "ns between two ops of a run",
            "source": "judgement: Python between two ops takes less",
        },
    )


@dataclass(frozen=True)
class _Plan:
    """One run and what goes with it."""

    run: Run
    rows: Ints
    """rows of `gpu`"""
    now: float
    fused: float
    """ns of GPU time before and after"""
    spans: Ints
    """[n, 2] host time of the run's ops and of the Python between them"""
    kept: float
    """ns of host time that one call takes"""
    waits: Ints
    """rows of `launches` that no longer wait"""

    def host(self, scale: float = 1.0) -> Ints:
        """[n, 3] (tid, start, end) host time that goes; `scale` that of the one call."""
        return all_but(self.spans, self.run.tid, scale * self.kept)


def detect(analysis: Analysis, config: Config) -> Detection:
    """One finding for each reduction; see the module's documentation."""
    if not len(analysis.trace.table("gpu")):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    found = find_runs(analysis, config.min_run)
    count, step_ns = max(len(analysis.steps), 1), max(analysis.steps.median_ns, 1)
    plans: dict[str, list[_Plan]] = {}
    for run in found.runs:
        plan = _plan(analysis, config, run, found.gpu_op)
        if plan.now <= config.max_median_ns * len(run.reductions):
            plans.setdefault(run.name, []).append(plan)
    drafts = []
    for name, mine in sorted(plans.items()):
        gone = sum(p.now - p.fused + length(p.host()) for p in mine)
        if 100 * gone / count >= config.min_step_share_percent * step_ns:
            drafts.append(_draft(analysis, name, mine))
    blind = found.without_shapes / count
    if blind >= config.min_run:
        why = f"{blind:.0f} reductions a step, whose shapes were not recorded"
        return Detection(tuple(drafts), (Undetermined(CODE, NAME, why),))
    return Detection(tuple(drafts))


def _plan(analysis: Analysis, config: Config, run: Run, gpu_op: Ints) -> _Plan:
    gpu, ops = analysis.trace.table("gpu"), analysis.trace.table("ops")
    rows = np.flatnonzero(np.isin(gpu_op, run.ops))
    kernel = gpu.text("kind").where(lambda k: k == "kernel")[rows]
    # The last number is still copied to the host.
    rows = np.concatenate([rows[kernel], rows[~kernel][:-1]])
    duration = gpu.ints("dur")[rows].astype(np.float64)
    now = float(duration.sum())
    peaks, fused = device_peaks(analysis), now
    if peaks is not None:
        fused = run.bytes / (peaks.copy_bandwidth * config.efficiency)
    fused = min(max(fused, config.min_kernel_ns), now)
    starts, ends = ops.ts[run.ops], ops.end[run.ops]
    after = np.concatenate([starts[1:], ends[-1:]])
    until = np.where(after - ends <= config.max_pause_ns, np.maximum(after, ends), ends)
    a_tensor = config.norm_host_ns if "norm" in run.name else config.stack_host_ns
    kept = a_tensor * len(run.reductions)
    spans = np.stack([starts, until], axis=1)
    return _Plan(run, rows, now, fused, spans, kept, _waits(analysis, run))


def _waits(analysis: Analysis, run: Run) -> Ints:
    """The waits inside the run's reads, but for the last read's."""
    reads = run.ops[run.kinds == READS][:-1]
    if not len(reads):
        return np.empty(0, np.int64)
    ops, launches = analysis.trace.table("ops"), analysis.trace.table("launches")
    call = analysis.waits.call
    call = call[launches.ints("tid")[call] == run.tid]
    at = np.searchsorted(ops.ts[reads], launches.ts[call], "right") - 1
    inside = (at >= 0) & (launches.ts[call] < ops.end[reads[np.maximum(at, 0)]])
    found: Ints = call[inside]
    return found


def _edits(plans: list[_Plan], scale: float) -> Edits:
    """The first kernel of each run does its work; `scale` times what one call is taken to need."""
    return Edits(
        remove_gpu=np.unique(np.concatenate([p.rows[1:] for p in plans])),
        resize_gpu=np.array([p.rows[0] for p in plans], np.int64),
        resize_ns=np.array([min(p.fused * scale, p.now) for p in plans], np.int64),
        drop_waits=np.concatenate([p.waits for p in plans]),
        remove_host=np.concatenate([p.host(scale) for p in plans]),
    )


def _draft(analysis: Analysis, name: str, plans: list[_Plan]) -> Draft:
    gpu, count = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    rows = np.concatenate([p.rows for p in plans])
    order = rows[np.argsort(-gpu.ints("dur")[rows], kind="stable")]
    each = sum(len(p.run.reductions) for p in plans) / count
    reads = sum(int((p.run.kinds == READS).sum()) for p in plans) / count
    now = sum(p.now for p in plans) / count / 1e6
    fused = sum(p.fused for p in plans) / count / 1e6
    host = sum(length(p.host()) for p in plans) / count / 1e6
    short = name.removeprefix("aten::")
    read = f", {reads:g} of them read on the host one by one" if reads > 1 else ""
    counts: dict[str, float | int | str] = {
        "reductions a step": round(each, 1),
        "kernels and copies a step": round(len(rows) / count, 1),
        "GPU ms a step": round(now, 3),
        "MB read a step": round(sum(p.run.bytes for p in plans) / count / 1e6, 2),
        "host ms a step (recorded)": round(host, 3),
    }
    if reads:
        counts["numbers read on the host a step"] = round(reads, 1)
    return Draft(
        CODE,
        NAME,
        f"{short} of many tensors, one at a time",
        f"{each:g} tensors a step are reduced one after the other{read}.",
        "Reduce them in one multi-tensor call, and read the result once.",
        f"{now:.2f} ms of GPU time a step would be {fused:.3f} ms, and {host:.1f} ms of host time "
        "goes where the GPU waits for it.",
        _edits(plans, 1.0),
        Evidence(tuple(int(i) for i in gpu.ints("id")[order[:20]]), counts),
        where_of_ops(
            analysis, plans[0].run.reductions, f"{each:g} x {name}, {len(plans) / count:g} runs"
        ),
        (_NORMS if "norm" in short else _STACK, _COMPILE),
        "high",
        _edits(plans, 2.0),
        _edits(plans, 0.3),
    )


_NORMS = Fix(
    "one norm of all tensors",
    "norms = torch._foreach_norm(grads)                    # few kernels for all of them\n"
    "total = torch.linalg.vector_norm(torch.stack(norms))  # = nn.utils.get_total_norm(grads)\n"
    "values = torch.stack(norms).tolist()                  # one wait, if the host needs them",
    "all tensors on one device; get_total_norm needs torch >= 2.6",
    "sums in another order; differences of rounding size",
)
_STACK = Fix(
    "reduce the tensors together",
    "flat = torch.cat([t.flatten() for t in tensors])                  # one number for all\n"
    "total = flat.sum()\n"
    "each = torch.stack(tensors).flatten(1).sum(1)                     # tensors of one shape\n"
    "largest = torch.stack(torch._foreach_norm(tensors, float('inf'))) # of absolute values",
    "memory for a copy of the tensors (cat, stack); none for the foreach form",
    "sums in another order; differences of rounding size",
)
_COMPILE = Fix(
    "torch.compile the loop",
    "@torch.compile\ndef sums(tensors):\n    return torch.stack([t.sum() for t in tensors])",
    "the list of tensors is the same every step; compiling takes long for thousands",
    "sums in another order; differences of rounding size",
)
