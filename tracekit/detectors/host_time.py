"""Host time that goes when a sequence of ops is replaced by one cheaper call."""

from __future__ import annotations

import numpy as np

from tracekit.trace.table import Ints


def all_but(spans: Ints, tid: int, kept_ns: float) -> Ints:
    """[n, 3] (tid, start, end), as in `Edits.remove_host`: the spans without the first `kept_ns`
    of them together, which the replacement takes.

    Args:
        spans: [n, 2] start and end, ns, in time order.
    """
    out = []
    for start, end in spans.tolist():
        begin = min(start + round(kept_ns), end)
        kept_ns -= begin - start
        out.append((tid, begin, end))
    return np.array(out, np.int64).reshape(-1, 3)


def length(removed: Ints) -> float:
    """ns of host time in rows of (tid, start, end)."""
    return float((removed[:, 2] - removed[:, 1]).sum())
