"""Interval arithmetic against sets of integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis import intervals as iv

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=12)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([s for s, _ in pairs], np.int64)
    return start, start + np.array([d for _, d in pairs], np.int64)


def points(start: np.ndarray, end: np.ndarray) -> set[int]:
    return {t for s, e in zip(start.tolist(), end.tolist(), strict=True) for t in range(s, e)}


@given(spans)
def test_union_covers_the_same_points_and_is_disjoint(pairs: list[tuple[int, int]]) -> None:
    raw = arrays(pairs)
    found = iv.union(*raw)
    assert points(*found) == points(*raw)
    assert iv.length(found) == len(points(*raw))
    assert (found[0][1:] > found[1][:-1]).all()


@given(spans, spans)
def test_subtract_and_intersect(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = iv.union(*arrays(a)), iv.union(*arrays(b))
    assert points(*iv.subtract(left, right)) == points(*left) - points(*right)
    assert points(*iv.intersect(left, right)) == points(*left) & points(*right)


@given(spans, st.integers(-5, 40), st.integers(0, 60))
def test_complement_and_covered(a: list[tuple[int, int]], lo: int, length: int) -> None:
    hi = lo + length
    disjoint = iv.union(*arrays(a))
    window = set(range(lo, hi))
    assert points(*iv.complement(disjoint, lo, hi)) == window - points(*disjoint)
    inside = iv.covered(disjoint, np.array([lo]), np.array([hi]))
    assert inside.tolist() == [len(points(*disjoint) & window)]
    assert iv.contains(disjoint, np.array([lo])).tolist() == [lo in points(*disjoint)]
