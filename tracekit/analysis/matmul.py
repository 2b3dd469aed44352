"""Floating-point operations and bytes of matrix products and convolutions, from recorded shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tracekit.analysis.opargs import Tensor, tensors

# Position of the left factor among the op's tensors.
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::matmul": 0}
_PRODUCTS |= {"aten::_addmm_activation": 1}
_FORWARD = ("aten::cudnn_convolution", "aten::_convolution", "aten::convolution")


@dataclass(frozen=True)
class Work:
    """What one kernel of an op has to do at least."""

    flops: int
    bytes: int
    """each factor read once, the product written once"""


@lru_cache(maxsize=65536)
def work_of(op: str, shapes: str, dtypes: str, concrete: str = "") -> Work | None:
    """The work of one of the op's products, by its recorded arguments (raw JSON text).

    `aten::convolution_backward` makes two products of this size (for the input and the weight).
    None for an op that is not known, or where shapes are missing.
    """
    found = tensors(shapes, dtypes)
    if op in _PRODUCTS:
        first = _PRODUCTS[op]
        return _product(found[first : first + 2])
    if op == "aten::convolution_backward" and len(found) >= 3:
        return _convolution(found[1], found[2], found[0].shape)
    if op in _FORWARD and len(found) >= 2:
        out = _output(found[0].shape, found[1].shape, concrete)
        return _convolution(found[0], found[1], out) if out else None
    return None


def products_of(op: str, concrete: str) -> int:
    """How many products of `work_of`'s size one call of the op makes.

    A convolution's backward makes one for each gradient of input and weight that is asked for
    (its last argument; both where it was not recorded), any other op one.
    """
    if op != "aten::convolution_backward":
        return 1
    values = _decode(concrete)
    last = values[-1] if values else None
    if isinstance(last, str) and last.startswith("["):
        return max(sum("True" in flag for flag in last.split(",")[:2]), 1)
    return 2


def _product(factors: tuple[Tensor, ...]) -> Work | None:
    if len(factors) < 2:
        return None
    a, b = factors
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        return None
    out = prod(a.shape[:-1]) * b.shape[-1]
    return Work(2 * out * a.shape[-1], a.bytes + b.bytes + out * a.item_bytes)


def _convolution(x: Tensor, weight: Tensor, out: tuple[int, ...]) -> Work | None:
    if len(weight.shape) < 3 or len(out) != len(weight.shape):
        return None
    # weight: [out channels, in channels / groups, kernel ...]
    flops = 2 * prod(out) * prod(weight.shape[1:])
    return Work(flops, x.bytes + weight.bytes + prod(out) * x.item_bytes)


def _output(x: tuple[int, ...], weight: tuple[int, ...], concrete: str) -> tuple[int, ...] | None:
    """Shape of `cudnn_convolution`'s result, None where padding and stride are not recorded."""
    lists = _lists(concrete)
    spatial = len(weight) - 2
    if spatial < 1 or len(x) != len(weight) or len(lists) < 3:
        return None
    padding, stride, dilation = lists[:3]
    if not len(padding) == len(stride) == len(dilation) == spatial or 0 in stride:
        return None
    size = [
        (x[2 + i] + 2 * padding[i] - dilation[i] * (weight[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(spatial)
    ]
    return (x[0], weight[0], *size)


def allows_tf32(op: str, concrete: str) -> bool | None:
    """The `allow_tf32` argument of a cuDNN convolution op; None where it was not recorded."""
    if op not in ("aten::cudnn_convolution", "aten::_convolution"):
        return None
    values = _decode(concrete)
    last = values[-1] if values else None
    return {"True": True, "False": False}.get(last) if isinstance(last, str) else None


def _decode(concrete: str) -> list[object]:
    try:
        values = json.loads(concrete) if concrete else []
    except ValueError:
        return []
    return values if isinstance(values, list) else []


def _lists(concrete: str) -> list[list[int]]:
    """The arguments that are lists of integers, in order."""
    found: list[list[int]] = []
    for value in _decode(concrete):
        if isinstance(value, str) and value.startswith("["):
            try:
                inner = json.loads(value)
            except ValueError:
                continue
            if isinstance(inner, list) and inner and all(isinstance(i, int) for i in inner):
                found.append(inner)
    return found
