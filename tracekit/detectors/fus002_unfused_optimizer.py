"""FUS002 unfused-optimizer: the optimizer's arithmetic goes through memory op by op.

## What it detects
An Adam, AdamW or SGD step that runs as a sequence of elementwise kernels: one sequence for
each parameter (foreach=False), or one for lists of parameters (foreach, torch's default),
where torch has one fused kernel.

## Why it matters
Foreach AdamW reads and writes 21 tensors for each parameter where one pass needs 7, and its
host work (lists, step counters, bias corrections, a dozen calls) takes several milliseconds
for a few hundred parameters. The loop adds some twelve launches for each parameter.

## How it is measured
Inside `Optimizer.step#` marks the known sequences of ops are searched for (weight decay,
moments, denominator, update). Work of the mark that is no part of one (a parameter average
or clipping run by a hook) is not the optimizer's and stays. The fused kernel's time is the
recorded kernels' time scaled by tensors moved, 7 of 21 for AdamW, times 1.1; for a loop
with recorded shapes it is the bytes of one pass over 59 % of the device's copy bandwidth if
that is less. The price is the replayed step with one kernel of that time in place of all,
and with the host time of the sequence but for that of a fused call.

The two factors come from two H200 recordings of one model with 364 parameters (foreach and
fused AdamW): 1,255 us of kernels became 460 us (1,255 x 7/21 x 1.1), which is 59 % of copy
bandwidth; from the step counters to the last call 7 to 12 ms of host time became 1.08 ms, 3 us
for each parameter or 2.4 times what one foreach call takes with the Python before it.

## Example
    AdamW of 41 M parameters: 44 kernels, 1.26 ms of GPU time and 9 ms of host time a step.

## Fix
torch.optim.AdamW(params, lr=lr, fused=True)

## False positives
A fused step, a compiled one and a graph replay have no such sequence. SGD without momentum
is one pass already in its foreach form. Where the GPU is busy the host time is worth
nothing, and the price says so. Reports exist of fused being slower on some GPUs: the low end
assumes that the GPU gains nothing.

## References
https://docs.pytorch.org/docs/stable/optim.html (for-loop, foreach, fused)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import device_peaks
from tracekit.analysis.optimizers import UnfusedStep, find_optimizer_steps
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.host_time import all_but, length
from tracekit.detectors.place import where_of
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "FUS002"
NAME = "unfused-optimizer"

_RECORDED = "H200 recordings of one model with foreach and with fused AdamW (41 M parameters)"


@dataclass(frozen=True)
class Config:
    """Thresholds of FUS002."""

    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, GPU and host time that would go",
            "source": "judgement: under what a step time repeats to",
        },
    )
    fused_factor: float = field(
        default=1.1,
        metadata={"unit": "times the foreach kernels' time a tensor moved", "source": _RECORDED},
    )
    fused_efficiency: float = field(
        default=0.59,
        metadata={"unit": "share of the device's copy bandwidth", "source": _RECORDED},
    )
    foreach_calls: float = field(
        default=2.4,
        metadata={"unit": "foreach calls' host time that a fused step takes", "source": _RECORDED},
    )
    host_ns_a_parameter: float = field(
        default=3_000.0,
        metadata={"unit": "ns of host time a parameter in a fused step", "source": _RECORDED},
    )
    min_kernel_ns: float = field(
        default=5_000.0,
        metadata={"unit": "ns", "source": "judgement: no multi-tensor kernel is shorter"},
    )
    unknown_share_percent: float = field(
        default=3.0,
        metadata={
            "unit": "% of the step in optimizer steps of no known sequence",
            "source": "judgement: the least that a medium finding saves",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """One finding for each optimizer and form; see the module's documentation."""
    if not len(analysis.trace.table("gpu")):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    found = find_optimizer_steps(analysis)
    count, step_ns = max(len(analysis.steps), 1), max(analysis.steps.median_ns, 1)
    kinds: dict[tuple[str, bool], list[UnfusedStep]] = {}
    for step in found.unfused:
        # A single pass is fused already, as long as it is one call for all parameters.
        if not step.foreach or step.accesses > step.fused_accesses:
            kinds.setdefault((step.optimizer or step.family, step.foreach), []).append(step)
    drafts = []
    for (name, foreach), steps in sorted(kinds.items()):
        gone = sum(length(_removed(analysis, config, s)) for s in steps)
        gone += sum(_now(analysis, s) - _fused(analysis, config, s) for s in steps)
        if 100 * gone / count >= config.min_step_share_percent * step_ns:
            drafts.append(_draft(analysis, config, name, foreach, steps))
    unknown = tuple(
        Undetermined(
            CODE,
            NAME,
            f"{name or 'an optimizer'}: {ns / 1e6 / count:.1f} ms a step in a step whose ops "
            "are no sequence known here (Adam, AdamW, SGD)",
        )
        for name, ns in sorted(found.unknown.items())
        if 100 * ns / count >= config.unknown_share_percent * step_ns
    )
    return Detection(tuple(drafts), unknown)


def _now(analysis: Analysis, step: UnfusedStep) -> float:
    return float(analysis.trace.table("gpu").ints("dur")[step.rows].sum())


def _fused(analysis: Analysis, config: Config, step: UnfusedStep) -> float:
    """ns of one fused pass over the parameters of one step."""
    now = _now(analysis, step)
    scaled = now * step.fused_accesses / step.accesses * config.fused_factor
    peaks = device_peaks(analysis)
    if peaks is not None and step.parameter_bytes and not step.foreach:
        # The small kernels of a loop take longer than their bytes.
        moved = step.parameter_bytes * step.fused_accesses
        scaled = min(scaled, moved / (peaks.copy_bandwidth * config.fused_efficiency))
    return min(max(scaled, config.min_kernel_ns), now)


def _host(analysis: Analysis, config: Config, step: UnfusedStep) -> float:
    """ns of host time that a fused step takes where the sequence was."""
    if not step.foreach:
        return step.groups * config.host_ns_a_parameter
    ends, starts = analysis.trace.table("ops").end[step.op_rows], step.spans[:, 0]
    each = np.diff(np.concatenate([starts[:1], ends]))
    return config.foreach_calls * float(np.median(each))


def _removed(analysis: Analysis, config: Config, step: UnfusedStep, scale: float = 1.0) -> Ints:
    return all_but(step.spans, step.tid, scale * _host(analysis, config, step))


def _edits(
    analysis: Analysis, config: Config, steps: list[UnfusedStep], gpu: float, host: float
) -> Edits:
    """The first kernel of each step does all of its work; `gpu` and `host` scale the estimates of
    what a fused step takes."""
    fused = [min(_fused(analysis, config, s) * gpu, _now(analysis, s)) for s in steps]
    return Edits(
        remove_gpu=np.unique(np.concatenate([s.rows[1:] for s in steps])),
        resize_gpu=np.array([s.rows[0] for s in steps], np.int64),
        resize_ns=np.array(fused, np.int64),
        remove_host=np.concatenate([_removed(analysis, config, s, host) for s in steps]),
    )


def _draft(
    analysis: Analysis, config: Config, name: str, foreach: bool, steps: list[UnfusedStep]
) -> Draft:
    gpu, count = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    rows = np.concatenate([s.rows for s in steps])
    order = rows[np.argsort(-gpu.ints("dur")[rows], kind="stable")]
    now = sum(_now(analysis, s) for s in steps) / count / 1e6
    fused = sum(_fused(analysis, config, s) for s in steps) / count / 1e6
    host = sum(float((s.spans[:, 1] - s.spans[:, 0]).sum()) for s in steps) / count / 1e6
    passes, one = steps[0].accesses, steps[0].fused_accesses
    counts: dict[str, float | int | str] = {
        "kernels a step": round(len(rows) / count, 1),
        "GPU ms a step": round(now, 3),
        "host ms a step (recorded)": round(host, 3),
        "tensors moved a parameter": round(passes, 1),
        "tensors moved by a fused kernel": one,
    }
    if not foreach:
        counts["parameters"] = round(sum(s.groups for s in steps) / count)
    known = sum(s.parameter_bytes for s in steps) / count
    if known:
        counts["MB of parameters"] = round(known / 1e6, 2)
    form = "foreach kernels" if foreach else "a loop over parameters"
    return Draft(
        CODE,
        NAME,
        f"{name} steps with {form} where one fused kernel serves",
        f"{name}'s step runs {counts['kernels a step']:g} kernels that move {passes:g} tensors for "
        f"each parameter; a fused kernel moves {one}.",
        f"Construct {name} with fused=True.",
        f"{now:.2f} ms of GPU time a step would be about {fused:.2f} ms, and {host:.1f} ms of host "
        "time mostly goes; the host's part counts only where the GPU waits for it.",
        _edits(analysis, config, steps, 1.0, 1.0),
        Evidence(
            tuple(int(i) for i in gpu.ints("id")[order[:20]]),
            counts,
            (f"ops: {_sequence(analysis, steps[0])}",),
        ),
        where_of(analysis, rows, f"{name}.step, {counts['kernels a step']:g} kernels"),
        _fixes(name, foreach),
        "high" if not foreach else "medium",
        _edits(analysis, config, steps, np.inf if foreach else 2.0, 2.0),
        _edits(analysis, config, steps, 0.75, 0.5),
    )


def _sequence(analysis: Analysis, step: UnfusedStep) -> str:
    names = analysis.trace.table("ops").text("name")
    rows = step.op_rows[: len(step.op_rows) // step.groups]
    return ", ".join((names[r] or "").removeprefix("aten::") for r in rows.tolist())


def _fixes(name: str, foreach: bool) -> tuple[Fix, ...]:
    since = "torch >= 2.3" if name == "SGD" else "torch >= 2.0"
    fused = Fix(
        f"fused {name}",
        f"optimizer = torch.optim.{name}(parameters, lr=lr, fused=True)  # options as before",
        f"{since}; all parameters are floating point and on the GPU; no differentiable=True. "
        "Measure: on some GPUs fused was reported to be no faster than foreach",
        "the same formula in one pass; differences of rounding size",
    )
    if foreach:
        return (fused,)
    lists = Fix(
        "foreach, where fused does not serve",
        f"optimizer = torch.optim.{name}(parameters, lr=lr, foreach=True)  # the default on a GPU",
        "memory for one more copy of the parameters",
        "nothing",
    )
    return (fused, lists)
