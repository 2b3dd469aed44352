"""Chains of elementwise kernels that run back to back and feed each other.

Kernels are neighbours when nothing runs or waits between them: they follow each other on their
stream, launched one after the other by one thread of one step, by different ops. Of neighbours a
chain is a maximal run in which each op reads, by its recorded shape, what an op of the chain before
it made, the last or an earlier one: `h * rsqrt(mean(h * h))` reads h again after the mean, and a
backward pass reads one gradient for two products. What a kernel needs cleared (the memset before
a reduction) goes along with it.
Only ops known by name take part (`tracekit.analysis.bytes`); an op that adds to parameters
or gradients in place belongs to the optimizer's faults, not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.bytes import Traffic, is_known, traffic
from tracekit.analysis.layout import at, named
from tracekit.analysis.opargs import Tensor, tensors
from tracekit.trace.table import Bools, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

_ELIGIBLE = ("elementwise", "reduction", "copy")
_ORDERED_CALLS = ("kernel", "graph", "memcpy", "memset", "sync_stream", "sync_device", "sync_event")
_ACCUMULATES = ("torch::autograd::AccumulateGrad", "torch.distributed")
_MULTI_TENSOR_OPS = frozenset(
    "aten::" + n for n in ("add_", "mul_", "lerp_", "addcmul_", "addcdiv_", "copy_", "div_", "sub_")
)

_CLEARS = -1
"""in place of a signature's number: a memset for the kernel after it"""

Signature = tuple[str, str, str, str, str]
"""op name and the raw texts of its shapes, types, strides, concrete inputs"""


@dataclass(frozen=True)
class Chain:
    """Chains of one op sequence and one set of shapes, everywhere in the steps."""

    ops: tuple[Signature, ...]
    rows: Ints
    """[occurrences, length] rows of `gpu`, in order"""
    cleared: Ints
    """[occurrences, n] rows of `gpu` that clear memory for one of them"""

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
    """rows of known ops in long runs, shapes not recorded"""
    without_op: Ints
    """elementwise rows (not Triton's) whose op is not recorded"""


def find_chains(analysis: Analysis, min_length: int, long: int) -> Chains:
    """All chains of at least `min_length` kernels inside the steps; `long` is how many neighbours
    without shapes count as not judged."""
    gpu, ops = analysis.trace.table("gpu"), analysis.trace.table("ops")
    classes, op = analysis.classes, analysis.links.gpu_op
    candidate = classes.rows(*_ELIGIBLE) & ~classes.triton & (analysis.steps.gpu_step >= 0)
    kernel = gpu.text("kind").where(lambda k: k == "kernel")
    clears = gpu.text("kind").where(lambda k: k == "memset")
    on_device = gpu.text("name").where(lambda n: "DtoD" in n)  # a copy_ of one type and layout
    candidate &= kernel | clears | on_device
    without_op = np.flatnonzero(candidate & kernel & (op < 0) & classes.rows("elementwise"))
    if not len(ops):
        return Chains((), np.empty(0, np.int64), without_op)
    candidate &= (op >= 0) & named(ops.text("name"), op, is_known)
    known = np.flatnonzero(candidate)
    candidate[known[_climb(analysis, op[known])[1]]] = False
    rows, joined = _neighbours(analysis, candidate, clears)
    recorded = ops.text("shapes").codes[op[rows]] >= 0
    blind = rows[_long_runs(joined, long) & ~recorded]
    if not len(rows):
        return Chains((), blind, without_op)

    parts = [ops.text(c) for c in ("name", "shapes", "dtypes", "strides", "concrete")]
    key = np.zeros(len(rows), np.int64)
    for part in parts:
        code = part.codes[op[rows]].astype(np.int64) + 1
        _, key = np.unique(key * (len(part.values) + 2) + code, return_inverse=True)
        key = key.reshape(-1).astype(np.int64)
    signatures: list[Signature] = []
    for row in op[rows[np.unique(key, return_index=True)[1]]].tolist():
        name, *texts = (part[row] or "" for part in parts)
        signatures.append((name, texts[0], texts[1], texts[2], texts[3]))
    key[clears[rows]] = _CLEARS
    root = _climb(analysis, op[rows])[0]
    return Chains(tuple(_group(rows, joined, key, signatures, min_length, root)), blind, without_op)


def _neighbours(analysis: Analysis, candidate: Bools, clears: Bools) -> tuple[Ints, Bools]:
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
    same &= (launch[first] >= 0) & (launch[then] >= 0)
    same &= (op[then] != op[first]) | clears[rows[first]]
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
    """Runs of neighbours cut into chains, alike ones together."""
    starts = np.flatnonzero(np.concatenate(([True], ~joined[:-1])))
    stops = np.append(starts[1:], len(rows))
    long = stops - starts >= min_length
    memory: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    alike: dict[tuple[int, ...], tuple[list[Ints], list[Ints]]] = {}
    for start, stop in zip(starts[long].tolist(), stops[long].tolist(), strict=True):
        keys = tuple(key[start:stop].tolist())
        if keys not in memory:
            memory[keys] = list(_cut(keys, signatures))
        for members in memory[keys]:
            entry = np.array(members, np.int64) + start
            is_kernel = key[entry] != _CLEARS
            kernels = entry[is_kernel]
            # Kernels of one composite op are that op's business: a chain needs two outermost
            # ops. One op's kernels follow each other, so the ends tell.
            if len(kernels) < min_length or root[kernels[0]] == root[kernels[-1]]:
                continue
            group = alike.setdefault(tuple(key[entry].tolist()), ([], []))
            group[0].append(rows[kernels])
            group[1].append(rows[entry[~is_kernel]])
    found = []
    for keys, (runs, cleared) in alike.items():
        ops = tuple(signatures[k] for k in keys if k != _CLEARS)
        chain = Chain(ops, np.stack(runs), np.stack(cleared))
        if not set(chain.names) <= _MULTI_TENSOR_OPS:
            found.append(chain)
    return found


def _cut(keys: tuple[int, ...], signatures: list[Signature]) -> Iterator[tuple[int, ...]]:
    """The chains of one run of neighbours: positions in it, memsets before their kernel."""
    members: list[int] = []
    waiting: list[int] = []
    sizes: set[int] = set()
    reduced: set[tuple[int, ...]] = set()
    for position, key in enumerate(keys):
        if key == _CLEARS:
            waiting.append(position)
            continue
        made = _made(signatures[key])
        if not (made is not None and any(_reads(t, sizes, reduced) for t in made.inputs)):
            yield tuple(members)
            members, sizes, reduced = [], set(), set()
        members += [*waiting, position]
        waiting = []
        if made is None or not made.shape or _elements(made.shape) <= 1:
            # Not known, or one number: a full reduction needs the whole tensor before anything
            # follows, so nothing can be fused across it.
            yield tuple(members)
            members, sizes, reduced = [], set(), set()
        elif made.kind == "reduction":
            reduced.add(_without_ones(made.shape))
        else:
            sizes.add(_elements(made.shape))
    yield tuple(members)


@lru_cache(maxsize=65536)
def _made(op: Signature) -> Traffic | None:
    """What an op moves; None for one that no chain can hold."""
    moved = traffic(*op)
    return moved if moved is not None and _plain_copy(op, moved) else None


def _reads(tensor: Tensor, sizes: set[int], reduced: set[tuple[int, ...]]) -> bool:
    """Whether an input can be one of the tensors made so far, expanded or not.

    Of a reduction's output the size alone proves little: a bias may have as many elements as there
    are rows. Its shape must be what the reduction left, dimensions of 1 aside.
    """
    shape = _unexpanded(tensor)
    shapes = (tensor.shape, shape)
    return any(_elements(s) in sizes or _without_ones(s) in reduced for s in shapes)


def _unexpanded(tensor: Tensor) -> tuple[int, ...]:
    if tensor.strides is None:
        return tensor.shape
    return tuple(1 if s == 0 else d for d, s in zip(tensor.shape, tensor.strides, strict=True))


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
