"""Bytes that an elementwise or reducing op must move, from the shapes it was recorded with.

Only ops that are known by name are judged: a wrong figure is worse than none. Each input is read
once (an expanded one as often as it has distinct elements), each output written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from json import loads
from math import prod

from tracekit.analysis.opargs import Tensor, tensors


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One output element from one element of each input. `aten::` left out; in-place forms are added.
_POINTWISE = _names(
    """abs acos add addcdiv addcmul asin atan atan2 bitwise_and bitwise_or bitwise_xor bitwise_not
    ceil celu clamp clamp_max clamp_min copy cos cosh digamma div elu elu_backward erf erfc eq exp
    exp2 expm1 floor floor_divide fmod frac ge gelu gelu_backward glu_backward gt hardsigmoid
    hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward hypot isinf isnan
    isfinite le leaky_relu leaky_relu_backward lerp lgamma log log10 log1p log2 log_sigmoid_forward
    logical_and logical_not logical_or logical_xor logit logaddexp lt masked_fill maximum minimum
    mish mish_backward mse_loss_backward mul nan_to_num ne neg pow reciprocal relu remainder round
    rsqrt rsub sgn sigmoid sigmoid_backward sign silu silu_backward sin sinh smooth_l1_loss_backward
    softplus softplus_backward sqrt square sub tan tanh tanh_backward threshold threshold_backward
    true_divide trunc where xlogy native_dropout native_dropout_backward _masked_scale"""
)
_COMPARISONS = _names(
    "eq ge gt le lt ne isnan isinf isfinite logical_and logical_not logical_or logical_xor"
)
# One output element from a row of its first input.
_REDUCTIONS = _names(
    "sum mean amax amin max min prod var std linalg_vector_norm norm logsumexp all any"
)
_POINTWISE_IN_PLACE = frozenset(f"{n}_" for n in _POINTWISE)


@dataclass(frozen=True)
class Traffic:
    """What one op reads and writes."""

    kind: str
    """pointwise or reduction"""
    inputs: tuple[Tensor, ...]
    """the tensors it reads"""
    shape: tuple[int, ...] | None
    """of its output; None for a reduction whose dimensions were not recorded"""
    written: int
    """bytes of its output; 0 where the shape is unknown"""
    in_place: bool

    @property
    def read(self) -> int:
        """Bytes read, each input once."""
        return sum(t.bytes for t in self.inputs)

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


def is_known(name: str) -> bool:
    """Whether an op of this name can be judged at all."""
    short = name.removeprefix("aten::")
    if short == name:
        return False
    return short in _POINTWISE or short in _REDUCTIONS or short in _POINTWISE_IN_PLACE


@lru_cache(maxsize=65536)
def traffic(
    name: str, shapes: str, dtypes: str, strides: str = "", concrete: str = ""
) -> Traffic | None:
    """What an op moves, by its recorded arguments (raw JSON text, '' where not recorded).

    None for an op that is not known, and where shapes or element types are missing.
    """
    if not is_known(name):
        return None
    short = name.removeprefix("aten::")
    found = tensors(shapes, dtypes, strides)
    if not found or any(t.item_bytes == 0 for t in found):
        return None
    in_place = short in _POINTWISE_IN_PLACE
    base = short[:-1] if in_place else short
    if base in _REDUCTIONS:
        shape = _reduced(found[0].shape, concrete, 2 if "norm" in base else 1)
        written = prod(shape) * found[0].item_bytes if shape is not None else 0
        return Traffic("reduction", found[:1], shape, written, False)
    if base == "copy":
        # Destination first; it is not read.
        if len(found) < 2:
            return None
        into = found[0]
        return Traffic("pointwise", found[1:2], into.shape, into.elements * into.item_bytes, True)
    broadcast = found[0].shape if in_place else _broadcast(found)
    if broadcast is None:
        return None
    item = 1 if base in _COMPARISONS else _promoted(found)
    if base == "native_dropout":
        item += 1  # the mask, a bool an element
    if in_place:
        item = found[0].item_bytes
    return Traffic("pointwise", found, broadcast, prod(broadcast) * item, in_place)


def _promoted(found: tuple[Tensor, ...]) -> int:
    """Bytes an element of the result: the widest input that has dimensions, else the widest."""
    sized = [t.item_bytes for t in found if t.shape and t.dtype.lower() != "bool"]
    return max(sized or [t.item_bytes for t in found])


def _broadcast(found: tuple[Tensor, ...]) -> tuple[int, ...] | None:
    size = max(len(t.shape) for t in found)
    out = [1] * size
    for tensor in found:
        for at, extent in enumerate(tensor.shape, start=size - len(tensor.shape)):
            if extent != 1 and out[at] not in (1, extent):
                return None
            out[at] = extent if extent != 1 else out[at]
    return tuple(out)


def _reduced(shape: tuple[int, ...], concrete: str, at: int) -> tuple[int, ...] | None:
    """Shape after a reduction by its recorded arguments: dimensions at `at`, keepdim after."""
    try:
        values = loads(concrete)
        # An overload without dimensions, as max(self) or norm(self, p), reduces all.
        dims = loads(values[at]) if len(values) > at and values[at] else None
    except (ValueError, TypeError, KeyError):
        return None
    if dims is None or dims == []:
        return ()
    chosen = dims if isinstance(dims, list) else [dims]
    if not shape or not all(isinstance(d, int) for d in chosen):
        return None
    gone = {d % len(shape) for d in chosen}
    if len(values) > at + 1 and str(values[at + 1]).lower() == "true":
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)
