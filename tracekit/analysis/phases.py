"""Which part of a step launched each piece of GPU work: forward, backward, optimizer, loader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.classes import inherit
from tracekit.analysis.links import enclosing
from tracekit.trace.table import Codes, Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

PHASES = ("forward", "backward", "optimizer", "loader", "unknown")

_BACKWARD, _OPTIMIZER, _LOADER = 1, 2, 4
_BACKWARD_NAME = re.compile(r"^autograd::engine|Backward\d*$|CompiledFunctionBackward")
_OPTIMIZER_NAME = re.compile(r"^Optimizer\.(step|zero_grad)#")
_LOADER_NAME = re.compile(r"^enumerate\(DataLoader\)")


def _bits(name: str) -> int:
    return (
        (_BACKWARD if _BACKWARD_NAME.search(name) else 0)
        | (_OPTIMIZER if _OPTIMIZER_NAME.search(name) else 0)
        | (_LOADER if _LOADER_NAME.search(name) else 0)
    )


def phase_of_work(analysis: Analysis) -> Codes:
    """[gpu] index into PHASES. Work without a recorded launch and op is unknown; work launched
    outside backward, optimizer and loader is the forward's."""
    trace, links = analysis.trace, analysis.links
    ops, launches = trace.table("ops"), trace.table("launches")
    flags = np.zeros(len(links.gpu_launch), np.int64)
    if len(ops):
        of_op = inherit(ops.text("name").map(_bits, np.int64), links.op_parent)
        has = links.gpu_op >= 0
        flags[has] = of_op[links.gpu_op[has]]
    annotations = trace.table("annotations")
    marked = annotations.text("where").where(lambda w: w == "cpu") & (
        annotations.text("name").map(_bits, np.int64) > 0
    )
    if marked.any() and len(launches):
        # Optimizer.step# and the loader's marks are annotations of their own thread.
        some = annotations.take(marked)
        around = enclosing(some, launches)
        mark = some.text("name").map(_bits, np.int64)
        of_launch = np.where(around >= 0, mark[np.maximum(around, 0)], 0)
        known = links.gpu_launch >= 0
        flags[known] |= of_launch[links.gpu_launch[known]]
    phase: Ints = np.select(
        [(flags & _OPTIMIZER) > 0, (flags & _BACKWARD) > 0, (flags & _LOADER) > 0],
        [PHASES.index("optimizer"), PHASES.index("backward"), PHASES.index("loader")],
        PHASES.index("forward"),
    )
    phase[(links.gpu_launch < 0) & (links.gpu_op < 0)] = PHASES.index("unknown")
    return phase.astype(np.int32)
