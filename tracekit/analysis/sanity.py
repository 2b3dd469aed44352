"""GPU durations that cannot be true.

A corrupt record can claim seconds and swamp every sum. It is judged against the device time of
all other work, not against the span that it itself inflates; it stays in the tables, is reported,
and is left out of steps, accounting and replay.
"""

from __future__ import annotations

import numpy as np

from tracekit.trace.table import Bools, Table

MIN_NS = 500_000_000
"""shorter work is never called implausible"""
TIMES_ALL_OTHERS = 5.0
"""how many times all other work together it must exceed"""
MIN_OTHERS = 20
"""a trace of a few kernels has no norm to judge by"""


def implausible(gpu: Table) -> Bools:
    """Per `gpu` row: whether its duration is negative or beyond belief."""
    dur = gpu.ints("dur")
    bad: Bools = dur < 0
    suspects = np.flatnonzero(dur >= MIN_NS)
    if len(suspects) and len(dur) - len(suspects) >= MIN_OTHERS:
        others = int(dur[(dur >= 0) & (dur < MIN_NS)].sum())
        bad = bad.copy()
        bad[suspects[dur[suspects] > TIMES_ALL_OTHERS * others]] = True
    return bad
