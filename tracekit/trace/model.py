"""What a trace is once read: eight tables, the file's header, and what was not read.

Times are int64 nanoseconds from the file's first event (accounting law 1). `Trace.t0_ns` is
that event's own time in the file's clock (plus `baseTimeNanoseconds` where the file has it), so
absolute time = `t0_ns + ts`.

Every event table has `id` (the event's position among the file's events, from 0: what a
finding's evidence refers to), `ts`, `dur` (ns), `name`, `pid`, `tid`. Ids that a file gives as
text ("stream 7") become the number in them for GPU rows, and otherwise a negative number of our
own; `Trace.threads` keeps the original text. Missing numbers are -1. Rows are sorted by
(`ts`, -`dur`, `id`), so that a parent comes before what it encloses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.trace.table import Strings, Table

if TYPE_CHECKING:
    import pandas as pd

I64, I32, F32, TEXT = "int64", "int32", "float32", "text"

_EVENT = {"id": I64, "ts": I64, "dur": I64, "name": TEXT, "pid": I64, "tid": I64}

SCHEMA: dict[str, dict[str, str]] = {
    # cat cpu_op. `external_id` is the op's own id, repeated by what it launched. `shapes`,
    # `dtypes`, `strides`, `concrete` are the raw JSON text of Input Dims / Input type /
    # Input Strides / Concrete Inputs, missing when shapes were not recorded. `seq` is the autograd
    # sequence number shared by a forward op and its backward, `fwd_tid` 0 in the forward.
    # `kernel_file`: Inductor's source file of a Triton launch (kernel_file / kernel_backend args).
    "ops": {
        **_EVENT,
        "external_id": I64,
        "seq": I64,
        "fwd_tid": I64,
        "shapes": TEXT,
        "dtypes": TEXT,
        "strides": TEXT,
        "concrete": TEXT,
        "kernel_file": TEXT,
        # record_param_comms only: collective name, elements in, process group
        "collective": TEXT,
        "msg_elements": I64,
        "group": TEXT,
    },
    # Calls of a device runtime or driver (cat cuda_runtime, cuda_driver, Runtime, xpu_runtime,
    # mtia_runtime, privateuse1_runtime...). `vendor`: cuda, hip, xpu, mtia, other.
    # `kind`: see tracekit.trace.vocabulary.CALL_KINDS.
    # `memcpy_kind`: HIP's own argument ("HtoD" ...), where recorded.
    "launches": {
        **_EVENT,
        "correlation": I64,
        "external_id": I64,
        "vendor": TEXT,
        "kind": TEXT,
        "bytes": I64,
        "memcpy_kind": TEXT,
    },
    # Work on the device (cat kernel, gpu_memcpy, gpu_memset and other vendors' equivalents).
    # `kind`: kernel, memcpy, memset. `pid` and `tid` as in the file; `device` and `stream` are
    # the numbers to group by. `grid`, `block`: raw JSON text "[x, y, z]".
    "gpu": {
        **_EVENT,
        "kind": TEXT,
        "device": I64,
        "stream": I64,
        "correlation": I64,
        "external_id": I64,
        "bytes": I64,
        "grid": TEXT,
        "block": TEXT,
        "registers": I32,
        "shared_memory": I32,
        "occupancy": F32,
        "graph_node": I64,
        # communication kernels only
        "collective": TEXT,
        "msg_elements": I64,
        "group_size": I64,
        "dtype": TEXT,
        "group": TEXT,
    },
    # user_annotation (where = "cpu"), gpu_user_annotation (where = "gpu"), profiler overhead
    # rows such as Buffer Flush (where = "overhead"), Trace spans (where = "span").
    "annotations": {**_EVENT, "where": TEXT, "external_id": I64},
    # python_function rows (with_stack). `python_id` / `python_parent`: the profiler's own ids.
    "python": {**_EVENT, "python_id": I64, "python_parent": I64, "module_id": I64},
    # [memory] instants, sorted by time. `device` -1 is the host.
    "memory": {
        **_EVENT,
        "bytes": I64,
        "addr": I64,
        "allocated": I64,
        "reserved": I64,
        "device": I64,
    },
    # cuda_sync rows: what waited for what. They are not GPU work.
    "syncs": {
        **_EVENT,
        "device": I64,
        "stream": I64,
        "correlation": I64,
        "wait_stream": I64,
        "wait_event": I64,
    },
    # Metadata events (ph M): `key` process_name, thread_name, process_labels; `value` its text.
    "meta": {"id": I64, "pid": I64, "tid": I64, "key": TEXT, "value": TEXT},
}


def empty_table(kind: str) -> Table:
    """A table of the given kind without rows."""
    return Table(
        kind,
        {
            column: Strings(np.empty(0, np.int32), [])
            if dtype == TEXT
            else np.empty(0, np.dtype(dtype))
            for column, dtype in SCHEMA[kind].items()
        },
    )


@dataclass
class Damage:
    """One place of the file that could not be read."""

    offset: int
    """byte offset in the uncompressed text"""
    cause: str
    """one clause, such as 'the gzip stream ends in the middle of an event'"""
    events: int = 0
    """events known to be lost here (0 where it cannot be known)"""


@dataclass
class ReadHealth:
    """What the reader met. Nothing is dropped without a count here."""

    events: int = 0
    """events read into a table, flows and metadata included"""
    events_skipped: int = 0
    """events lost: unreadable, or without what their kind needs (a time, a name)"""
    skipped_by_cause: dict[str, int] = field(default_factory=dict)
    ignored_by_kind: dict[str, int] = field(default_factory=dict)
    """read, but of no use to an analysis: flow arrows, unknown phases, unknown categories"""
    altered: dict[str, int] = field(default_factory=dict)
    """events kept although a part of them was not readable as written, by what was done"""
    damage: list[Damage] = field(default_factory=list)
    """the places, in the file's order; the first `reader.MOST_DAMAGE` of them"""
    tolerant: bool = False
    """True when the strict path failed and the tolerant one read the file"""


@dataclass
class Trace:
    """A trace read into tables. Made by `tracekit.read(path)`."""

    path: str
    """as given; '<stdin>' for standard input"""
    bytes: int
    """size of the uncompressed text"""
    header: dict[str, Any]
    """the file's top-level keys other than traceEvents (deviceProperties, distributedInfo, ...)"""
    t0_ns: int
    tables: dict[str, Table]
    health: ReadHealth
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    """(pid, tid) to the thread's recorded name"""

    def __getattr__(self, kind: str) -> pd.DataFrame:
        # trace.gpu, trace.ops ... as DataFrames, built on first use.
        if kind.startswith("_") or kind not in SCHEMA:
            raise AttributeError(kind)
        frame = self.tables[kind].frame()
        self.__dict__[kind] = frame
        return frame

    def table(self, kind: str) -> Table:
        """The columns of one kind of event (numpy): `trace.table("gpu")`."""
        return self.tables[kind]

    @cached_property
    def device_names(self) -> dict[int, str]:
        """device id to product name, as deviceProperties gives it."""
        found: dict[int, str] = {}
        properties = self.header.get("deviceProperties")
        for entry in properties if isinstance(properties, list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("id"), int):
                found[entry["id"]] = str(entry.get("name", "unknown"))
        return found

    @cached_property
    def vendor(self) -> str:
        """'cuda', 'hip', 'xpu', 'mtia' or 'cpu': whose runtime calls the trace holds most of."""
        column = self.tables["launches"].text("vendor")
        known = column.codes[column.codes >= 0]
        if not len(known):
            return "cpu" if not len(self.tables["gpu"]) else "other"
        return column.values[int(np.bincount(known).argmax())]

    @property
    def rank(self) -> int | None:
        """This process's rank in its job, where recorded."""
        return self._distributed("rank")

    @property
    def world_size(self) -> int | None:
        """How many processes the job had, where recorded."""
        return self._distributed("world_size")

    @property
    def manifest(self) -> dict[str, Any] | None:
        """What `tracekit profile` wrote about the recording (unprofiled step times, versions)."""
        found = self.header.get("tracekit")
        return found if isinstance(found, dict) else None

    def select(self, start_ns: int, end_ns: int) -> Trace:
        """The events that overlap [start_ns, end_ns), as a trace of its own."""
        tables = {}
        for kind, table in self.tables.items():
            if kind == "meta":
                tables[kind] = table
                continue
            tables[kind] = table.take((table.ts < end_ns) & (table.end >= start_ns))
        return Trace(
            self.path, self.bytes, self.header, self.t0_ns, tables, self.health, self.threads
        )

    def _distributed(self, key: str) -> int | None:
        info = self.header.get("distributedInfo")
        value = info.get(key) if isinstance(info, dict) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return None
        return value
