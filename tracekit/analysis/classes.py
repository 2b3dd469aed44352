"""Kernel classes: what kind of work each GPU row is, and by which rule.

A class comes from the kernel's name (`tracekit.analysis.kernel_rules`), refined by the op that
launched it where that is recorded:

* a generic kernel (elementwise, reduction) inside a norm or attention op has that op's class;
* `multi_tensor_apply`, and a generic kernel inside an `Optimizer.step#` annotation, is optimizer;
* a matrix product inside a convolution op (a 1x1 convolution run as one) is convolution;
* a copy inside `aten::convolution_backward`, or one whose recorded strides go from one memory
  format to the other, is layout.

Kernels that Inductor generated have the class of what they do (`triton_poi_` elementwise,
`triton_red_`/`triton_per_` reduction, `triton_tem_` the template's product); `KernelClasses.triton`
says that they are Triton's. The class `triton` is kept for Triton kernels of which nothing else is
known. Kernels of devices without a rule (XPU, MTIA) are `other` unless their name is plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracekit.analysis.kernel_rules import Rule, rule_of
from tracekit.analysis.links import Links, enclosing
from tracekit.analysis.opargs import moves_memory_format
from tracekit.trace.model import Trace
from tracekit.trace.table import Bools, Codes, Ints, Strings, Table

CLASS_NAMES = (
    "convolution",
    "gemm",
    "attention",
    "norm",
    "elementwise",
    "reduction",
    "copy",
    "layout",
    "communication",
    "optimizer",
    "triton",
    "other",
)

CONVOLUTION_OPS = (
    "aten::cudnn_convolution",
    "aten::miopen_convolution",
    "aten::convolution_backward",
    "aten::_convolution",
    "aten::convolution",
    "aten::slow_conv",
    "aten::conv_depthwise",
    "aten::_conv_depthwise",
)
_NORM_OPS = (
    "batch_norm",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "instance_norm",
    "NativeBatchNorm",
    "NativeLayerNorm",
    "NativeGroupNorm",
)
_ATTENTION_OPS = ("attention", "_efficient_attention", "scaled_dot_product")
# Context bits of an op: what it runs inside of.
_IN_CONVOLUTION_BACKWARD, _IN_CONVOLUTION, _IN_NORM, _IN_OPTIMIZER = 1, 2, 4, 8
_REFINABLE = frozenset(("elementwise", "reduction", "copy", "triton", "other"))


@dataclass(frozen=True)
class KernelClasses:
    """Class and rule of every `gpu` row."""

    names: tuple[str, ...]
    code: Codes
    """[gpu rows] index into `names`"""
    rule: Strings
    """[gpu rows] name of the rule that gave the class"""
    triton: Bools
    """[gpu rows] True for kernels that Triton compiled (Inductor's and hand-written ones)"""

    def rows(self, *names: str) -> Bools:
        """Mask of the rows that have any of these classes.

        Raises:
            ValueError: if there is no such class.
        """
        wanted = [self.names.index(n) for n in names]
        return np.isin(self.code, wanted)

    def of(self, row: int) -> str:
        """The class of one `gpu` row."""
        return self.names[int(self.code[row])]


def classify(trace: Trace, links: Links) -> KernelClasses:
    """Give every GPU row its class. Each distinct (name, op, context) is judged once."""
    gpu, ops = trace.table("gpu"), trace.table("ops")
    names, kinds = gpu.text("name"), gpu.text("kind")
    by_name = [rule_of(n) for n in names.values]
    context = _context(trace, links)
    op = links.gpu_op
    op_names = ops.text("name")
    op_name = _gather(op_names.codes, op, -1)
    flags = _gather(context, op, 0) | _optimizer_launches(trace, links)
    from_triton = _gather(_triton_ops(ops), op, 0)
    moved = _moved(ops, op, names, by_name)
    work = kinds.map(lambda k: 0 if k == "kernel" else 1, np.int64)

    key = names.codes.astype(np.int64) + 1
    for part, size in (
        (op_name.astype(np.int64) + 1, len(op_names.values) + 1),
        (flags.astype(np.int64), 16),
        (moved + 1, 3),
        (from_triton.astype(np.int64), 2),
        (work, 2),
    ):
        key = key * size + part
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)

    rule_code: dict[str, int] = {}
    class_of = np.zeros(len(first), np.int32)
    rule_at = np.zeros(len(first), np.int32)
    triton_at = np.zeros(len(first), bool)
    for i, row in enumerate(first.tolist()):
        if work[row]:
            name, rule, triton = "copy", str(kinds[row]), False
        else:
            found = by_name[names.codes[row]] if names.codes[row] >= 0 else rule_of("")
            launcher = op_names.values[op_name[row]] if op_name[row] >= 0 else ""
            name, rule = _refine(found, launcher, int(flags[row]), int(moved[row]))
            triton = found.triton or bool(from_triton[row])
            if rule == "no-rule" and triton:
                name, rule = "triton", "triton-source"
        class_of[i] = CLASS_NAMES.index(name)
        rule_at[i] = rule_code.setdefault(rule, len(rule_code))
        triton_at[i] = triton
    inverse = inverse.reshape(-1)
    return KernelClasses(
        CLASS_NAMES,
        class_of[inverse],
        Strings(rule_at[inverse], list(rule_code)),
        triton_at[inverse],
    )


def _refine(found: Rule, op: str, flags: int, moved: int) -> tuple[str, str]:
    """Class and rule of a kernel, given its launching op, that op's context, and whether it moves
    a tensor between memory formats (1), does not (0), or nothing is recorded (-1)."""
    name = found.kernel_class
    if name == "copy" and found.name == "aten-copy":
        if moved == 1:
            return "layout", "memory-format-copy"
        if flags & _IN_CONVOLUTION_BACKWARD and moved < 0 and op == "aten::copy_":
            return "layout", "copy-in-convolution-backward"
    if name == "gemm" and flags & _IN_CONVOLUTION:
        return "convolution", f"{found.name}-in-convolution"
    if not found.generic or name not in _REFINABLE or found.name == "aten-copy":
        if flags & _IN_OPTIMIZER and found.name == "aten-copy":
            return "optimizer", "optimizer-step"
        return name, found.name
    if flags & _IN_OPTIMIZER:
        return "optimizer", "optimizer-step"
    if flags & _IN_NORM and name != "copy":
        return "norm", f"{found.name}-in-norm"
    if name == "other" and any(a in op for a in _ATTENTION_OPS):
        return "attention", "in-attention-op"
    if name == "other" and flags & _IN_CONVOLUTION:
        return "convolution", "in-convolution-op"
    return name, found.name


def _gather(values: npt.NDArray[Any], rows: Ints, missing: int) -> Ints:
    if not len(values):
        return np.full(len(rows), missing, np.int64)
    out: Ints = np.where(rows >= 0, values[np.maximum(rows, 0)], missing)
    return out


def _context(trace: Trace, links: Links) -> Ints:
    """[ops] bits of what each op is or runs inside of."""
    ops = trace.table("ops")

    def bits(name: str) -> int:
        found = 0
        if name.startswith("aten::convolution_backward"):
            found |= _IN_CONVOLUTION_BACKWARD
        if name.startswith(CONVOLUTION_OPS):
            found |= _IN_CONVOLUTION
        if any(n in name for n in _NORM_OPS):
            found |= _IN_NORM
        if name.startswith("Optimizer."):
            found |= _IN_OPTIMIZER
        return found

    own = ops.text("name").map(bits, np.int64)
    return inherit(own, links.op_parent)


def inherit(bits: Ints, parent: Ints) -> Ints:
    """[ops] each op's bits or'ed with those of all that encloses it (`parent`: row, -1 none)."""
    bits, up = bits.copy(), parent.copy()
    while len(up) and (up >= 0).any():
        has = np.flatnonzero(up >= 0)
        # Simultaneous update: an ancestor 2^k levels up already holds its own 2^k levels.
        bits[has] |= bits[up[has]]
        up[has] = up[up[has]]
    return bits


def _optimizer_launches(trace: Trace, links: Links) -> Ints:
    """[gpu] the optimizer bit for work launched inside an Optimizer.step# annotation."""
    out = np.zeros(len(links.gpu_launch), np.int64)
    annotations = trace.table("annotations")
    if not len(annotations):
        return out
    marks = annotations.text("name").where(lambda n: n.startswith("Optimizer."))
    marks &= annotations.text("where").where(lambda w: w == "cpu")
    if not marks.any():
        return out
    launches = trace.table("launches")
    inside = enclosing(annotations.take(marks), launches) >= 0
    out[_gather(inside.astype(np.int64), links.gpu_launch, 0) > 0] = _IN_OPTIMIZER
    return out


def _triton_ops(ops: Table) -> Ints:
    """[ops] 1 where the op is itself the launch of a Triton source file."""
    out: Ints = (ops.text("kernel_file").codes >= 0).astype(np.int64)
    return out


def _moved(ops: Table, op: Ints, names: Strings, by_name: list[Rule]) -> Ints:
    """[gpu] 1 where a copy moves between memory formats by its recorded strides, 0 where it does
    not, -1 where it is no copy or nothing is recorded. Each distinct op signature is read once."""
    out = np.full(len(op), -1, np.int64)
    copies = np.array([r.name == "aten-copy" for r in by_name] + [False], bool)
    rows = np.flatnonzero(copies[names.codes] & (op >= 0))
    if not len(rows) or not len(ops):
        return out
    shapes, strides = ops.text("shapes"), ops.text("strides")
    at = op[rows]
    known = (shapes.codes[at] >= 0) & (strides.codes[at] >= 0)
    rows, at = rows[known], at[known]
    key = shapes.codes[at].astype(np.int64) * (len(strides.values) + 1) + strides.codes[at]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    answers = []
    for o in at[first].tolist():
        verdict = moves_memory_format(shapes[o] or "", strides[o] or "")
        answers.append(-1 if verdict is None else int(verdict))
    out[rows] = np.array(answers, np.int64)[inverse.reshape(-1)] if answers else out[rows]
    return out
