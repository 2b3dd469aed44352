"""Decoded events into the columns of their tables, a chunk at a time.

Every column is built by one list comprehension and one numpy call a chunk, since Python's cost
is a step of a loop. What depends only on an event's category and name (vendor, kind of call) is
worked out once a distinct pair, at the end.
"""

from __future__ import annotations

from collections import Counter
from itertools import compress
from typing import Any

import numpy as np

from tracekit.trace.event import FIELD, NO_TEXT, AnyEvent, ArgsDecoder, TextTimeEvent
from tracekit.trace.interning import Interner
from tracekit.trace.model import F32, I32, SCHEMA, TEXT
from tracekit.trace.numbers import IdTexts, float_column, int32_column, int_column
from tracekit.trace.table import Codes, Ints
from tracekit.trace.times import LONGEST_NS, missing, ns_column, ns_of_raw
from tracekit.trace.vocabulary import TABLE_OF_CATEGORY

TABLES = tuple(SCHEMA)
_META = TABLES.index("meta")
assert TABLES[-1] == "meta"  # `_TableOf` numbers categories without a table behind it
_MOST_CATEGORIES = 1000

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
# Columns of raw JSON, interned together: rows mostly repeat a few combinations of them, and one
# look-up a row is a third of the cost of four.
_TOGETHER = {
    "ops": ("shapes", "dtypes", "strides", "concrete"),
    "gpu": ("grid", "block"),
}
_ALSO = {"ops": ("old_shapes",), "memory": ("device_type",), "meta": ("name", "labels")}
_SPLIT = b"\1"  # never part of JSON
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
        self.together: tuple[str, ...] = _TOGETHER.get(kind, ())
        self.combinations = Interner()
        self._combined: list[Codes] = []
        self.categories = Interner()
        self.parts: dict[str, list[Any]] = {c: [] for c in (*SCHEMA[kind], "_category")}
        self.fields = [
            (column, _ARG_OF.get((kind, column), column), dtype)
            for column, dtype in SCHEMA[kind].items()
            if column not in {*_EVENT_COLUMNS, *self.together}
            and (kind, column) not in _DERIVED
            and kind != "meta"
        ]

        fields = {field for _, field, _ in self.fields}
        more = {other for field in fields for other in _ELSE.get(field, ())}
        self.args = ArgsDecoder({*fields, *more, *self.together, *_ALSO.get(kind, ())})

    def arrays(self) -> dict[str, Any]:
        """The columns joined, and no longer held here."""
        self._settle()
        joined: dict[str, Any] = {}
        for column, parts in self.parts.items():
            if parts:
                joined[column] = parts[0] if len(parts) == 1 else np.concatenate(parts)
            parts.clear()
        return joined

    def absorb(self, arrays: dict[str, Any], texts: dict[str, list[Any]], position: int) -> None:
        """Appends the joined columns of a later part of the same file.

        Args:
            arrays: that part's `arrays()`.
            texts: its interners' distinct texts, a column each.
            position: how many events stand before that part.
        """
        self._settle()
        for column, data in arrays.items():
            if column in texts:
                # codes of -1 (no text) stay: the appended entry is what -1 indexes
                interner = self.categories if column == "_category" else self.interners[column]
                data = np.append(interner.codes(texts[column]), np.int32(-1))[data]
            elif column == "id":
                data += position
            self.add(column, data)

    def texts(self) -> dict[str, list[Any]]:
        """The distinct texts of each text column, by number."""
        named = {**self.interners, "_category": self.categories}
        return {column: interner.keys_in_order() for column, interner in named.items()}

    def combine(self, args: list[Any]) -> None:
        """Appends a chunk's rows of the columns interned together."""
        if self.kind == "ops":
            rows = [_SPLIT.join((a.shapes, a.dtypes, a.strides, a.concrete)) for a in args]
            old = FIELD["old_shapes"](args)
            if old.count(NO_TEXT) != len(old):
                rows = [bytes(o) + r for o, r in zip(old, rows, strict=True)]
        else:
            rows = [_SPLIT.join((a.grid, a.block)) for a in args]
        self._combined.append(self.combinations.codes(rows))

    def _settle(self) -> None:
        """Takes the combinations apart into their columns."""
        if not self._combined:
            return
        codes = np.concatenate(self._combined)
        self._combined.clear()
        texts = [c.split(_SPLIT) for c in self.combinations.keys_in_order()]
        for place, column in enumerate(self.together):
            own = self.interners[column].codes([t[place] for t in texts])
            self.parts[column].append(own[codes])

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
            FAULTS: some event's args are not as expected; nothing was added then.
        """
        if not events:
            return
        n = len(events)
        which = np.fromiter(map(self._table_of.__getitem__, FIELD["cat"](events)), np.int16, n)
        ids = (np.arange(n) if positions is None else positions) + self.position
        counts = np.bincount(which).tolist()
        parts: list[tuple[int, Ints, list[Any]]] = []
        for table, count in enumerate(counts):
            if count and table <= _META:
                mask = which == table
                parts.append((table, ids[mask], list(compress(events, mask.tolist()))))
        # first what may fail: then nothing of a chunk has been added
        args = [self.tables[TABLES[table]].args(group) for table, _, group in parts]
        times = [self._times(group) for table, _, group in parts if table != _META]
        for place, (table, rows, group) in enumerate(parts):
            if table == _META:
                self._uncategorised(rows, group, args[place])
            else:
                self._rows(TABLES[table], rows, group, args[place], *times[place])
        for number in range(_META + 1, len(counts)):
            if counts[number]:
                self.ignored[self._table_of.ignored[number]] += counts[number]
        self.position += n
        self.events += n

    def _times(self, group: list[Any]) -> tuple[Ints, Ints]:
        if isinstance(group[0], TextTimeEvent):
            return ns_of_raw(FIELD["ts"](group)), ns_of_raw(FIELD["dur"](group))
        return ns_column(FIELD["ts"](group)), ns_column(FIELD["dur"](group))

    def _uncategorised(self, ids: Ints, group: list[AnyEvent], args: list[Any]) -> None:
        """Events without a category: metadata, and marks such as "Record Window End"."""
        phases = Counter(FIELD["ph"](group))
        if phases.pop("M", 0):
            keep = [e.ph == "M" for e in group]
            self._meta(ids[np.array(keep)], [*compress(group, keep)], [*compress(args, keep)])
        for phase, count in phases.items():
            self.ignored[f"no category (ph {phase})"] += count

    def _meta(self, ids: Ints, group: list[AnyEvent], args: list[Any]) -> None:
        # process_sort_index and thread_sort_index order a viewer's tracks: no table needs them
        keep = [e.name in ("process_name", "thread_name", "process_labels") for e in group]
        self.ignored["sort index (ph M)"] += len(group) - sum(keep)
        group, ids = list(compress(group, keep)), ids[np.array(keep, bool)]
        args = list(compress(args, keep))
        table = self.tables["meta"]
        table.add("id", ids)
        table.add("pid", self.ids.column([e.pid for e in group], self.altered))
        table.add("tid", self.ids.column([e.tid for e in group], self.altered))
        table.add("key", table.interners["key"].codes([e.name for e in group]))
        values = [a.labels if a.name is None else a.name for a in args]
        table.add("value", table.interners["value"].codes(values))

    def _rows(
        self, kind: str, ids: Ints, group: list[Any], args: list[Any], ts: Ints, dur: Ints
    ) -> None:
        phases = _PHASE.get(kind, ("X",))
        keep = np.ones(len(group), bool)
        if kind == "memory" or not set(FIELD["ph"](group)) <= set(phases):
            good = [e.ph in phases and (kind != "memory" or e.name == "[memory]") for e in group]
            keep = np.array(good)
            for event in compress(group, (~keep).tolist()):
                self.ignored[f"{event.cat} (ph {event.ph})"] += 1
        keep &= ~self._timeless(ts, keep)
        if not keep.all():
            group, ids = list(compress(group, keep.tolist())), ids[keep]
            args = list(compress(args, keep.tolist()))
            ts, dur = ts[keep], dur[keep]
        if group:
            self._fields(kind, ids, group, args, ts, self._durations(kind, dur))

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
        long = dur > LONGEST_NS
        if long.any():
            self.altered["a duration of more than ten days: cut to that"] += int(long.sum())
            dur = np.where(long, LONGEST_NS, dur)
        return dur

    def _fields(
        self, kind: str, ids: Ints, group: list[Any], args: list[Any], ts: Ints, dur: Ints
    ) -> None:
        table = self.tables[kind]
        table.add("id", ids)
        table.add("ts", ts)
        table.add("dur", dur)
        table.add("name", table.interners["name"].codes([e.name for e in group]))
        table.add("pid", self.ids.column([e.pid for e in group], self.altered))
        table.add("tid", self.ids.column([e.tid for e in group], self.altered))
        table.add("_category", table.categories.codes([e.cat for e in group]))
        if table.together:
            table.combine(args)
        for column, field, dtype in table.fields:
            values = FIELD[field](args)
            if dtype == TEXT:
                table.add(column, table.interners[column].codes(values))
            elif dtype == F32:
                table.add(column, float_column(values, self.altered))
            else:
                numbers = int_column(values, self.altered)
                for other in _ELSE.get(field, ()):
                    gone = numbers == -1
                    if gone.any():
                        more = FIELD[other](list(compress(args, gone.tolist())))
                        numbers[gone] = int_column(more, self.altered)
                if dtype == I32:
                    table.add(column, int32_column(numbers, self.altered))
                else:
                    table.add(column, numbers)
        if kind == "memory":
            on_host = [a.device_type == 0 for a in args]
            table.parts["device"][-1][np.array(on_host)] = -1


class _TableOf(dict[str, int]):
    """Category as written to the number of its table; those without a table get numbers of their
    own, so that flow arrows (about half of a file) cost nothing more."""

    def __init__(self) -> None:
        super().__init__({"": _META, "__metadata": _META})
        self.ignored: dict[int, str] = {}

    def __missing__(self, category: str) -> int:
        kind = TABLE_OF_CATEGORY.get(category.lower())
        if kind is not None:
            number = TABLES.index(kind)
        elif len(self.ignored) < _MOST_CATEGORIES:
            number = _META + 1 + len(self.ignored)
            flow = category in ("ac2g", "fwdbwd", "async_gpu", "async_cpu")
            self.ignored[number] = f"flow arrow {category}" if flow else f"category {category}"
        else:
            number = _META + len(self.ignored)
            self.ignored[number] = "other categories"
        self[category] = number
        return number


__all__ = ["TABLES", "Columns", "EventSink"]
