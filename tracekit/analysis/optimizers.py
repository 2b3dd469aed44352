"""Optimizer steps written out as elementwise work: which ops they are, and how often they go
through memory.

An Adam or SGD step that is not fused is a fixed sequence of elementwise ops, once for each
parameter (`foreach=False`) or once for a list of parameters (`aten::_foreach_*`). The sequence is
recognised, not the annotation around it: parameter averages, gradient clipping and whatever else a
hook runs inside `Optimizer.step#` are other sequences and are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.layout import at
from tracekit.analysis.links import enclosing
from tracekit.analysis.opargs import tensors
from tracekit.trace.table import Bools, Ints, Table

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

_LETTER = {
    "add": "a", "mul": "m", "lerp": "l", "addcmul": "c", "addcdiv": "d", "sqrt": "s", "div": "v",
    "maximum": "x", "neg": "n",
}  # fmt: skip
_OTHER = "."
# Weight decay, first moment, second moment, denominator, update (torch.optim.adam, adamw; before
# torch 2.1 the first moment was mul and add).
_ADAM = re.compile(r"n?[ma]?(?:l|ma)mcx?s[vm]a[vm]?d")
# Weight decay, momentum, Nesterov, update (torch.optim.sgd). Without momentum: decay, update.
_SGD = re.compile(r"n?a?maa?a")
_PLAIN_SGD = re.compile(r"n?a?a")
# Tensors that each op reads and writes.
_ACCESSES = {"m": 2, "l": 3, "c": 4, "s": 2, "v": 2, "x": 3, "n": 2, "d": 4, "a": 3}
_SKIPPED = frozenset(("aten::item", "aten::_local_scalar_dense"))


@dataclass(frozen=True)
class UnfusedStep:
    """One optimizer step's elementwise work of one form."""

    optimizer: str
    """class name, as in Optimizer.step#AdamW.step"""
    family: str
    """Adam or SGD"""
    foreach: bool
    """lists of parameters, else one parameter after the other"""
    rows: Ints
    """rows of `gpu`, in launch order"""
    op_rows: Ints
    """rows of `ops` that launched them, outermost inside the step, in time order"""
    groups: int
    """sequences found: parameters of a loop, or groups of parameters"""
    accesses: float
    """tensors read and written for each parameter, by all passes"""
    fused_accesses: int
    """by one pass over the same state"""
    parameter_bytes: int
    """of all parameters; 0 where shapes are not recorded"""
    spans: Ints
    """[n, 2] host time from the first to the last op of each uninterrupted run of them"""
    tid: int


@dataclass(frozen=True)
class OptimizerSteps:
    """What was found inside the steps."""

    unfused: tuple[UnfusedStep, ...]
    unknown: dict[str, float]
    """optimizer to ns of its marks that hold work of no known sequence and no fused kernel"""


def find_optimizer_steps(analysis: Analysis) -> OptimizerSteps:
    """Every Optimizer.step# mark inside the steps whose elementwise work is a known sequence."""
    ops, gpu = analysis.trace.table("ops"), analysis.trace.table("gpu")
    marks = _marks(analysis)
    if not len(marks) or not len(ops):
        return OptimizerSteps((), {})
    is_mark = ops.text("name").where(_is_step)
    mark_of = enclosing(marks, ops)
    inside = (mark_of >= 0) & ~is_mark
    parent = analysis.links.op_parent
    outermost = inside & ~((parent >= 0) & at(inside, parent))
    outermost &= ~ops.text("name").where(lambda n: n in _SKIPPED)
    rows = np.flatnonzero((analysis.steps.gpu_step >= 0) & (analysis.links.gpu_op >= 0))
    top = _outermost(analysis.links.gpu_op[rows], parent, outermost)
    rows, top = rows[top >= 0], top[top >= 0]
    order = np.lexsort((rows, top))
    rows, top = rows[order], top[order]
    fused = analysis.classes.rule.where(lambda r: r == "fused-optimizer")
    letters = ops.text("name").map(_letter, "U1")
    found: list[UnfusedStep] = []
    unknown: dict[str, float] = {}
    for mark in np.unique(mark_of[top]).tolist():
        mine = mark_of[top] == mark
        launched = np.unique(top[mine])
        name = _optimizer(marks.text("name")[mark] or "")
        text = "".join(letters[launched].tolist())
        matches, family = _matches(text, name)
        if matches:
            found.append(
                _step(analysis, name, family, text, matches, launched, rows[mine], top[mine])
            )
            counted = np.flatnonzero(outermost & (mark_of == mark) & (letters == "a"))
            _reach_back(analysis, found[-1], launched, counted)
        elif not fused[rows[mine]].any():
            spent = max(float(gpu.ints("dur")[rows[mine]].sum()), float(marks.ints("dur")[mark]))
            unknown[name] = unknown.get(name, 0.0) + spent
    return OptimizerSteps(tuple(found), unknown)


def _marks(analysis: Analysis) -> Table:
    """Optimizer.step# marks: annotations, or ops in old recordings."""
    annotations, ops = analysis.trace.table("annotations"), analysis.trace.table("ops")
    if len(annotations):
        mask = annotations.text("name").where(_is_step)
        mask &= annotations.text("where").where(lambda w: w == "cpu")
        if mask.any():
            return annotations.take(mask)
    return ops.take(ops.text("name").where(_is_step)) if len(ops) else ops


def _is_step(name: str) -> bool:
    return name.startswith("Optimizer.step#")


def _optimizer(mark: str) -> str:
    return mark.removeprefix("Optimizer.step#").removesuffix(".step")


def _letter(name: str) -> str:
    short = name.removeprefix("aten::").removeprefix("_foreach_").rstrip("_")
    return _LETTER.get(short, _OTHER)


def _outermost(op: Ints, parent: Ints, wanted: Bools) -> Ints:
    """The wanted op at or around each op (-1 none)."""
    best = np.full(len(op), -1, np.int64)
    up = op
    while (up >= 0).any():
        best = np.where((up >= 0) & at(wanted, up), up, best)
        up = np.where(up >= 0, at(parent, up), -1)
    return best


def _matches(text: str, optimizer: str) -> tuple[list[tuple[int, int]], str]:
    """Spans of known sequences in a mark's ops, and the family they belong to."""
    adam = [m.span() for m in _ADAM.finditer(text)]
    if adam:
        return adam, "Adam"
    if optimizer != "SGD":  # two or three additions are no fingerprint
        return [], ""
    pattern = _SGD if "m" in text else _PLAIN_SGD
    return [m.span() for m in pattern.finditer(text)], "SGD"


def _step(
    analysis: Analysis,
    name: str,
    family: str,
    text: str,
    matches: list[tuple[int, int]],
    launched: Ints,
    rows: Ints,
    top: Ints,
) -> UnfusedStep:
    ops = analysis.trace.table("ops")
    used = np.concatenate([np.arange(a, b) for a, b in matches])
    op_rows = launched[used]
    names = ops.text("name")
    foreach = all((names[r] or "").startswith("aten::_foreach_") for r in op_rows.tolist())
    # Runs of ops with nothing else of the mark between them.
    cuts = np.flatnonzero(np.diff(used) > 1) + 1
    spans = [[ops.ts[launched[r[0]]], ops.end[launched[r[-1]]]] for r in np.split(used, cuts)]
    updates = [launched[b - 1] for _, b in matches]
    return UnfusedStep(
        optimizer=name,
        family=family,
        foreach=foreach,
        rows=rows[np.isin(top, op_rows)],
        op_rows=op_rows,
        groups=len(matches),
        accesses=float(np.mean([_accesses(text[a:b], family) for a, b in matches])),
        fused_accesses=_fused_accesses(text, matches, family),
        parameter_bytes=sum(_first_bytes(ops, int(r), foreach) for r in updates),
        spans=np.array(spans, np.int64).reshape(-1, 2),
        tid=int(ops.ints("tid")[op_rows[0]]),
    )


def _reach_back(analysis: Analysis, step: UnfusedStep, launched: Ints, additions: Ints) -> None:
    """Let the first span begin at the addition to the step counters before it, which launches
    nothing where they are on the host, unless other work of the mark lies between."""
    ops = analysis.trace.table("ops")
    first = int(step.spans[0, 0])
    before = launched[ops.ts[launched] < first]
    free = int(ops.end[before].max()) if len(before) else -1
    starts = ops.ts[additions]
    starts = starts[(starts >= free) & (starts < first)]
    if len(starts):
        step.spans[0, 0] = int(starts[0])


def _accesses(sequence: str, family: str) -> int:
    total = sum(_ACCESSES[letter] for letter in sequence)
    if family == "Adam" and "a" in sequence[sequence.index("s") :]:
        total -= 1  # epsilon is a number, not a tensor
    return total


def _fused_accesses(text: str, matches: list[tuple[int, int]], family: str) -> int:
    """Adam reads parameter, gradient and two moments, and writes all but the gradient; amsgrad
    has a third moment. SGD has a momentum, or none."""
    sequence = text[matches[0][0] : matches[0][1]]
    if family == "Adam":
        return 9 if "x" in sequence else 7
    return 5 if "m" in sequence else 3


def _first_bytes(ops: Table, row: int, foreach: bool) -> int:
    """Bytes of what an update writes to: its first input, or its first list of inputs."""
    shapes, dtypes = ops.text("shapes")[row] or "", ops.text("dtypes")[row] or ""
    found = tensors(shapes, dtypes)
    if not found:
        return 0
    if not foreach:
        return found[0].bytes
    # Lists of one length follow each other: parameter, gradient (and denominator).
    lists = dtypes.count("TensorList")
    return sum(t.bytes for t in found[: len(found) // lists]) if lists else 0
