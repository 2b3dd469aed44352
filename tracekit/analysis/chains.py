"""Chains of elementwise kernels that run back to back and feed each other.

Two kernels are joined when nothing runs or waits between them: neighbours on their stream,
launched one after the other by one thread of one step, by different ops, and the output of the
first is, by its recorded shape, an input of the second. A chain is a maximal run of joined kernels.
Only ops known by name take part (`tracekit.analysis.bytes`); an op that adds to parameters
or gradients in place belongs to the optimizer's faults, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.bytes import Traffic, is_known, traffic
from tracekit.analysis.layout import at, named
from tracekit.analysis.opargs import tensors
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

_ELIGIBLE = ("elementwise", "reduction", "copy")
_ORDERED_CALLS = ("kernel", "graph", "memcpy", "memset", "sync_stream", "sync_device", "sync_event")
_ACCUMULATES = ("torch::autograd::AccumulateGrad", "torch.distributed")
_MULTI_TENSOR_OPS = frozenset(
    "aten::" + n for n in ("add_", "mul_", "lerp_", "addcmul_", "addcdiv_", "copy_", "div_", "sub_")
)

Signature = tuple[str, str, str, str, str]
"""op name and the raw texts of its shapes, types, strides, concrete inputs"""


@dataclass(frozen=True)
class Chain:
    """Chains of one op sequence and one set of shapes, everywhere in the steps."""

    ops: tuple[Signature, ...]
    rows: Ints
    """[occurrences, length] rows of `gpu`, in order"""

    @property
    def names(self) -> tuple[str, ...]:
        """Op names in order."""
        return tuple(o[0] for o in self.ops)

    def traffic(self) -> list[Traffic]:
        """What each op moves."""
        found = [traffic(*o) for o in self.ops]
        return [t for t in found if t is not None]


@dataclass(frozen=True)
class Chains:
    """What was found, and what could not be judged."""

    chains: tuple[Chain, ...]
    without_shapes: Ints
    """rows of known ops in runs of at least the minimum length, shapes not recorded"""
    without_op: Ints
    """elementwise rows (not Triton's) whose op is not recorded"""


def find_chains(analysis: Analysis, min_length: int) -> Chains:
    """All chains of at least `min_length` kernels inside the steps."""
    gpu, ops = analysis.trace.table("gpu"), analysis.trace.table("ops")
    classes, op = analysis.classes, analysis.links.gpu_op
    candidate = classes.rows(*_ELIGIBLE) & ~classes.triton & (analysis.steps.gpu_step >= 0)
    candidate &= gpu.text("kind").where(lambda k: k == "kernel")
    without_op = np.flatnonzero(candidate & (op < 0) & classes.rows("elementwise"))
    if not len(ops):
        return Chains((), np.empty(0, np.int64), without_op)
    candidate &= (op >= 0) & named(ops.text("name"), op, is_known)
    known = np.flatnonzero(candidate)
    candidate[known[_climb(analysis, op[known])[1]]] = False
    rows, joined = _neighbours(analysis, candidate)
    recorded = ops.text("shapes").codes[op[rows]] >= 0
    blind = rows[_long_runs(joined, min_length) & ~recorded]

    # Shapes: each distinct pair of op signatures is judged once.
    parts = [ops.text(c) for c in ("name", "shapes", "dtypes", "strides", "concrete")]
    key = np.zeros(len(rows), np.int64)
    for part in parts:
        code = part.codes[op[rows]].astype(np.int64) + 1
        _, key = np.unique(key * (len(part.values) + 2) + code, return_inverse=True)
        key = key.reshape(-1).astype(np.int64)
    if not len(rows):
        return Chains((), blind, without_op)
    signatures: list[Signature] = []
    for row in op[rows[np.unique(key, return_index=True)[1]]].tolist():
        name, *texts = (part[row] or "" for part in parts)
        signatures.append((name, texts[0], texts[1], texts[2], texts[3]))
    candidates = np.flatnonzero(joined)
    pair = key[candidates] * len(signatures) + key[candidates + 1]
    which, back = np.unique(pair, return_inverse=True)
    feeds = np.array(
        [_feeds(signatures[p // len(signatures)], signatures[p % len(signatures)]) for p in which],
        bool,
    )
    if len(which):
        joined[candidates] = feeds[back.reshape(-1)]
    found = _group(rows, joined, key, signatures, min_length, _climb(analysis, op[rows])[0])
    return Chains(tuple(found), blind, without_op)


def _neighbours(analysis: Analysis, candidate: Bools) -> tuple[Ints, Bools]:
    """The candidates in stream order, and whether each is followed directly by the next one."""
    gpu, links = analysis.trace.table("gpu"), analysis.links
    launches = analysis.trace.table("launches")
    # Rows are in time order already, so a stable sort by place keeps it.
    order = np.lexsort((gpu.ints("stream"), gpu.ints("device")))
    position = np.flatnonzero(candidate[order])
    rows = order[position]
    joined = np.zeros(len(rows), bool)
    if len(rows) < 2 or not len(launches):
        return rows, joined
    # Rank of each launching or waiting call among those of its thread.
    counts = launches.text("kind").where(lambda k: k in _ORDERED_CALLS)
    by_thread = np.lexsort((launches.ints("tid"), launches.ints("pid")))
    rank = np.zeros(len(launches), np.int64)
    rank[by_thread] = np.cumsum(counts[by_thread])
    launch, op = links.gpu_launch[rows], links.gpu_op[rows]
    call = np.maximum(launch, 0)
    first, then = slice(None, -1), slice(1, None)
    step = analysis.steps.gpu_step[rows]
    same = position[then] == position[first] + 1
    for values in (
        gpu.ints("stream")[rows],
        gpu.ints("device")[rows],
        step,
        launches.ints("tid")[call],
        launches.ints("pid")[call],
    ):
        same &= values[then] == values[first]
    same &= (launch[first] >= 0) & (launch[then] >= 0) & (op[then] != op[first])
    same &= rank[call[then]] - rank[call[first]] == 1
    joined[first] = same
    return rows, joined


def _long_runs(joined: Bools, min_length: int) -> Bools:
    """Whether each entry is part of a run of at least `min_length` joined ones."""
    if not len(joined):
        return joined
    starts = np.flatnonzero(np.concatenate(([True], ~joined[:-1])))
    lengths = np.diff(np.append(starts, len(joined)))
    out: Bools = np.repeat(lengths >= min_length, lengths)
    return out


def _climb(analysis: Analysis, op: Ints) -> tuple[Ints, Bools]:
    """The outermost op around each op, and whether gradients are accumulated on the way."""
    names, parent = analysis.trace.table("ops").text("name"), analysis.links.op_parent
    root, up = op.copy(), op.copy()
    accumulates = np.zeros(len(op), bool)
    while (up >= 0).any():
        root = np.where(up >= 0, up, root)
        accumulates |= named(names, up, _is_accumulation)
        up = np.where(up >= 0, at(parent, up), -1)
    return root, accumulates


def _is_accumulation(name: str) -> bool:
    return any(name.startswith(a) or name.endswith(a) for a in _ACCUMULATES)


def _group(
    rows: Ints,
    joined: Bools,
    key: Ints,
    signatures: list[Signature],
    min_length: int,
    root: Ints,
) -> list[Chain]:
    """Maximal runs, alike ones together."""
    starts = np.flatnonzero(np.concatenate(([True], ~joined[:-1])))
    lengths = np.diff(np.append(starts, len(rows)))
    # Kernels of one composite op are that op's business: a chain needs two outermost ops. One
    # op's kernels follow each other, so the ends tell.
    wanted = (lengths >= min_length) & (root[starts] != root[starts + lengths - 1])
    alike: dict[tuple[int, ...], list[Ints]] = {}
    for start, size in zip(starts[wanted].tolist(), lengths[wanted].tolist(), strict=True):
        part = slice(start, start + size)
        alike.setdefault(tuple(key[part].tolist()), []).append(rows[part])
    found = []
    for keys, runs in alike.items():
        chain = Chain(tuple(signatures[k] for k in keys), np.stack(runs))
        if not set(chain.names) <= _MULTI_TENSOR_OPS:
            found.append(chain)
    return found


@lru_cache(maxsize=65536)
def _feeds(first: Signature, then: Signature) -> bool:
    """Whether the output of one op can be an input of the next, by shape."""
    a, b = traffic(*first), traffic(*then)
    if a is None or b is None or a.shape is None:
        return False
    if a.kind == "reduction" and not a.shape:
        return False  # a full reduction needs the whole tensor before anything follows
    if not (_plain_copy(first, a) and _plain_copy(then, b)):
        return False
    count = _elements(a.shape)
    if count <= 1:
        return False
    if a.kind == "reduction":
        # Its size alone proves little: a bias may have as many elements as there are rows. The
        # shape must be what the reduction left, dimensions of 1 aside.
        left = _without_ones(a.shape)
        return any(_without_ones(t.shape) == left for t in b.inputs)
    return any(t.elements == count for t in b.inputs)


def _plain_copy(op: Signature, moved: Traffic) -> bool:
    """A cast, not a transposition: source and destination are walked in one order."""
    if op[0] != "aten::copy_":
        return True
    found = tensors(op[1], op[2], op[3])
    if len(found) < 2 or found[0].strides is None or found[1].strides is None:
        return True
    return found[0].strides == found[1].strides


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for d in shape if d != 1)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


@dataclass(frozen=True)
class FusedBytes:
    """What one kernel in place of a chain would move, bytes."""

    now: int
    """moved by the chain's kernels"""
    least: int
    """every tensor of a shape already seen is taken to be in registers"""
    likely: int
    """only the previous op's output is; every other input is read, the last output written"""
    most: int
    """as `likely`, and every intermediate is also written, for the backward pass"""


def fused_bytes(parts: list[Traffic]) -> FusedBytes:
    """Bytes of a chain and of the kernel that replaces it."""
    now = sum(t.moved for t in parts)
    least = sum(t.bytes for t in parts[0].inputs)
    seen = {t.shape for t in parts[0].inputs}
    likely = least
    for before, part in pairwise(parts):
        rest = list(part.inputs)
        fed = next((t for t in rest if t.elements == _elements(before.shape or ())), None)
        if fed is not None:
            rest.remove(fed)
        for tensor in rest:
            likely += tensor.bytes
            if tensor.shape not in seen:
                least += tensor.bytes
                seen.add(tensor.shape)
        if before.shape is not None:
            seen.add(before.shape)
    last = parts[-1].written
    written = sum(t.written for t in parts)
    return FusedBytes(now, least + last, likely + last, min(likely + written, now))
