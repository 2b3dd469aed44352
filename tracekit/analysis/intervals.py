"""Arithmetic on sets of half-open time intervals [start, end), int64 ns.

A *disjoint* set is two equally long arrays, sorted, with no overlap and no touching pair, as
`union` returns it. All functions are vectorised.
"""

from __future__ import annotations

import numpy as np

from tracekit.trace.table import Bools, Ints

Intervals = tuple[Ints, Ints]


def union(start: Ints, end: Ints) -> Intervals:
    """The disjoint set that covers what any of the intervals covers; empty ones are ignored."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > reach[:-1]
    heads = np.flatnonzero(first)
    tails = np.append(heads[1:], len(start)) - 1
    return start[heads], reach[tails]


def length(disjoint: Intervals) -> int:
    """Total time covered by a disjoint set, ns."""
    return int((disjoint[1] - disjoint[0]).sum())


def complement(disjoint: Intervals, lo: int, hi: int) -> Intervals:
    """What of [lo, hi) a disjoint set leaves uncovered."""
    start, end = clip(disjoint, lo, hi)
    left = np.concatenate(([lo], end)).astype(np.int64)
    right = np.concatenate((start, [hi])).astype(np.int64)
    keep = right > left
    return left[keep], right[keep]


def clip(disjoint: Intervals, lo: int, hi: int) -> Intervals:
    """The part of a disjoint set inside [lo, hi)."""
    start, end = np.clip(disjoint[0], lo, hi), np.clip(disjoint[1], lo, hi)
    keep = end > start
    return start[keep], end[keep]


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """What disjoint `a` covers and disjoint `b` does not."""
    if not len(a[0]) or not len(b[0]):
        return a
    lo = int(min(a[0][0], b[0][0]))
    hi = int(max(a[1][-1], b[1][-1]))
    return intersect(a, complement(b, lo, hi))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """What both disjoint sets cover."""
    if not len(a[0]) or not len(b[0]):
        none = np.empty(0, np.int64)
        return none, none
    # Each interval of `a` meets a run of consecutive intervals of `b`.
    first = np.searchsorted(b[1], a[0], "right")
    last = np.searchsorted(b[0], a[1], "left")
    count = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(a[0])), count)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    other = first[owner] + offset
    start = np.maximum(a[0][owner], b[0][other])
    end = np.minimum(a[1][owner], b[1][other])
    keep = end > start
    return start[keep], end[keep]


def covered_before(disjoint: Intervals, at: Ints) -> Ints:
    """For each time, how much of (-inf, time) the disjoint set covers, ns."""
    start, end = disjoint
    if not len(start):
        return np.zeros(len(at), np.int64)
    done = np.concatenate(([0], np.cumsum(end - start)))
    index = np.searchsorted(start, at, "right")
    inside = np.maximum(end[index - 1] - at, 0)
    inside[index == 0] = 0
    out: Ints = done[index] - inside
    return out


def covered(disjoint: Intervals, lo: Ints, hi: Ints) -> Ints:
    """For each window [lo, hi), how much of it the disjoint set covers, ns."""
    out: Ints = covered_before(disjoint, hi) - covered_before(disjoint, lo)
    return out


def contains(disjoint: Intervals, at: Ints) -> Bools:
    """For each time, whether the disjoint set covers it."""
    start, end = disjoint
    if not len(start):
        return np.zeros(len(at), bool)
    index = np.searchsorted(start, at, "right") - 1
    out: Bools = (index >= 0) & (at < end[np.maximum(index, 0)])
    return out
