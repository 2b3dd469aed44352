"""What an op's recorded inputs say: shapes, types, strides, memory formats.

The trace keeps them as the raw JSON text of `Input Dims`, `Input type` and `Input Strides`; they
are decoded here, on demand, each distinct text once. An input that is no tensor has dims `[]`; a
list of tensors has a list of dims.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

# Bytes an element, by the names torch's profiler writes (c10 and C++ spellings).
ITEM_BYTES: dict[str, int] = {
    "double": 8, "float": 4, "c10::half": 2, "half": 2, "c10::bfloat16": 2, "bfloat16": 2,
    "long": 8, "long int": 8, "int": 4, "short": 2, "short int": 2, "signed char": 1, "char": 1,
    "unsigned char": 1, "bool": 1, "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
    "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1, "c10::float8_e4m3fnuz": 1,
    "c10::float8_e5m2fnuz": 1, "c10::complex<float>": 8, "c10::complex<double>": 16,
    "c10::qint8": 1, "c10::quint8": 1, "float16": 2, "float32": 4, "float64": 8, "int64": 8,
    "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One recorded tensor input."""

    shape: tuple[int, ...]
    item_bytes: int
    """bytes an element; 0 where the type is not recorded or not known"""
    strides: tuple[int, ...] | None
    """in elements; None where not recorded"""
    dtype: str
    """as recorded, '' where not"""

    @property
    def elements(self) -> int:
        """Number of elements the shape has."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of memory that reading every element once touches: a dimension of stride 0
        (an expanded tensor) is read once."""
        count = self.elements
        if self.strides is not None and count:
            count = prod(d for d, s in zip(self.shape, self.strides, strict=False) if s != 0)
        return count * self.item_bytes


@lru_cache(maxsize=65536)
def _decode(text: str) -> tuple[object, ...]:
    try:
        value = json.loads(text)
    except ValueError:
        return ()
    return tuple(value) if isinstance(value, list) else ()


@lru_cache(maxsize=65536)
def tensors(shapes: str, dtypes: str = "", strides: str = "") -> tuple[Tensor, ...]:
    """The tensor inputs of an op, in argument order; those of a list argument one by one.

    Zero-dimensional tensors are told from plain scalars by their type ('Scalar' is none); without
    recorded types an input with dims `[]` is left out.
    """
    found: list[Tensor] = []
    names, steps = _decode(dtypes), _decode(strides)
    for i, dims in enumerate(_decode(shapes)):
        name = names[i] if i < len(names) and isinstance(names[i], str) else ""
        step = steps[i] if i < len(steps) else None
        assert isinstance(name, str)
        if not isinstance(dims, list):
            continue
        if dims and all(isinstance(d, list) for d in dims):
            for j, inner in enumerate(dims):
                inner_step = step[j] if isinstance(step, list) and j < len(step) else None
                _add(found, inner, name, inner_step)
        elif dims or name.lower() in ITEM_BYTES:
            _add(found, dims, name, step)
    return tuple(found)


def _add(found: list[Tensor], dims: list[object], name: str, step: object) -> None:
    if not all(isinstance(d, int) for d in dims):
        return
    shape = tuple(d for d in dims if isinstance(d, int))
    strides = None
    if isinstance(step, list) and len(step) == len(shape) and all(isinstance(s, int) for s in step):
        strides = tuple(s for s in step if isinstance(s, int))
    found.append(Tensor(shape, ITEM_BYTES.get(name.lower(), 0), strides, name))


def memory_format(shape: tuple[int, ...], strides: tuple[int, ...]) -> str | None:
    """'channels_first', 'channels_last', 'both' (a tensor for which the two are the same bytes,
    as with one channel or 1x1 pixels), or None: neither, or not 4 or 5 dimensions.

    A tensor need not be dense: a slice of a channels-last tensor is channels-last.
    """
    if len(shape) not in (4, 5) or len(strides) != len(shape):
        return None
    last = (0, *range(2, len(shape)), 1)
    first = tuple(range(len(shape)))
    is_last, is_first = _ordered(shape, strides, last), _ordered(shape, strides, first)
    if is_last and is_first:
        return "both"
    if is_last:
        return "channels_last"
    return "channels_first" if is_first else None


def _ordered(shape: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether strides do not grow along `order` (outermost first), dimensions of 1 left out."""
    seen = [(strides[d], shape[d]) for d in order if shape[d] != 1]
    if any(s == 0 for s, _ in seen):
        return False
    return all(outer >= inner * size for (outer, _), (inner, size) in pairwise(seen))


@lru_cache(maxsize=65536)
def moves_memory_format(shapes: str, strides: str) -> bool | None:
    """Whether a copy (destination first, then source) goes between channels-first and
    channels-last; None where the recording does not say."""
    found = tensors(shapes, "", strides)
    if len(found) < 2 or found[0].strides is None or found[1].strides is None:
        return None
    if found[0].shape != found[1].shape:
        return False
    formats = [memory_format(t.shape, t.strides or ()) for t in found[:2]]
    return set(formats) == {"channels_first", "channels_last"}
