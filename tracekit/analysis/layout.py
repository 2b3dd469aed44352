"""Conversions between NCHW and NHWC in a trace, and what is known of the model around them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracekit.analysis.device_peaks import Peaks, peaks_of
from tracekit.analysis.opargs import Tensor, tensors
from tracekit.trace.table import Bools, Ints, Strings, Table

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

_COPY_RULES = ("memory-format-copy", "copy-in-convolution-backward")
_WRAPPERS = frozenset(("aten::copy_", "aten::clone", "aten::contiguous", "aten::to"))
_WRAPPERS |= {"aten::_to_copy", "aten::reshape"}
_MIN_CONVOLUTION_SHARE = 0.05
_ELEMENTWISE = re.compile(r"void at::native::elementwise_kernel<(\d+), (\d+),")


@dataclass(frozen=True)
class Conversions:
    """Rows of `gpu` inside the steps."""

    library: Ints
    """launched by the convolution library itself"""
    hidden: Ints
    """copies that change the memory format"""
    by_order: Ints
    """those of `hidden` known only by their place before a convolution's gradient kernel"""
    unclear: Ints
    """strided copies of a convolution model without a recorded op"""

    def describe(self, analysis: Analysis, rows: Ints) -> tuple[str, ...]:
        """'165 x nchwToNhwcKernel', commonest first, at most four: library kernels by their
        short name, copies by the last four ops around them."""
        gpu, ops = analysis.trace.table("gpu"), analysis.trace.table("ops")
        counted: Counter[str] = Counter()
        is_copy = np.isin(rows, self.hidden)
        codes, count = np.unique(gpu.text("name").codes[rows[~is_copy]], return_counts=True)
        for code, n in zip(codes.tolist(), count.tolist(), strict=True):
            counted[_short(gpu.text("name").values[code])] += n
        op = analysis.links.gpu_op[rows[is_copy]]
        if (op < 0).any():
            counted["strided copy before a gradient kernel"] += int((op < 0).sum())
        around = []
        for _ in range(4):
            around.append(np.where(op >= 0, at(ops.text("name").codes, op), -1))
            op = np.where(op >= 0, at(analysis.links.op_parent, op), -1)
        if len(op):
            chains, count = np.unique(np.stack(around, axis=1), axis=0, return_counts=True)
            for chain, n in zip(chains.tolist(), count.tolist(), strict=True):
                names = [ops.text("name").values[c] for c in reversed(chain) if c >= 0]
                if names:
                    counted[" > ".join(names)] += n
        commonest = sorted(counted.items(), key=lambda found: (-found[1], found[0]))
        return tuple(f"{n:,} x {name}" for name, n in commonest[:4])

    def at_bandwidth(
        self, analysis: Analysis, rows: Ints, efficiency: float = 1.0
    ) -> tuple[Ints, Ints]:
        """Those of the copies whose sizes are recorded, and their durations at a share of the
        device's copy bandwidth, ns; none for an unknown device.

        A copy without an op has its elements in its launch: grid x threads x elements a thread.
        Its type is not recorded: 4 bytes are taken, which for bf16 is twice what it moves.
        """
        peaks = device_peaks(analysis)
        if peaks is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        speed = peaks.copy_bandwidth * efficiency
        gpu, ops = analysis.trace.table("gpu"), analysis.trace.table("ops")
        op, new = analysis.links.gpu_op[rows], gpu.ints("dur")[rows].copy()
        with_op = np.flatnonzero(op >= 0)
        for found, which in signatures(ops, op[with_op]):
            moved = found[0].bytes + found[1].bytes if len(found) >= 2 else 0
            if moved:
                mine = with_op[which]
                new[mine] = np.minimum(new[mine], int(moved / speed))
        without = np.flatnonzero(op < 0)
        a_block = gpu.text("name").map(_elements_a_block, np.int64)[rows[without]]
        elements = a_block * gpu.text("grid").map(_blocks, np.int64)[rows[without]]
        least = np.where(elements > 0, elements * 8 / speed, np.inf)
        new[without] = np.minimum(new[without], least).astype(np.int64)
        return rows, new


@dataclass(frozen=True)
class ConvolutionFacts:
    """What the recording says about the convolutions around some conversions."""

    one_dimensional: bool
    fp32_before_sm80: bool
    norm: str | None
    """'GroupNorm', 'InstanceNorm', 'BatchNorm' or None"""
    norm_returns_nchw: bool
    lines: tuple[str, ...]


def device_peaks(analysis: Analysis) -> Peaks | None:
    """Limits of the device the analysis is about; None where it is not in the table.

    Where the recording names other numbers than its events have (ROCm's numbering differs), all
    named devices must be of one product.
    """
    names = analysis.trace.device_names
    found = names.get(analysis.device)
    if found is None and len(set(names.values())) == 1:
        found = next(iter(names.values()))
    return peaks_of(found)


def find_conversions(analysis: Analysis) -> Conversions:
    """All conversions inside the steps, by how they are known."""
    gpu, classes = analysis.trace.table("gpu"), analysis.classes
    in_steps = analysis.steps.gpu_step >= 0
    layout = classes.rows("layout") & in_steps
    copied = classes.rule.where(lambda r: r in _COPY_RULES) & layout
    strided = classes.rule.where(lambda r: r == "aten-copy") & in_steps
    strided &= (analysis.links.gpu_op < 0) & gpu.text("name").where(_is_strided_copy)
    convolution = classes.rows("convolution")
    duration = gpu.ints("dur")
    by_order, unclear = np.zeros(len(gpu), bool), np.zeros(len(gpu), bool)
    if strided.any():
        share = duration[convolution & in_steps].sum() / max(duration[in_steps].sum(), 1)
        if share >= _MIN_CONVOLUTION_SHARE:
            by_order = strided & _before_gradient(analysis, strided)
            unclear = strided & ~by_order
    hidden = np.flatnonzero(copied | by_order)
    library = np.flatnonzero(layout & ~copied)
    return Conversions(library, hidden, np.flatnonzero(by_order), np.flatnonzero(unclear))


def at(values: npt.NDArray[Any], rows: Ints) -> npt.NDArray[Any]:
    """`values[rows]`, where a row of -1 may give anything; zeros where there are no values."""
    if not len(values):
        return np.zeros(len(rows), values.dtype)
    out: npt.NDArray[Any] = values[np.maximum(rows, 0)]
    return out


def named(names: Strings, rows: Ints, test: Callable[[str], bool]) -> Bools:
    """Whether each row's text satisfies `test`; False for a row of -1. Each text is asked once."""
    hit = np.array([test(v) for v in names.values] + [False], bool)
    out: Bools = hit[np.where(rows >= 0, at(names.codes, rows), -1)]
    return out


def signatures(ops: Table, rows: Ints) -> Iterator[tuple[tuple[Tensor, ...], Ints]]:
    """Each distinct set of recorded inputs, with the positions in `rows` that have it."""
    parts = [ops.text(c) for c in ("shapes", "dtypes", "strides")]
    if not len(rows):
        return
    key = np.zeros(len(rows), np.int64)
    for part in parts:
        key = key * (len(part.values) + 1) + part.codes[rows] + 1
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    runs = np.split(order, np.cumsum(np.bincount(inverse.reshape(-1)))[:-1])
    for row, which in zip(rows[first].tolist(), runs, strict=True):
        shapes, dtypes, strides = (part[row] or "" for part in parts)
        yield tensors(shapes, dtypes, strides), which


def _is_strided_copy(name: str) -> bool:
    return "direct_copy_kernel" in name and name.startswith("void at::native::elementwise_kernel")


def _elements_a_block(name: str) -> int:
    """Of ATen's elementwise_kernel<threads, elements a thread, ...>; 0 for any other kernel."""
    found = _ELEMENTWISE.match(name)
    return int(found[1]) * int(found[2]) if found else 0


def _blocks(grid: str) -> int:
    """Product of a recorded grid "[x, y, z]"; 0 where there is none."""
    found = [int(n) for n in re.findall(r"\d+", grid)]
    return prod(found) if len(found) == 3 else 0


def _short(name: str) -> str:
    head = name.removeprefix("void ").split("<")[0].split("(")[0]
    return head.split("::")[-1]


def _before_gradient(analysis: Analysis, copies: Bools) -> Bools:
    """Whether the next work on the stream, other such copies and the clearing of the result left
    out, is a convolution's gradient."""
    gpu, classes = analysis.trace.table("gpu"), analysis.classes
    gradient = classes.rows("convolution") & gpu.text("name").where(
        lambda n: "dgrad" in n or "wgrad" in n or "bprop" in n
    )
    order = np.lexsort((gpu.ints("stream"), gpu.ints("device")))  # stable: keeps time order
    skipped = (copies | gpu.text("kind").where(lambda k: k == "memset"))[order]
    skipped |= gpu.text("name").where(lambda n: n.startswith("memset"))[order]
    at = np.where(skipped, len(order), np.arange(len(order)))
    following = np.minimum.accumulate(at[::-1])[::-1]
    out = np.zeros(len(gpu), bool)
    known = following < len(order)
    answer = np.zeros(len(order), bool)
    next_row = order[following[known]]
    same = gpu.ints("stream")[next_row] == gpu.ints("stream")[order[known]]
    answer[known] = gradient[next_row] & same
    out[order] = answer
    return out


def convolution_facts(analysis: Analysis, rows: Ints) -> ConvolutionFacts:
    """Look at the ops of some conversions and at the norms of the whole trace."""
    trace, links = analysis.trace, analysis.links
    ops, gpu = trace.table("ops"), trace.table("gpu")
    op = links.gpu_op[rows]
    op = op[op >= 0]
    one = np.zeros(len(op), bool)
    up = op
    for _ in range(6):
        one |= named(ops.text("name"), up, lambda n: n == "aten::conv1d")
        up = np.where(up >= 0, at(links.op_parent, up), -1)
    fp32 = 0
    for found, which in signatures(ops, op):
        shape = found[0].shape if found else ()
        if len(shape) == 3 or (len(shape) == 4 and shape[2] == 1):
            one[which] = True
        if found and found[0].dtype.lower() == "float":
            fp32 += len(which)
    total, flat = len(op), int(one.sum())
    group, instance, batch = (
        _count(ops.text("name"), test) + _count(gpu.text("name"), test)
        for test in (
            lambda n: "group_norm" in n or "GroupNorm" in n,
            lambda n: "instance_norm" in n or "InstanceNorm" in n,
            lambda n: "batch_norm" in n or "BatchNorm" in n or "cudnn::bn_" in n,
        )
    )
    returns_nchw = group + instance > 0 and (instance > 0 or group > batch)
    norm = None
    if returns_nchw:
        norm = "GroupNorm" if group >= instance else "InstanceNorm"
    elif batch:
        norm = "BatchNorm"
    lines = (f"the model normalises with {norm}",) if norm else ()
    return ConvolutionFacts(
        one_dimensional=total > 0 and flat > total / 2,
        fp32_before_sm80=total > 0 and fp32 > total / 2 and _before_sm80(analysis),
        norm=norm,
        norm_returns_nchw=returns_nchw,
        lines=lines,
    )


def _count(names: Strings, test: Callable[[str], bool]) -> int:
    """How many rows have a text that satisfies `test`."""
    wanted = [i for i, v in enumerate(names.values) if test(v)]
    return int(np.isin(names.codes, wanted).sum()) if wanted else 0


def _before_sm80(analysis: Analysis) -> bool:
    properties = analysis.trace.header.get("deviceProperties")
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and entry.get("id") == analysis.device:
            major = entry.get("computeMajor")
            nvidia = "amd" not in str(entry.get("name", "")).lower()
            return nvidia and isinstance(major, int) and major < 8
    return False


def dispatch_time(analysis: Analysis, rows: Ints) -> Ints:
    """[n, 3] (tid, start, end): host time that goes when these `gpu` rows are no longer launched:
    their innermost op, and for a copy the `aten::to`, `aten::contiguous` ... it was called by."""
    ops = analysis.trace.table("ops")
    if not len(ops):
        return np.empty((0, 3), np.int64)
    op = analysis.links.gpu_op[rows]
    op = np.unique(op[op >= 0])
    names, parent = ops.text("name"), analysis.links.op_parent
    for _ in range(8):
        up = parent[op]
        climb = named(names, op, _is_wrapper) & named(names, up, _is_wrapper)
        if not climb.any():
            break
        op = np.where(climb, up, op)
    op = np.unique(op)
    start = ops.ts[op]
    return np.stack([ops.ints("tid")[op], start, start + ops.ints("dur")[op]], axis=1)


def _is_wrapper(name: str) -> bool:
    return name in _WRAPPERS
