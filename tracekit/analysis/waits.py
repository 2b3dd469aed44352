"""Host calls that block until the GPU has got somewhere, and what each one waited for.

A wait is a synchronize call, or a copy whose call returns only once the copy is done (a pageable
copy, `.item()`'s copy to the host, HIP's hipMemcpyWithStream). Whether a copy call blocked is
read from the times: it returned after its own copy had ended. Query calls and stream-side waits
(cudaStreamWaitEvent) block nobody on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.trace.table import Ints, Table
from tracekit.trace.vocabulary import blocking_copy

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

RETURN_NS = 200_000
"""a wait that the GPU ended returns within this time of the end of the awaited work"""


@dataclass(frozen=True)
class Waits:
    """Blocking host calls, in time order. One entry a call."""

    call: Ints
    """row in `launches`"""
    awaited: Ints
    """`gpu` row whose end let the call return; -1 when the awaited work had ended before the call
    (nothing was waited for), or is not in the file"""
    awaited_end: Ints
    """end of that row, ns; -1 with it"""


def find_waits(analysis: Analysis) -> Waits:
    """Every blocking call of the trace and the GPU work that ended it."""
    trace, links = analysis.trace, analysis.links
    launches, gpu = trace.table("launches"), trace.table("gpu")
    if not len(launches):
        none = np.empty(0, np.int64)
        return Waits(none, none, none)
    kind, name = launches.text("kind"), launches.text("name")
    syncing = kind.where(lambda k: k.startswith("sync_"))
    rows = np.flatnonzero(~analysis.implausible)
    own = np.full(len(launches), -1, np.int64)
    linked = rows[links.gpu_launch[rows] >= 0]
    own[links.gpu_launch[linked]] = linked
    copying = kind.where(lambda k: k == "memcpy") & (own >= 0)
    returned_after = launches.end >= gpu.end[np.maximum(own, 0)] if len(gpu) else copying
    copying &= returned_after | name.where(blocking_copy)
    call = np.flatnonzero(syncing | copying)
    awaited = np.where(copying[call], own[call], -1)
    of_stream = _sync_streams(trace.table("syncs"), launches, call)
    by_end = rows[np.argsort(gpu.end[rows], kind="stable")]
    for i in np.flatnonzero(awaited < 0):
        awaited[i] = _ended_by(
            gpu, by_end, launches, int(call[i]), int(of_stream[i]), links.gpu_launch
        )
    end = np.where(awaited >= 0, gpu.end[np.maximum(awaited, 0)] if len(gpu) else -1, -1)
    return Waits(call, awaited, end)


def _sync_streams(syncs: Table, launches: Table, call: Ints) -> Ints:
    """Stream that each call waited on, where a cuda_sync row of its correlation says so, or -1."""
    known = dict(
        zip(syncs.ints("correlation").tolist(), syncs.ints("stream").tolist(), strict=True)
    )
    correlation = launches.ints("correlation")[call].tolist()
    return np.array([known.get(c, -1) for c in correlation], np.int64)


def _ended_by(
    gpu: Table, by_end: Ints, launches: Table, call: int, stream: int, gpu_launch: Ints
) -> int:
    """The last work to end inside the call that was launched before it."""
    start, end = int(launches.ts[call]), int(launches.end[call])
    ends = gpu.end[by_end]
    lo, hi = np.searchsorted(ends, start, "right"), np.searchsorted(ends, end, "right")
    # Look at the latest few: those that ended just before the call returned.
    for row in by_end[lo:hi][::-1][:64].tolist():
        if end - int(gpu.end[row]) > RETURN_NS:
            break
        if stream >= 0 and int(gpu.ints("stream")[row]) != stream:
            continue
        launch = int(gpu_launch[row])
        if launch < 0 or int(launches.ts[launch]) <= start:
            return int(row)
    return -1
