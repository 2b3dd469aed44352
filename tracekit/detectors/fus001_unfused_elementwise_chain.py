"""FUS001 unfused-elementwise-chain: elementwise ops that each go through memory.

## What it detects
Three or more elementwise, cast or reducing kernels, of different ops, that run back to back on
one stream with nothing between, each fed by one before it (by the recorded shapes). Where there
is such a chain, chains of two count too: one torch.compile takes all of them.

## Why it matters
Each kernel reads its inputs from memory and writes its output back for the next to read. One
fused kernel reads the chain's inputs once and writes its result once, and one launch takes
the place of several.

## How it is measured
Bytes from the recorded shapes, element types and strides: what the chain's kernels move
against what one kernel must move (inputs once, last output once). Which inputs are one
tensor is not recorded, so of those that could have been read or made before, half are taken
to be in registers (range: all of them, or none and every intermediate kept for the backward
pass). The fused kernel's time is those bytes over 80 % of the device's copy bandwidth, or
over the best bandwidth reached in the chain where that is more or the device is unknown, and
never less than the shortest kernel of the chain. The price is the replayed step with the
first kernel of each chain of that duration and the others gone, with their launches and their
ops' host time: one price for all chains, as one fix serves them.

## Example
    pow, mean, add, rsqrt, mul, mul: an RMSNorm by hand, six kernels; fused, one.

## Fix
torch.compile the function, or call the fused op where torch has it.

## False positives
Kernels that Inductor generated, foreach and optimizer kernels, and the parts of one op are not
counted. A full reduction ends a chain. Kernels of different sizes, or with another kernel or
a wait between, are not joined. Without shapes, or inside a graph replay, the answer is
undetermined.

## References
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html (fuse pointwise ops)
https://docs.pytorch.org/docs/stable/torch.compiler.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.chains import Chain, find_chains
from tracekit.analysis.fused_bytes import fused_bytes
from tracekit.analysis.layout import device_peaks, dispatch_time
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "FUS001"
NAME = "unfused-elementwise-chain"


@dataclass(frozen=True)
class Config:
    """Thresholds of FUS001."""

    min_length: int = field(
        default=3,
        metadata={
            "unit": "kernels",
            "source": "judgement: two are often a bias and its activation",
        },
    )
    min_length_along: int = field(
        default=2,
        metadata={
            "unit": "kernels, where there is a chain of min_length",
            "source": "two are the fewest that can be fused",
        },
    )
    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, GPU and host time that would go",
            "source": "judgement: under the 0.5 % that a good step time repeats to",
        },
    )
    max_lines: int = field(
        default=5,
        metadata={"unit": "op sequences named", "source": "judgement: a report is read quickly"},
    )
    fused_efficiency: float = field(
        default=0.8,
        metadata={
            "unit": "share of the device's copy bandwidth",
            "source": "Triton pointwise kernels moving over 50 MB in three H200 recordings: "
            "medians 0.75, 0.76, 0.82 (benchmarks/pointwise_bandwidth.py)",
        },
    )


@dataclass(frozen=True)
class _Plan:
    """One chain with what replaces it; durations in ns, one entry an occurrence."""

    chain: Chain
    now: int
    fused: int
    times: dict[str, Ints]
    host: Ints
    """[n, 3] (tid, start, end) dispatch of the ops that are gone"""
    saved: float


@dataclass(frozen=True)
class _Sequence:
    """All chains of one op sequence."""

    names: tuple[str, ...]
    plans: list[_Plan]
    saved: float
    """ns a step, GPU and host time that would go"""

    @property
    def count(self) -> int:
        """Chains in all steps."""
        return sum(len(p.chain.rows) for p in self.plans)

    @property
    def short(self) -> list[str]:
        """Op names as a reader knows them."""
        return [n.removeprefix("aten::") for n in self.names]

    @property
    def title(self) -> str:
        """'RMSNorm by hand: pow > mean > add > ... 2 more'."""
        short = self.short
        text = " > ".join(short if len(short) <= 6 else [*short[:5], f"... {len(short) - 5} more"])
        known = _KNOWN.get(_pattern(short))
        return f"{known[0]}: {text}" if known else text


def detect(analysis: Analysis, config: Config) -> Detection:
    """One finding for all chains; see the module's documentation."""
    gpu, steps = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    if not len(gpu):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    found = find_chains(analysis, config.min_length_along, config.min_length)
    enough = analysis.steps.median_ns * config.min_step_share_percent / 100
    sequences: dict[tuple[str, ...], list[_Plan]] = {}
    for chain in found.chains:
        plan = _plan(analysis, config, chain)
        if plan is not None:
            sequences.setdefault(chain.names, []).append(plan)
    ranked = [
        _Sequence(names, plans, sum(p.saved for p in plans) / steps)
        for names, plans in sequences.items()
    ]
    ranked.sort(key=lambda s: (-s.saved, s.names))
    long = sum(s.saved for s in ranked if len(s.names) >= config.min_length)
    drafts = (_draft(analysis, config, ranked),) if long >= max(enough, 1.0) else ()
    unclear = []
    for rows, why in (
        (found.without_shapes, "run in chains, but tensor shapes were not recorded"),
        (found.without_op, "have no recorded op (a graph replay, or the launch is missing)"),
    ):
        spent = float(gpu.ints("dur")[rows].sum()) / steps
        if spent >= max(enough, 1.0):
            text = f"elementwise kernels of {spent / 1e6:.2f} ms a step {why}"
            unclear.append(Undetermined(CODE, NAME, text))
    return Detection(drafts, tuple(unclear))


def _plan(analysis: Analysis, config: Config, chain: Chain) -> _Plan | None:
    parts = chain.traffic()
    if len(parts) != len(chain.ops):
        return None
    moved = fused_bytes(parts)
    duration = analysis.trace.table("gpu").ints("dur")[chain.rows]
    reached = max(t.moved / max(float(np.median(duration[:, i])), 1.0) for i, t in enumerate(parts))
    peaks = device_peaks(analysis)
    speed = reached
    if peaks is not None:
        speed = min(max(peaks.copy_bandwidth * config.fused_efficiency, reached), 3 * reached)
    floor = duration.min(axis=1)
    total = duration.sum(axis=1)
    times = {
        name: np.minimum(np.maximum(int(count / speed), floor), total).astype(np.int64)
        for name, count in (
            ("least", moved.least),
            ("likely", moved.likely),
            ("most", moved.most),
        )
    }
    host = dispatch_time(analysis, chain.rows[:, 1:].ravel())
    saved = float((total - times["likely"]).sum()) + float((host[:, 2] - host[:, 1]).sum())
    return _Plan(chain, moved.now, moved.likely, times, host, saved)


def _edits(plans: list[_Plan], which: str) -> Edits:
    """The first kernel of each chain takes the fused one's time, the others go."""
    return Edits(
        remove_gpu=np.unique(
            np.concatenate([x for p in plans for x in (p.chain.rows[:, 1:], p.chain.cleared)], None)
        ),
        resize_gpu=np.concatenate([p.chain.rows[:, 0] for p in plans]),
        resize_ns=np.concatenate([p.times[which] for p in plans]),
        remove_host=np.concatenate([p.host for p in plans]),
    )


def _draft(analysis: Analysis, config: Config, found: list[_Sequence]) -> Draft:
    gpu, steps = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    plans = [p for s in found for p in s.plans]
    rows = np.concatenate([p.chain.rows.ravel() for p in plans])
    duration = gpu.ints("dur")[rows]
    now = sum(p.now * len(p.chain.rows) for p in plans) / steps
    fused = sum(p.fused * len(p.chain.rows) for p in plans) / steps
    order = rows[np.argsort(-duration, kind="stable")]
    top, count = found[0], sum(s.count for s in found) / steps
    counts: dict[str, float | int | str] = {"chains a step": round(count, 1)}
    if len(found) == 1:
        title = f"{top.title} run as {len(top.names)} kernels"
        insight = f"{len(top.names)} elementwise kernels run back to back {count:g} times a step"
        counts["kernels a chain"] = len(top.names)
        lines = tuple(f"first input {s}" for s in _shapes(top)[:3])
    else:
        title = f"{top.title} and {len(found) - 1} more op sequences run kernel by kernel"
        insight = f"{len(rows) / steps:g} elementwise kernels a step run in {count:g} chains"
        counts["op sequences"] = len(found)
        counts["kernels a step"] = round(len(rows) / steps, 1)
        lines = tuple(_line(analysis, s) for s in found[: config.max_lines])
    counts |= {
        "GPU ms a step": round(float(duration.sum()) / 1e6 / steps, 3),
        "MB moved a step": round(now / 1e6, 2),
        "MB a fused kernel moves": round(fused / 1e6, 2),
    }
    known = [_KNOWN[name][1] for name in dict.fromkeys(_pattern(s.short) for s in found) if name]
    return Draft(
        CODE,
        NAME,
        title,
        f"{insight}, each through memory.",
        "Fuse them: torch.compile the functions they are in, or call the fused op.",
        f"They move {now / 1e6:.1f} MB a step where one kernel a chain would move "
        f"{fused / 1e6:.1f} MB.",
        _edits(plans, "likely"),
        Evidence(tuple(int(i) for i in gpu.ints("id")[order[:20]]), counts, lines),
        where_of(analysis, rows),
        (*known[:2], _COMPILE),
        "medium" if fused < now * 0.8 else "low",
        _edits(plans, "most"),
        _edits(plans, "least"),
    )


def _shapes(sequence: _Sequence) -> list[str]:
    return sorted({p.chain.ops[0][1] for p in sequence.plans}, key=len)


def _line(analysis: Analysis, sequence: _Sequence) -> str:
    """'2 a step: silu > mul, 0.17 ms, 403 MB that could be 235 MB'."""
    steps = max(len(analysis.steps), 1)
    rows = np.concatenate([p.chain.rows.ravel() for p in sequence.plans])
    spent = float(analysis.trace.table("gpu").ints("dur")[rows].sum()) / steps / 1e6
    now, fused = (
        sum(moved * len(p.chain.rows) for p, moved in pairs) / steps / 1e6
        for pairs in (
            [(p, p.now) for p in sequence.plans],
            [(p, p.fused) for p in sequence.plans],
        )
    )
    return (
        f"{sequence.count / steps:g} a step: {sequence.title}, {spent:.2f} ms, {now:.0f} MB that "
        f"could be {fused:.0f} MB, first input {_shapes(sequence)[0]}"
    )


def _pattern(short: list[str]) -> str:
    """Which known function a chain of ops holds, '' for none."""
    text = " ".join(n.rstrip("_") for n in short)
    for pattern, name in _PATTERNS:
        if pattern in text:
            return name
    return ""


_PATTERNS = (
    ("pow mean add rsqrt mul", "rmsnorm"),
    ("mul mean add rsqrt mul", "rmsnorm"),
    ("square mean add rsqrt mul", "rmsnorm"),
    ("silu mul", "swiglu"),
    ("sigmoid mul", "silu"),
    ("mul tanh add mul", "gelu"),
    ("tanh add mul mul", "gelu"),
)
_COMPILE = Fix(
    "torch.compile the function",
    "@torch.compile\ndef tail(x, ...):  # the ops of this chain\n    ...",
    "shapes that do not change from step to step (else dynamic=True)",
    "intermediates stay in fp32 registers instead of being rounded; differences of rounding size",
)
_KNOWN: dict[str, tuple[str, Fix]] = {
    "rmsnorm": (
        "RMSNorm by hand",
        Fix(
            "the fused RMSNorm",
            "y = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)",
            "torch >= 2.4; one kernel from 2.9 on, under torch.compile before",
            "statistics in fp32; differences of rounding size",
        ),
    ),
    "swiglu": (
        "SwiGLU",
        Fix(
            "one kernel for gate and product",
            "@torch.compile\ndef swiglu(gate, up):\n    return torch.nn.functional.silu(gate) * up",
            "gate and up have one shape",
            "silu is not rounded before the product; differences of rounding size",
        ),
    ),
    "silu": (
        "SiLU by hand",
        Fix(
            "the fused SiLU",
            "y = torch.nn.functional.silu(x)",
            "x * sigmoid(x)",
            "sigmoid is not rounded before the product; differences of rounding size",
        ),
    ),
    "gelu": (
        "tanh GELU by hand",
        Fix(
            "the fused GELU",
            'y = torch.nn.functional.gelu(x, approximate="tanh")',
            "0.5 * x * (1 + tanh(...))",
            "intermediates are not rounded; differences of rounding size",
        ),
    ),
}
