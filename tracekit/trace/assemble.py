"""From collected columns to a finished `Trace`: one time origin, sorted rows, derived columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.trace.columns import Columns, EventSink
from tracekit.trace.interning import Interner
from tracekit.trace.model import SCHEMA, TEXT, empty_table
from tracekit.trace.table import Codes, Column, Ints, Strings, Table
from tracekit.trace.times import LONGEST_NS
from tracekit.trace.vocabulary import (
    ANNOTATION_WHERE,
    HIP_COPY_KINDS,
    call_kind,
    call_vendor,
    gpu_kind,
)


def assemble(sink: EventSink) -> tuple[int, dict[str, Table], dict[tuple[int, int], str]]:
    """The first event's time (ns), the tables, and the threads' names."""
    arrays = {kind: _joined(columns) for kind, columns in sink.tables.items()}
    if "ts" in arrays["gpu"]:
        _only_work(arrays["gpu"], sink)
    _only_near(arrays, sink)
    starts = [a["ts"].min() for a in arrays.values() if "ts" in a and len(a["ts"])]
    t0 = int(min(starts)) if starts else 0
    tables: dict[str, Table] = {}
    for kind, columns in sink.tables.items():
        found = arrays.pop(kind)
        tables[kind] = _table(columns, found, t0) if found else empty_table(kind)
    return t0, tables, _threads(tables["meta"], tables, sink.ids.texts)


def _only_near(arrays: dict[str, dict[str, Any]], sink: EventSink) -> None:
    """Drops events at times that no recording can span: one start of 0 among times since 1970
    would make a step of decades."""
    timed = [a for a in arrays.values() if "ts" in a and len(a["ts"])]
    if (
        not timed
        or max(int(a["ts"].max()) for a in timed) - min(int(a["ts"].min()) for a in timed)
        < LONGEST_NS
    ):
        return
    starts = np.concatenate([a["ts"] for a in timed])
    middle = int(np.partition(starts, len(starts) // 2)[len(starts) // 2])
    for found in timed:
        near = (found["ts"] > middle - LONGEST_NS) & (found["ts"] < middle + LONGEST_NS)
        far = int((~near).sum())
        if far:
            sink.skipped["a start days away from all others"] += far
            sink.events -= far
            for column in found:
                found[column] = found[column][near]


def _joined(columns: Columns) -> dict[str, Any]:
    joined = columns.arrays()
    if joined and columns.kind in ("gpu", "launches", "annotations"):
        _derive(columns, joined)
    return joined


def _derive(columns: Columns, joined: dict[str, Any]) -> None:
    """Columns that category and name decide, asked once a distinct pair."""
    names, categories = columns.interners["name"].texts(), columns.categories.texts()
    pair = joined["_category"].astype(np.int64) * max(len(names), 1) + joined["name"]
    distinct, row = np.unique(pair, return_inverse=True)
    pairs = [
        (categories[p // len(names)].lower(), names[p % len(names)]) for p in distinct.tolist()
    ]
    if columns.kind == "launches":
        joined["vendor"] = _coded(columns, "vendor", [call_vendor(c, n) for c, n in pairs], row)
        joined["kind"] = _coded(columns, "kind", [call_kind(n, c) for c, n in pairs], row)
    elif columns.kind == "gpu":
        joined["kind"] = _coded(columns, "kind", [gpu_kind(c, n) for c, n in pairs], row)
    else:
        joined["where"] = _coded(columns, "where", [ANNOTATION_WHERE[c] for c, _ in pairs], row)


def _coded(columns: Columns, column: str, texts: list[Any], row: Any) -> Codes:
    codes: Codes = columns.interners[column].codes(texts)[row]
    return codes


def _only_work(gpu: dict[str, Any], sink: EventSink) -> None:
    """Drops device rows that are no work, and numbers devices and streams."""
    work = gpu["kind"] >= 0
    if not work.all():
        names = sink.tables["gpu"].interners["name"].texts()
        for code, count in zip(*np.unique(gpu["name"][~work], return_counts=True), strict=True):
            sink.ignored[f"{names[code]} (device row without work)"] += int(count)
        for column in gpu:
            gpu[column] = gpu[column][work]
    for column, fallback in (("device", "pid"), ("stream", "tid")):
        gpu[column] = np.where(gpu[column] == -1, gpu[fallback], gpu[column])


def _table(columns: Columns, found: dict[str, Any], t0: int) -> Table:
    kind = columns.kind
    order: Ints | None = None
    if "ts" in found:
        found["ts"] = found["ts"] - t0
        ts = found["ts"]
        order = _order(ts, found["dur"], found["id"])
    made: dict[str, Column] = {}
    for column, dtype in SCHEMA[kind].items():
        data = found.pop(column)
        if order is not None:
            data = data[order]
        if dtype == TEXT:
            made[column] = _strings(columns.interners[column], data, column)
        else:
            made[column] = data
    return Table(kind, made)


def _order(ts: Ints, dur: Ints, ids: Ints) -> Ints:
    """Rows by start, the longer first, then by position. Ids ascend already, so a stable sort by
    start leaves only rows of one start to order: an eighth of the time of sorting by all three."""
    order = np.argsort(ts, kind="stable")
    start = ts[order]
    same = start[1:] == start[:-1]
    if same.any():
        tied = np.zeros(len(ts), bool)
        tied[1:] |= same
        tied[:-1] |= same
        rows = order[tied]
        order[tied] = rows[np.lexsort((ids[rows], -dur[rows], ts[rows]))]
    return order


def _strings(interner: Interner, codes: Codes, column: str) -> Strings:
    values = interner.texts()
    if column == "memcpy_kind":
        values = [HIP_COPY_KINDS.get(v, v) for v in values]
    return Strings(codes, values)


def _threads(
    meta: Table, tables: dict[str, Table], texts: dict[int, str]
) -> dict[tuple[int, int], str]:
    threads: dict[tuple[int, int], str] = {}
    if len(meta):
        keys, values = meta.text("key"), meta.text("value")
        pids, tids = meta.ints("pid").tolist(), meta.ints("tid").tolist()
        for row, (pid, tid) in enumerate(zip(pids, tids, strict=True)):
            if keys[row] == "thread_name":
                threads[pid, tid] = values[row] or ""
    if texts:
        # ids that the file writes as text keep it, where no thread_name event says more
        wanted = np.array(sorted(texts), np.int64)
        for table in tables.values():
            tid = table.ints("tid")
            rows = np.flatnonzero(np.isin(tid, wanted))
            pairs = np.unique(np.stack([table.ints("pid")[rows], tid[rows]]), axis=1)
            for p, t in pairs.T.tolist():
                threads.setdefault((p, t), texts[t])
    return threads
