"""What one kernel in place of a chain of elementwise kernels would move.

A recording says what shape and type an op's inputs have, not which tensors they are. So there are
two bounds: an input that could be a tensor which the chain has already read or made is that
tensor and stays in registers, or only the output of the op before is. Truth is between (a norm
reads its input again after its statistics; a gate's product reads another tensor of that
shape), and the middle is the estimate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from tracekit.analysis.bytes import Traffic
from tracekit.analysis.opargs import Tensor


@dataclass(frozen=True)
class FusedBytes:
    """Bytes of a chain and of the kernel that replaces it."""

    now: int
    """moved by the chain's kernels"""
    least: int
    """every input that the chain can have read or made before is in registers"""
    likely: int
    """half of the inputs that could be in registers are"""
    most: int
    """only the previous op's output is, and every intermediate is also written, for the backward
    pass"""


def fused_bytes(parts: list[Traffic]) -> FusedBytes:
    """What a chain moves, and what one kernel would."""
    now = sum(t.moved for t in parts)
    last = parts[-1].written
    written = sum(t.written for t in parts)
    all_read = sum(t.bytes for t in parts[0].inputs) + sum(
        _unfed(before, part) for before, part in pairwise(parts)
    )
    least = _first_reads(parts) + last
    most = min(all_read + written, now)
    return FusedBytes(now, least, min((least + all_read + last) // 2, most), most)


def _unfed(before: Traffic, part: Traffic) -> int:
    """Bytes of an op's inputs, but for one that the op before can have made."""
    rest = list(part.inputs)
    made = prod(before.shape or ())
    fed = next((t for t in rest if t.elements == made), None)
    if fed is not None:
        rest.remove(fed)
    return sum(t.bytes for t in rest)


def _first_reads(parts: list[Traffic]) -> int:
    """Bytes that must come from memory: of each size and type, no more tensors than are read at
    once beyond those already read or made."""
    held: Counter[tuple[int, int]] = Counter()
    read = 0
    for part in parts:
        wanted: Counter[tuple[int, int]] = Counter()
        for tensor in part.inputs:
            kind = _kind(tensor)
            wanted[kind] += 1
            if wanted[kind] > held[kind]:
                held[kind] += 1
                read += tensor.bytes
        size = prod(part.shape or ())
        if size:
            held[(size, part.written // size)] += 1
    return read


def _kind(tensor: Tensor) -> tuple[int, int]:
    """Elements in memory and bytes an element: what two inputs have in common if they may be one
    tensor."""
    return tensor.bytes // max(tensor.item_bytes, 1), tensor.item_bytes
