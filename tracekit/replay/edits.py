"""What a detector may change in a recorded step before it is replayed.

Rows are row numbers of the trace's own tables (`gpu`, `launches`), so an edit composes with any
other by union. Applying an edit never touches the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tracekit.trace.table import Ints


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Graphed:
    """These GPU rows (of every step) are launched by one graph launch a step.

    `gpu_rows`: rows of `gpu`. The host time spent between the first and last of their launches
    within a step goes away, but for the waits and copies to the host in between.
    """

    gpu_rows: Ints
    whole_step: bool = False
    """all of the step's own dispatch goes, from mark to mark; else only what lies between the first
    and the last of the launches"""


@dataclass(frozen=True)
class Edits:
    """Changes to the recorded step, all applied together.

    Attributes:
        remove_gpu: rows of `gpu` that no longer run. A launch all of whose work is removed
            goes too, with its call's own host time and the host time of `remove_host`.
        resize_gpu: rows of `gpu` that take `resize_ns` instead of their recorded duration.
        resize_ns: their new durations, ns, aligned with `resize_gpu`.
        drop_waits: rows of `launches` (sync calls, blocking copies) that no longer wait for the
            GPU; the call itself keeps a few microseconds of host time.
        remove_host: [n, 3] int64 rows (tid, start_ns, end_ns): host time of that thread that no
            longer passes, such as the dispatch of an op that is gone.
        graphs: GPU rows to be launched by one graph launch a step.
    """

    remove_gpu: Ints = field(default_factory=_none)
    resize_gpu: Ints = field(default_factory=_none)
    resize_ns: Ints = field(default_factory=_none)
    drop_waits: Ints = field(default_factory=_none)
    remove_host: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))
    graphs: tuple[Graphed, ...] = ()

    def __or__(self, other: Edits) -> Edits:
        """Both sets of changes. A row resized by both takes the shorter duration; a row removed
        by one stays removed."""
        rows = np.concatenate([self.resize_gpu, other.resize_gpu])
        new = np.concatenate([self.resize_ns, other.resize_ns])
        order = np.lexsort((new, rows))
        rows, new = rows[order], new[order]
        first = np.ones(len(rows), bool)
        first[1:] = rows[1:] != rows[:-1]
        return Edits(
            remove_gpu=np.union1d(self.remove_gpu, other.remove_gpu).astype(np.int64),
            resize_gpu=rows[first],
            resize_ns=new[first],
            drop_waits=np.union1d(self.drop_waits, other.drop_waits).astype(np.int64),
            remove_host=np.concatenate([self.remove_host, other.remove_host]),
            graphs=self.graphs + other.graphs,
        )

    @property
    def empty(self) -> bool:
        """True when nothing would change."""
        return not (
            len(self.remove_gpu)
            or len(self.resize_gpu)
            or len(self.drop_waits)
            or len(self.remove_host)
            or self.graphs
        )
