"""Runs of full reductions of separate tensors, one after the other, with nothing else between.

A run is what a Python loop over tensors leaves in a trace: `for p in parameters: p.grad.norm()`.
Between its reductions there may be only what belongs to them: an elementwise op that makes the
reduction's input (`g.abs().max()`), arithmetic on single numbers, reading a number on the
host, and stacking the numbers: one reduction of all tensors leaves them in one tensor. Reductions
of the backward pass (bias gradients) and of a forward pass, which other work separates, are no run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.bytes import Traffic, traffic
from tracekit.analysis.layout import at, named
from tracekit.analysis.opargs import tensors
from tracekit.analysis.phases import PHASES
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

_NAMES = frozenset((
    "aten::sum", "aten::mean", "aten::norm", "aten::linalg_vector_norm", "aten::amax", "aten::amin",
    "aten::max", "aten::min", "aten::any", "aten::all", "aten::prod", "aten::logsumexp",
))  # fmt: skip
_READS = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"))
REDUCES, READS, SCALAR, MAKES, OTHER = range(5)
"""what an op of a step is to a run"""


@dataclass(frozen=True)
class Run:
    """One run in one step."""

    step: int
    tid: int
    ops: Ints
    """rows of `ops`, in time order"""
    kinds: Ints
    """what each of them is: REDUCES, READS, SCALAR or MAKES"""
    name: str
    """commonest reduction"""
    bytes: int
    """of the tensors that are reduced"""

    @property
    def reductions(self) -> Ints:
        """Rows of `ops` of the reductions."""
        found: Ints = self.ops[self.kinds == REDUCES]
        return found


@dataclass(frozen=True)
class Runs:
    """What was found, and what could not be judged."""

    runs: tuple[Run, ...]
    gpu_op: Ints
    """[gpu] the op of a run's level that launched each row; -1 none"""
    without_shapes: int
    """reductions outside the backward pass whose shapes are not recorded"""


def find_runs(analysis: Analysis, min_length: int) -> Runs:
    """All runs of at least `min_length` reductions inside the steps."""
    ops, gpu_op = analysis.trace.table("ops"), analysis.links.gpu_op
    top = np.full(len(gpu_op), -1, np.int64)
    if not len(ops):
        return Runs((), top, 0)
    wanted = (gpu_op >= 0) & (analysis.steps.gpu_step >= 0)
    wanted &= analysis.phases != PHASES.index("backward")
    rows = np.flatnonzero(wanted)
    top[rows] = _outermost_aten(analysis, gpu_op[rows])
    rows = rows[top[rows] >= 0]
    which, first = np.unique(top[rows], return_index=True)
    step = analysis.steps.gpu_step[rows[first]]
    order = np.lexsort((ops.ts[which], ops.ints("tid")[which], step))
    which, step = which[order], step[order]
    blind = 0
    memory: dict[tuple[int, ...], tuple[int, int]] = {}
    kinds, elements = np.empty(len(which), np.int64), np.empty(len(which), np.int64)
    columns = [ops.text(c) for c in ("name", "shapes", "dtypes", "strides", "concrete")]
    coded = np.stack([c.codes[which] for c in columns], axis=1).tolist()
    for i, (row, codes) in enumerate(zip(which.tolist(), map(tuple, coded), strict=True)):
        if codes not in memory:
            name, shapes, dtypes, strides, concrete = (c[row] or "" for c in columns)
            memory[codes] = _kind(name, shapes, dtypes, strides, concrete)
        kinds[i], elements[i] = memory[codes]
        blind += codes[1] < 0 and (columns[0][row] or "") in _NAMES
    _confirm(kinds, elements)
    for i in np.flatnonzero(columns[0].where(lambda n: n == "aten::stack")[which]).tolist():
        # The profiler leaves out the shapes of long lists; those of the parts tell.
        if kinds[i] == OTHER and _stacks_numbers(analysis, int(which[i])):
            kinds[i] = SCALAR
    tid = ops.ints("tid")[which]
    new = (np.diff(step) != 0) | (np.diff(tid) != 0)
    # Each op that is no part of a run stands alone.
    new |= (kinds[1:] == OTHER) | (kinds[:-1] == OTHER)
    runs = []
    for part in np.split(np.arange(len(which)), np.flatnonzero(new) + 1):
        if (kinds[part] == REDUCES).sum() >= min_length:
            runs.append(_run(analysis, int(step[part[0]]), which[part], kinds[part]))
    return Runs(tuple(runs), top, blind)


def _outermost_aten(analysis: Analysis, op: Ints) -> Ints:
    """The outermost aten op around each op; -1 where the innermost is none itself."""
    is_aten = analysis.trace.table("ops").text("name").where(lambda n: n.startswith("aten::"))
    parent = analysis.links.op_parent
    best = np.where(at(is_aten, op), op, -1).astype(np.int64)
    up = np.where(best >= 0, at(parent, op), -1)
    while (up >= 0).any():
        best = np.where((up >= 0) & at(is_aten, up), up, best).astype(np.int64)
        up = np.where(up >= 0, at(parent, up), -1)
    return best


def _kind(name: str, shapes: str, dtypes: str, strides: str, concrete: str) -> tuple[int, int]:
    """What an op can be to a run, and how many elements it reduces or makes."""
    if name in _READS:
        return READS, 1
    found = tensors(shapes, dtypes, strides)
    moved: Traffic | None = traffic(name, shapes, dtypes, strides, concrete)
    if name in _NAMES:
        full = moved is not None and moved.shape == () and found[0].elements > 1
        return (REDUCES, found[0].elements) if full else (OTHER, 0)
    if found and all(t.elements <= 1 for t in found):
        return SCALAR, 1
    if moved is not None and moved.kind == "pointwise" and moved.shape is not None:
        return MAKES, int(np.prod(moved.shape, dtype=np.int64))
    return OTHER, 0


def _stacks_numbers(analysis: Analysis, row: int) -> bool:
    """Whether an `aten::stack` is of single numbers, by the `aten::unsqueeze` of each inside it."""
    ops = analysis.trace.table("ops")
    inner = np.flatnonzero(analysis.links.op_parent == row)
    inner = inner[named(ops.text("name"), inner, lambda n: n == "aten::unsqueeze")]
    found = [tensors(ops.text("shapes")[r] or "", ops.text("dtypes")[r] or "") for r in inner[:2]]
    return len(found) > 0 and all(f and f[0].elements <= 1 for f in found)


def _confirm(kinds: Ints, elements: Ints) -> None:
    """An elementwise op makes a reduction's input only if the next op is that reduction, or one
    more such op, of as many elements."""
    for i in range(len(kinds) - 1, -1, -1):
        if kinds[i] == MAKES:
            last = i + 1 >= len(kinds)
            if last or kinds[i + 1] not in (REDUCES, MAKES) or elements[i] != elements[i + 1]:
                kinds[i] = OTHER


def _run(analysis: Analysis, step: int, rows: Ints, kinds: Ints) -> Run:
    ops = analysis.trace.table("ops")
    # From the first reduction (or what makes its input) to the last op that belongs to one.
    begins = np.flatnonzero((kinds == REDUCES) | (kinds == MAKES))[0]
    rows, kinds = rows[begins:], kinds[begins:]
    names, total = [], 0
    for row in rows[kinds == REDUCES].tolist():
        names.append(ops.text("name")[row] or "")
        total += tensors(ops.text("shapes")[row] or "", ops.text("dtypes")[row] or "")[0].bytes
    common = max(sorted(set(names)), key=names.count)
    return Run(step, int(ops.ints("tid")[rows[0]]), rows, kinds, common, total)
