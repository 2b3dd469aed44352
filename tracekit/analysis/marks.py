"""CPU marks of steps, from the best evidence in the trace, in this order: ProfilerStep#, a
repeated annotation, graph launches, optimizer steps, repetition of the launched work, the whole
trace."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.links import Links
from tracekit.trace.model import Trace
from tracekit.trace.table import Bools, Ints, Table

_PROFILER_STEP = re.compile(r"ProfilerStep\s*#?\d+$|ProfilerStep\*$")
_OPTIMIZER_STEP = re.compile(r"Optimizer\.step#\w+\.step$")
# Annotations that torch itself writes inside a step: never a step of their own.
_NOT_A_STEP = re.compile(
    r"^(Optimizer\.|## |nccl:|gloo:|mpi:|c10d::|enumerate\(DataLoader\)|\[param\||TorchDynamo|"
    r"Torch-Compiled|Inductor|FSDP::|DistributedDataParallel|PyTorch Profiler|Compiled)"
)
_DIGITS = re.compile(r"\d+")

# A repeated annotation is a step only if the work launched inside it is most of the work.
ANNOTATION_COVER = 0.8
GRAPH_COVER = 0.8
GRAPH_MIN_KERNELS = 16
REPETITION_MATCH = 0.97
REPETITIONS = 3


@dataclass(frozen=True)
class Marks:
    """CPU intervals of the steps: sorted, not overlapping, at least one."""

    source: str
    start: Ints
    end: Ints
    notes: tuple[str, ...] = ()


def find_marks(trace: Trace, links: Links) -> Marks:
    """The marks that the best available evidence gives."""
    for find in (_profiler_steps, _annotations, _graph_launches, _optimizer_steps, _repetition):
        marks = find(trace, links)
        if marks is not None:
            return marks
    lo, hi = _span(trace)
    return Marks("whole trace", np.array([lo]), np.array([hi]))


def _span(trace: Trace) -> tuple[int, int]:
    """First start and last end of ops, calls and GPU work; of other events where there are none."""
    for kinds in (("ops", "launches", "gpu"), ("annotations", "python", "syncs", "memory")):
        tables = [trace.table(k) for k in kinds if len(trace.table(k))]
        if tables:
            return min(int(t.ts[0]) for t in tables), max(int(t.end.max()) for t in tables)
    return 0, 0


def _disjoint(table: Table, rows: Ints) -> tuple[Ints, Ints] | None:
    """The rows' intervals on the (pid, tid) that has most of them, if they follow one another."""
    pid, tid = table.ints("pid")[rows], table.ints("tid")[rows]
    _, inverse = np.unique(np.stack([pid, tid]), axis=1, return_inverse=True)
    rows = rows[inverse.ravel() == np.bincount(inverse.ravel()).argmax()]
    start, end = table.ts[rows], table.end[rows]
    if (start[1:] < end[:-1]).any():
        # Marks of consecutive steps may overlap by the rounding of their times, not by more.
        if (end[:-1] - start[1:]).max() > 2_000:
            return None
        end = np.append(np.minimum(end[:-1], start[1:]), end[-1:])
    return start, end


def _profiler_steps(trace: Trace, links: Links) -> Marks | None:
    # Very old recordings have the marks among the operators.
    for kind in ("annotations", "ops"):
        table = trace.table(kind)
        hit = table.text("name").where(lambda n: bool(_PROFILER_STEP.match(n)))
        if "where" in table:
            hit &= table.text("where").where(lambda w: w == "cpu")
        rows = np.flatnonzero(hit)
        if len(rows):
            found = _disjoint(table, rows)
            if found is not None:
                return Marks("ProfilerStep#", *found)
    return None


def _annotations(trace: Trace, links: Links) -> Marks | None:
    """The annotation inside which most GPU work is launched; among equals the rarest."""
    table = trace.table("annotations")
    rows = np.flatnonzero(
        table.text("where").where(lambda w: w == "cpu")
        & ~table.text("name").where(lambda n: bool(_NOT_A_STEP.match(n)))
    )
    if not len(rows):
        return None
    names = table.text("name").map(lambda n: _DIGITS.sub("#", n), object)[rows]
    launched = _launch_times(trace, links)
    best: tuple[float, int, str, tuple[Ints, Ints]] | None = None
    for name in sorted(set(names)):
        # one by one: numpy would compare without NULs at the end
        marks = _disjoint(table, rows[[n == name for n in names]])
        if marks is None:
            continue
        cover = _cover(marks, launched, trace)
        key = (round(cover, 2), -len(marks[0]))
        if cover >= ANNOTATION_COVER and (best is None or key > best[:2]):
            best = (key[0], key[1], name, marks)
    return None if best is None else Marks(f"annotation {best[2]}", *best[3])


def _launch_times(trace: Trace, links: Links) -> Ints:
    """When each GPU row with a recorded launch was launched."""
    launch = links.gpu_launch[links.gpu_launch >= 0]
    return trace.table("launches").ts[launch] if len(launch) else launch


def _cover(marks: tuple[Ints, Ints], launched: Ints, trace: Trace) -> float:
    """Share of the GPU work launched inside the marks; without GPU work, of the trace's span."""
    if len(launched):
        at = np.searchsorted(marks[0], launched, "right") - 1
        return float(((at >= 0) & (launched <= marks[1][np.maximum(at, 0)])).mean())
    lo, hi = _span(trace)
    return float((marks[1] - marks[0]).sum() / max(hi - lo, 1))


def _between(starts: Ints, last_end: int) -> tuple[Ints, Ints]:
    """Marks that touch: each from its start to the next one's."""
    return starts, np.append(starts[1:], last_end)


def _graph_launches(trace: Trace, links: Links) -> Marks | None:
    """One graph launch a step, where equal graphs make up most of the GPU time."""
    launches, gpu = trace.table("launches"), trace.table("gpu")
    is_graph = launches.text("kind").where(lambda k: k == "graph")
    row = links.gpu_launch
    inside = (row >= 0) & is_graph[np.maximum(row, 0)] if len(launches) else np.zeros(0, bool)
    if not inside.any():
        return None
    used, count = np.unique(row[inside], return_counts=True)
    sizes, times = np.unique(count, return_counts=True)
    size = int(sizes[(sizes * times).argmax()])
    used = used[count == size]
    whole = int(gpu.ints("dur")[inside & np.isin(row, used)].sum())
    if len(used) < 2 or size < GRAPH_MIN_KERNELS:
        return None
    if whole < GRAPH_COVER * int(gpu.ints("dur").sum()):
        return None
    start = launches.ts[used]
    end = max(int(launches.end[used].max()), _span(trace)[1])
    return Marks("graph launches", *_between(start, end))


def _optimizer_steps(trace: Trace, links: Links) -> Marks | None:
    """From the end of one optimizer step to the next, of the optimizer that steps least."""
    table = trace.table("annotations")
    hit = table.text("name").where(lambda n: bool(_OPTIMIZER_STEP.match(n)))
    hit &= table.text("where").where(lambda w: w == "cpu")
    codes = table.text("name").codes
    counts = {int(c): int((codes[hit] == c).sum()) for c in np.unique(codes[hit])}
    counts = {c: n for c, n in counts.items() if n >= 2}
    if not counts:
        return None
    rows = np.flatnonzero(hit & (codes == min(counts, key=lambda c: (counts[c], c))))
    found = _disjoint(table, rows)
    if found is None:
        return None
    end = found[1]
    start = np.concatenate(([_span(trace)[0]], end[:-1]))
    note = (
        "the first step begins with the recording and may be cut; "
        "work after the last optimizer step is no step's"
    )
    return Marks("optimizer steps", start, end, (note,))


def _repetition(trace: Trace, links: Links) -> Marks | None:
    """The shortest period at which the sequence of launched kernel names repeats, three times or
    more (twice may be a warm-up and a step), for nearly the whole sequence."""
    gpu, launches = trace.table("gpu"), trace.table("launches")
    rows = np.flatnonzero(links.gpu_launch >= 0)
    if len(rows) < 8:
        return None
    launch_ts = launches.ts[links.gpu_launch[rows]]
    order = np.lexsort((gpu.ts[rows], launch_ts))
    names = gpu.text("name").codes[rows][order]
    period, offset = _period(names)
    if period == 0:
        return None
    starts = launch_ts[order][offset::period]
    whole = (len(names) - offset) // period
    starts = starts[:whole]
    past = offset + whole * period
    end = int(launch_ts[order][past]) if past < len(names) else _span(trace)[1]
    return Marks("repetition", *_between(starts, end))


def _period(names: Ints | np.ndarray) -> tuple[int, int]:
    """(period, offset of the first whole one); (0, 0) when nothing repeats.

    Candidates are the distances between occurrences of the rarest repeated name, so a step of
    many equal layers is not cut into layers: the rarest name occurs once a step.
    """
    values, counts = np.unique(names, return_counts=True)
    repeated = counts >= REPETITIONS
    if not repeated.any() or len(values) < 3:
        return 0, 0
    rarest = values[repeated][counts[repeated].argmin()]
    at = np.flatnonzero(names == rarest)
    for period in np.unique(np.diff(at)):
        p = int(period)
        if p < 4 or REPETITIONS * p > len(names):
            continue
        same: Bools = names[p:] == names[:-p]
        # Allow a ragged beginning: the sequence must repeat from the rarest name's first place on.
        first = int(at[0]) % p
        if same[first:].size and same[first:].mean() >= REPETITION_MATCH:
            return p, first
    return 0, 0
