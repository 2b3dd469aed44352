"""Where in the user's program GPU work comes from: ops, module, phase, file and line.

Computed only for the rows asked for: a finding asks for a few dozen, not for the whole trace.
What the recording does not hold is None; nothing is guessed from a kernel's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tracekit.trace.table import Ints, Table

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

T = TypeVar("T")

PHASES = ("forward", "backward", "optimizer", "loader", "step boundary")
_SAMPLE = 32
_FRAME = re.compile(r"^(?P<file>.+?\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARY = re.compile(
    r"site-packages|dist-packages|(^|/)torch/|(^|/)lib/python3|^<|(^|/)runpy\.py|"
    r"(^|/)threading\.py|(^|/)contextlib\.py|(^|/)functools\.py|importlib|(^|/)queue\.py|"
    r"(^|/)triton/|(^|/)torchvision/|(^|/)transformers/|(^|/)accelerate/|(^|/)lightning/"
)
_BACKWARD = ("autograd::engine::evaluate_function", "CompiledFunctionBackward")
_LOADER = ("enumerate(DataLoader)", "DataLoader")


@dataclass(frozen=True)
class Place:
    """Where one op ran."""

    ops: tuple[str, ...]
    """names of the op and what encloses it, outermost first"""
    phase: str | None
    """one of PHASES"""
    module: str | None
    """nn.Module path, outermost first, '/' between"""
    file: str | None
    line: int | None


def place_of(analysis: Analysis, op_row: int) -> Place:
    """Where the op of one `ops` row ran. A row of -1 gives an empty place."""
    if op_row < 0:
        return Place((), None, None, None, None)
    ops = analysis.trace.table("ops")
    names = ops.text("name")
    chain = tuple(names[r] or "" for r in analysis.links.chain(op_row))
    phase = _phase(analysis, op_row, chain)
    at = op_row
    if phase == "backward":
        at = _forward_op(analysis, op_row)
    frames = _frames(analysis.trace.table("python"), ops, at) if at >= 0 else []
    modules = [f.removeprefix("nn.Module: ") for f in frames if f.startswith("nn.Module: ")]
    file, line = _user_frame(frames)
    return Place(chain, phase, "/".join(modules) or None, file, line)


def common_place(analysis: Analysis, gpu_rows: Ints) -> Place:
    """One place for many GPU rows: their commonest op chain, phase, module and line, each taken
    from a sample of at most 32 rows, the longest-running ones. Rows without an op are left out.

    Args:
        gpu_rows: rows of `gpu`.
    """
    duration = analysis.trace.table("gpu").ints("dur")[gpu_rows]
    order = np.argsort(-duration, kind="stable")[:_SAMPLE]
    return common_place_of_ops(analysis, analysis.links.gpu_op[gpu_rows[order]])


def common_place_of_ops(analysis: Analysis, op_rows: Ints) -> Place:
    """The same for rows of `ops` (-1 where unknown), the first 32 of them."""
    places = [place_of(analysis, int(r)) for r in op_rows[:_SAMPLE] if r >= 0]
    spot = _commonest([(p.file, p.line) if p.file else None for p in places])
    return Place(
        _commonest([p.ops for p in places]) or (),
        _commonest([p.phase for p in places]),
        _commonest([p.module for p in places]),
        spot[0] if spot else None,
        spot[1] if spot else None,
    )


def _commonest(values: Sequence[T | None]) -> T | None:
    counted = Counter(v for v in values if v is not None)
    return counted.most_common(1)[0][0] if counted else None


def _phase(analysis: Analysis, op_row: int, chain: tuple[str, ...]) -> str | None:
    ops, annotations = analysis.trace.table("ops"), analysis.trace.table("annotations")
    if any(n.startswith("Optimizer.") for n in chain):
        return "optimizer"
    if any(n.startswith(_BACKWARD) or n.endswith("Backward0") for n in chain):
        return "backward"
    if any(n.startswith(_LOADER) for n in chain):
        return "loader"
    pid, tid = int(ops.ints("pid")[op_row]), int(ops.ints("tid")[op_row])
    at = int(ops.ts[op_row])
    around: list[str] = []
    if len(annotations):
        mask = (annotations.ints("tid") == tid) & (annotations.ints("pid") == pid)
        mask &= (annotations.ts <= at) & (annotations.end > at)
        around = [annotations.text("name")[r] or "" for r in np.flatnonzero(mask)]
    if any(n.startswith("Optimizer.") for n in around):
        return "optimizer"
    if any(n.startswith(_LOADER) for n in around):
        return "loader"
    if analysis.trace.threads.get((pid, tid), "").startswith("pt_autograd"):
        return "backward"
    # Parameter averaging, clipping and bucket copies are no part of the forward pass.
    if any(n.startswith(("aten::_foreach", "torch.distributed")) for n in chain):
        return None
    return "forward" if chain else None


def _forward_op(analysis: Analysis, op_row: int) -> int:
    """The forward op that shares the backward's autograd sequence number; -1 if none."""
    ops = analysis.trace.table("ops")
    seq, forward_tid = ops.ints("seq"), ops.ints("fwd_tid")
    for row in reversed(analysis.links.chain(op_row)):
        if seq[row] >= 0 and forward_tid[row] > 0:
            same = np.flatnonzero(seq == seq[row])
            same = same[(forward_tid[same] <= 0) & (ops.ts[same] < ops.ts[row])]
            return int(same[-1]) if len(same) else -1
    return -1


def _frames(python: Table, ops: Table, op_row: int) -> list[str]:
    """Python frames and modules running at the op's start on its thread, outermost first."""
    if not len(python):
        return []
    at = int(ops.ts[op_row])
    mask = (python.ts <= at) & (python.end > at)
    same = python.ints("tid") == int(ops.ints("tid")[op_row])
    # Some recordings give every Python row thread 0.
    if (mask & same).any():
        mask &= same
    rows = np.flatnonzero(mask)
    return [python.text("name")[r] or "" for r in rows]


def _user_frame(frames: list[str]) -> tuple[str | None, int | None]:
    """The innermost frame outside libraries."""
    for frame in reversed(frames):
        found = _FRAME.match(frame)
        if found and not _LIBRARY.search(found["file"]):
            return found["file"], int(found["line"])
    return None, None
