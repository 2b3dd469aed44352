"""What SYN001 does about a boolean mask as an index: its price beyond the wait.

`rows[mask].mean()` counts the mask's entries on the GPU, waits for the number, compacts the mask,
gathers; its backward does all of that again and sorts the indices. `torch.where(mask, rows, 0)`
and a division by the mask's count launch a few kernels in place of all that, and wait for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.intervals import complement, union
from tracekit.analysis.links import thread_rows
from tracekit.detectors.host_time import all_but
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

INDEX = "aten::index"
BACKWARD = "IndexBackward0"
ASSIGNING = ("aten::index_put_", "aten::_index_put_impl_", "aten::index_put")
WHERE_LAUNCHES = 2
"""of torch.where(mask, x, 0): the scalar is filled in, then the choice; as recorded on an H200"""
MEAN_LAUNCHES = 3
"""what a mean over the masked entries then takes more than a mean: the mask as integers, their
sum, and the division by it"""

# Ops after the gather that give the same with the other entries at 0, divided by the count.
_REDUCED = ("aten::mean", "aten::sum", "aten::norm", "aten::linalg_vector_norm")
_BETWEEN = ("aten::index", "aten::to", "aten::mul", "aten::abs", "aten::pow", "aten::neg")
_LOOK_AHEAD = 4


@dataclass(frozen=True)
class Masked:
    """One use of a mask as an index, as recorded."""

    op: int
    """row of `ops`: the outermost op of it"""
    launches: int
    """launches of what takes its place"""


def masked_uses(analysis: Analysis, calls: Ints) -> list[Masked]:
    """The uses of a mask among some waiting calls whose values are only reduced or assigned
    afterwards; the gradient's part of a use goes with it.

    Args:
        calls: rows of `launches`: the waits of one group.
    """
    ops, links = analysis.trace.table("ops"), analysis.links
    if not len(ops):
        return []
    names = ops.text("name")
    forward, backward = set(), set()
    for call in calls.tolist():
        chain = links.chain(int(links.launch_op[call]))
        called = [names[r] or "" for r in chain]
        if "aten::nonzero" not in called:
            continue
        at = next((i for i, n in enumerate(called) if n == BACKWARD), None)
        if at is not None:
            backward.add(chain[at])
            continue
        at = next((i for i, n in enumerate(called) if n == INDEX or n in ASSIGNING), None)
        if at is not None:
            forward.add(chain[at])
    found = []
    for row in sorted(forward):
        if (names[row] or "") in ASSIGNING:
            found.append(Masked(row, WHERE_LAUNCHES))
        elif _is_reduced(analysis, row):
            found.append(Masked(row, WHERE_LAUNCHES + MEAN_LAUNCHES))
    if found:
        found += [Masked(row, WHERE_LAUNCHES) for row in sorted(backward)]
    return found


def _is_reduced(analysis: Analysis, op: int) -> bool:
    """Whether the next few ops of the thread come to a reduction, or a loss, of what was taken."""
    ops, parent = analysis.trace.table("ops"), analysis.links.op_parent
    for rows in thread_rows(ops):
        at = int(np.searchsorted(rows, op))
        if at >= len(rows) or rows[at] != op:
            continue
        following = rows[at + 1 :]
        following = following[ops.ts[following] >= ops.end[op]]
        beside = following[parent[following] == parent[op]][:_LOOK_AHEAD]
        for row in beside.tolist():
            name = ops.text("name")[row] or ""
            if name in _REDUCED or "loss" in name:
                return True
            if name not in _BETWEEN:
                return False
    return False


def without_mask(analysis: Analysis, uses: list[Masked]) -> Edits:
    """A `where` in the place of each use: as many launches at the program's own pace, with as many
    of the kernels that were there, the longest first; the copies of the count are gone."""
    ops, gpu, links = analysis.trace.table("ops"), analysis.trace.table("gpu"), analysis.links
    launches, waits = analysis.trace.table("launches"), analysis.waits.call
    edits = Edits()
    if not uses:
        return edits
    pace = _pace(analysis)
    known = np.flatnonzero((links.gpu_op >= 0) & ~analysis.implausible)
    op = links.gpu_op[known]
    for use in uses:
        inside = (ops.ts[op] >= ops.ts[use.op]) & (ops.end[op] <= ops.end[use.op])
        inside &= ops.ints("tid")[op] == ops.ints("tid")[use.op]
        work = known[inside]
        kernel = gpu.text("kind").where(lambda k: k == "kernel")[work]
        longest = np.lexsort((-gpu.ints("dur")[work], ~kernel))
        keep = longest[: min(use.launches, int(kernel.sum()))]
        tid = int(ops.ints("tid")[use.op])
        waiting = waits[launches.ints("tid")[waits] == tid]
        waited = union(launches.ts[waiting], launches.end[waiting])
        spans = np.stack(complement(waited, int(ops.ts[use.op]), int(ops.end[use.op])), axis=1)
        edits |= Edits(
            remove_gpu=np.delete(work, keep),
            remove_host=all_but(spans, tid, use.launches * pace),
        )
    return edits


def _pace(analysis: Analysis) -> float:
    """The program's usual time from one launch to the next on the same thread, ns."""
    launches = analysis.trace.table("launches")
    rows = np.unique(analysis.links.gpu_launch[analysis.steps.gpu_step >= 0])
    rows = rows[rows >= 0]
    apart = [
        np.diff(np.sort(launches.ts[rows[launches.ints("tid")[rows] == tid]]))
        for tid in np.unique(launches.ints("tid")[rows]).tolist()
    ]
    every = np.concatenate([np.empty(0, np.int64), *apart])
    return float(np.median(every)) if len(every) else 0.0
