"""Decoded events into the columns of their tables, a chunk at a time.

Every column is built by one list comprehension and one numpy call a chunk, since Python's cost
is a step of a loop. What depends only on an event's category and name (vendor, kind of call) is
worked out once a distinct pair, at the end.
"""

from __future__ import annotations

from collections import Counter
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from tracekit.trace.event import NO_ARGS, NO_TEXT, AnyEvent, Args, TextTimeEvent
from tracekit.trace.interning import Interner
from tracekit.trace.model import F32, I32, SCHEMA, TEXT
from tracekit.trace.numbers import IdTexts, float_column, int_column
from tracekit.trace.table import Ints
from tracekit.trace.times import MISSING, missing, ns_column, ns_of_raw
from tracekit.trace.vocabulary import TABLE_OF_CATEGORY

TABLES = tuple(SCHEMA)
_META = TABLES.index("meta")
_UNKNOWN = len(TABLES)

# Where a column of a table is called otherwise among the args.
_ARG_OF = {
    ("memory", "bytes"): "memory_bytes",
    ("memory", "device"): "device_id",
    ("launches", "memcpy_kind"): "kind",
}
# Other spellings of a number, looked at only where some row lacks the usual one.
_ELSE = {
    "external_id": ("old_external_id",),
    "bytes": ("size", "memory_size"),
}
_RAW = {"shapes", "dtypes", "strides", "concrete", "grid", "block"}
_EVENT_COLUMNS = {"id", "ts", "dur", "name", "pid", "tid"}
# Filled at the end, from category and name.
_DERIVED = {("launches", "vendor"), ("launches", "kind"), ("gpu", "kind"), ("annotations", "where")}
_PHASE = {"memory": ("i", "I"), "meta": ("M",)}


class Columns:
    """The growing columns of one table, as lists of a chunk's arrays."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.interners: dict[str, Interner] = {
            column: Interner() for column, dtype in SCHEMA[kind].items() if dtype == TEXT
        }
        self.categories = Interner()
        self.parts: dict[str, list[Any]] = {c: [] for c in (*SCHEMA[kind], "_category")}
        self.fields = [
            (column, _ARG_OF.get((kind, column), column), dtype)
            for column, dtype in SCHEMA[kind].items()
            if column not in _EVENT_COLUMNS and (kind, column) not in _DERIVED
        ]

    def add(self, column: str, part: Any) -> None:
        """Appends a chunk's rows of a column."""
        self.parts[column].append(part)


class EventSink:
    """Takes decoded events and sorts them into columns; counts what has no table."""

    def __init__(self) -> None:
        self.tables = {kind: Columns(kind) for kind in TABLES}
        self.ids = IdTexts()
        self.position = 0
        self.events = 0
        self.ignored: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.altered: Counter[str] = Counter()
        self._table_of = _TableOf()

    def take(self, events: list[Any], positions: Ints | None = None) -> None:
        """Adds a chunk of `Event` or `TextTimeEvent`.

        Args:
            events: in the file's order.
            positions: their positions from the chunk's first event, where some were lost.

        Raises:
            NeedsText: see `times.ns_column`; nothing was added then.
        """
        if not events:
            return
        n = len(events)
        which = np.fromiter(
            map(self._table_of.__getitem__, map(attrgetter("cat"), events)), np.int8, n
        )
        counts = np.bincount(which, minlength=_UNKNOWN + 1).tolist()
        parts: list[tuple[int, Ints, list[Any]]] = []
        for table, count in enumerate(counts[:_UNKNOWN]):
            if count:
                mask = which == table
                parts.append((table, np.flatnonzero(mask), list(compress(events, mask.tolist()))))
        times = [self._times(group) for _, _, group in parts]
        ids = np.arange(n) if positions is None else positions
        ids = ids + self.position
        for (table, rows, group), (ts, dur) in zip(parts, times, strict=True):
            self._rows(TABLES[table], ids[rows], group, ts, dur)
        if counts[_UNKNOWN]:
            mask = which == _UNKNOWN
            self._uncategorised(ids[mask], list(compress(events, mask.tolist())))
        self.position += n
        self.events += n

    def lost(self, cause: str, count: int = 1) -> None:
        """Counts events that could not be read; they keep their position."""
        self.skipped[cause] += count
        self.position += count

    def _times(self, group: list[Any]) -> tuple[Ints, Ints]:
        if isinstance(group[0], TextTimeEvent):
            return ns_of_raw([e.ts for e in group]), ns_of_raw([e.dur for e in group])
        return ns_column([e.ts for e in group]), ns_column([e.dur for e in group])

    def _uncategorised(self, ids: Ints, group: list[AnyEvent]) -> None:
        phases = Counter(map(attrgetter("ph", "cat"), group))
        meta = phases.pop(("M", ""), 0) + phases.pop(("M", "__metadata"), 0)
        for (phase, category), count in phases.items():
            if category:
                self.ignored[f"{category} (ph {phase})"] += count
            else:
                self.ignored[f"ph {phase}"] += count
        if meta:
            keep = [e.ph == "M" and e.cat in ("", "__metadata") for e in group]
            self._meta(ids[np.array(keep)], list(compress(group, keep)))

    def _meta(self, ids: Ints, group: list[AnyEvent]) -> None:
        # process_sort_index and thread_sort_index order a viewer's tracks: no table needs them
        keep = [e.name in ("process_name", "thread_name", "process_labels") for e in group]
        self.ignored["sort index (ph M)"] += len(group) - sum(keep)
        group, ids = list(compress(group, keep)), ids[np.array(keep, bool)]
        table = self.tables["meta"]
        args = [e.args or NO_ARGS for e in group]
        table.add("id", ids)
        table.add("pid", self.ids.column([e.pid for e in group], self.altered))
        table.add("tid", self.ids.column([e.tid for e in group], self.altered))
        table.add("key", table.interners["key"].codes([e.name for e in group]))
        values = [a.labels if a.name is None else a.name for a in args]
        table.add("value", table.interners["value"].codes(values))

    def _rows(self, kind: str, ids: Ints, group: list[Any], ts: Ints, dur: Ints) -> None:
        phases = _PHASE.get(kind, ("X",))
        bad = [e.ph not in phases for e in group]
        if kind == "memory":
            bad = [b or e.name != "[memory]" for b, e in zip(bad, group, strict=True)]
        drop = np.array(bad, bool)
        for event in compress(group, bad):
            self.ignored[f"{event.cat} (ph {event.ph})"] += 1
        drop |= self._timeless(ts, ~drop)
        if drop.any():
            keep = ~drop
            group, ids = list(compress(group, keep.tolist())), ids[keep]
            ts, dur = ts[keep], dur[keep]
        if group:
            self._fields(kind, ids, group, ts, self._durations(kind, dur))

    def _timeless(self, ts: Ints, wanted: Any) -> Any:
        gone = missing(ts) & wanted
        if gone.any():
            self.skipped["the event has no time"] += int(gone.sum())
            self.events -= int(gone.sum())
        return gone

    def _durations(self, kind: str, dur: Ints) -> Ints:
        if kind == "memory":
            return np.zeros(len(dur), np.int64)
        low = int(dur.min())
        if low < 0:
            none = missing(dur)
            if none.any():
                self.altered["no duration: taken as 0"] += int(none.sum())
            below = (dur < 0) & ~none
            if below.any():
                self.altered["negative duration: taken as 0"] += int(below.sum())
            dur = np.where(dur < 0, 0, dur)
        return dur

    def _fields(self, kind: str, ids: Ints, group: list[Any], ts: Ints, dur: Ints) -> None:
        table = self.tables[kind]
        args: list[Args] = [e.args or NO_ARGS for e in group]
        table.add("id", ids)
        table.add("ts", ts)
        table.add("dur", dur)
        table.add("name", table.interners["name"].codes([e.name for e in group]))
        table.add("pid", self.ids.column([e.pid for e in group], self.altered))
        table.add("tid", self.ids.column([e.tid for e in group], self.altered))
        table.add("_category", table.categories.codes([e.cat for e in group]))
        for column, field, dtype in table.fields:
            values = list(map(attrgetter(field), args))
            if dtype == TEXT:
                interner = table.interners[column]
                if field == "shapes":
                    values = [a.old_shapes if a.shapes is NO_TEXT else a.shapes for a in args]
                if field in _RAW:
                    values = [b"" if v is NO_TEXT else bytes(v) for v in values]
                table.add(column, interner.codes(values))
            elif dtype == F32:
                table.add(column, float_column(values, self.altered).astype(np.float32))
            else:
                numbers = int_column(values, self.altered)
                for other in _ELSE.get(field, ()):
                    gone = numbers == -1
                    if gone.any():
                        more = list(map(attrgetter(other), compress(args, gone.tolist())))
                        numbers[gone] = int_column(more, self.altered)
                table.add(column, numbers.astype(np.int32) if dtype == I32 else numbers)
        if kind == "memory":
            on_host = [a.device_type == 0 for a in args]
            table.parts["device"][-1][np.array(on_host)] = -1


class _TableOf(dict[str, int]):
    """Category as written to the number of its table."""

    def __missing__(self, category: str) -> int:
        kind = TABLE_OF_CATEGORY.get(category.lower())
        number = self[category] = _UNKNOWN if kind is None else TABLES.index(kind)
        return number


__all__ = ["MISSING", "TABLES", "Columns", "EventSink"]
