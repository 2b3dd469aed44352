"""An independent count of GPU time and steps, to hold the project's numbers against.

Written another way on purpose, and sharing no code with `tracekit/`: plain Python on the events of
`json.load`, times as exact integers (JSON numbers are parsed as Decimal, never as float), and a
sweep over sorted boundaries in place of interval arithmetic on arrays. It is slow and only
reads files without damage.

Times are nanoseconds in the file's own clock (plus `baseTimeNanoseconds` where it is given):
the project's times plus `Trace.t0_ns`.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

COMPUTING, COMMUNICATION, COPY = "computing", "communication", "copy"

_WORK_CATEGORIES = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": COPY,
    "memset": COPY,
}
_CALL_CATEGORY = re.compile(r"^(\w+_)?(runtime|driver)$")
_COLLECTIVE = re.compile(
    r"nccl|rccl|multimem_|cross_device_reduce|(one|two)_shot_all_?reduce|all_?reduce_?kernel",
    re.IGNORECASE,
)
QUEUED_NS = 1_000_000


def nanoseconds(value: int | str | Decimal) -> int:
    """A JSON time in microseconds as whole nanoseconds; the files have at most three decimals."""
    exact = Decimal(value) * 1000
    whole = int(exact)
    if whole != exact:
        raise ValueError(f"{value} us is no whole number of nanoseconds")
    return whole


@dataclass(frozen=True)
class Work:
    """One piece of GPU work."""

    start: int
    end: int
    kind: str
    device: Any
    stream: Any
    launched: int | None
    """when its launch began; None where the launch is not in the file"""
    returned: int | None
    """when its launch returned"""
    name: str


@dataclass(frozen=True)
class Segment:
    """A stretch of time in which the set of running kinds does not change."""

    start: int
    end: int
    kinds: frozenset[str]


@dataclass
class Oracle:
    """What the file says, counted by hand."""

    work: list[Work]
    marks: list[tuple[int, int, str]] = field(default_factory=list)
    """CPU marks ProfilerStep#N: start, end, name"""
    events: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def devices(self) -> list[Any]:
        """Devices with work, in order."""
        return sorted({work.device for work in self.work})

    @cached_property
    def streams(self) -> list[tuple[Any, Any]]:
        """(device, stream) pairs with work."""
        return sorted({(work.device, work.stream) for work in self.work})

    @cached_property
    def span(self) -> tuple[int, int]:
        """From the first start to the last end of GPU work."""
        return min(w.start for w in self.work), max(w.end for w in self.work)

    @cached_property
    def orphans(self) -> int:
        """Work whose launch is not in the file."""
        return sum(work.launched is None for work in self.work)

    @cached_property
    def _segments(self) -> dict[Any, list[Segment]]:
        return {
            device: sweep(work for work in self.work if work.device == device)
            for device in self.devices
        }

    @cached_property
    def _stream_segments(self) -> dict[tuple[Any, Any], list[Segment]]:
        return {
            (device, stream): sweep(
                work for work in self.work if (work.device, work.stream) == (device, stream)
            )
            for device, stream in self.streams
        }

    def busy(self, device: Any, a: int, b: int) -> int:
        """Time in [a, b) with any work on the device."""
        return sum(length for _, length in cut(self._segments[device], a, b))

    def busy_of_stream(self, device: Any, stream: Any, a: int, b: int) -> int:
        """Time in [a, b) with any work on the stream."""
        return sum(length for _, length in cut(self._stream_segments[device, stream], a, b))

    def idle(self, device: Any, a: int, b: int) -> int:
        """Time in [a, b) without any work on the device."""
        return (b - a) - self.busy(device, a, b)

    def breakdown(self, device: Any, a: int, b: int) -> dict[str, int]:
        """[a, b) by what ran; computing hides communication, both hide copies."""
        totals = {COMPUTING: 0, COMMUNICATION: 0, COPY: 0}
        for kinds, length in cut(self._segments[device], a, b):
            for kind in (COMPUTING, COMMUNICATION, COPY):
                if kind in kinds:
                    totals[kind] += length
                    break
        return totals

    def uncovered(self, device: Any, kind: str, a: int, b: int) -> int:
        """Time in [a, b) with work of the kind and no computing kernel."""
        return sum(
            length
            for kinds, length in cut(self._segments[device], a, b)
            if kind in kinds and COMPUTING not in kinds
        )

    def running(self, device: Any, kind: str, a: int, b: int) -> int:
        """Time in [a, b) with work of the kind, covered or not."""
        return sum(n for kinds, n in cut(self._segments[device], a, b) if kind in kinds)

    def steps(self) -> list[tuple[int, int]]:
        """(start, end) of each step, by accounting law 3, from ProfilerStep# marks.

        Work belongs to the step that launched it: its launch began after the step's mark did and
        before the next one (after the last mark's end, no step's). A step ends with its last work
        (with its mark, if it launched none), never before the one ahead of it, and the next begins
        there. The first begins at the later of its mark and the end of what was launched before
        it; launched before it is also what has no launch in the file and began before any step's
        own work. One step alone lasts from its mark to the later of its mark's end and its last
        work. Where the very first work sat in the queue for more than 1 ms, the GPU was busy with
        work from before the recording: counting starts with that first work. Where no step
        launched anything, the marks are the steps.
        """
        if not self.marks:
            return []
        if not self.work:
            return [(start, end) for start, end, _ in self.marks]
        owned = [[w for w in self.work if self._owner(w) == k] for k in range(len(self.marks))]
        every = [w for works in owned for w in works]
        if not every:
            return [(start, end) for start, end, _ in self.marks]
        ends = [
            max((w.end for w in works), default=end)
            for works, (_, end, _) in zip(owned, self.marks, strict=True)
        ]
        opening = min(every, key=lambda w: w.start)
        begin, mark_end, _ = self.marks[0]
        if len(ends) == 1:
            ends = [max(ends[0], mark_end)]
        else:
            before = [w.end for w in self.work if self._carried_in(w, opening.start)]
            begin = min(max([begin, *before]), ends[0])
        assert opening.returned is not None
        if opening.start - max(opening.returned, begin) >= QUEUED_NS and opening.start < ends[0]:
            begin = opening.start
        found = []
        for end in ends:
            end = max(end, begin)
            found.append((begin, end))
            begin = end
        return found

    def _owner(self, work: Work) -> int | None:
        """Number of the step that launched the work."""
        if work.launched is None or work.launched > self.marks[-1][1]:
            return None
        started = [k for k, (start, _, _) in enumerate(self.marks) if start <= work.launched]
        return started[-1] if started else None

    def _carried_in(self, work: Work, first_own: int) -> bool:
        if work.launched is None:
            return work.start < first_own
        return work.launched < self.marks[0][0]


def load(path: str | Path) -> Oracle:
    """Read a clean trace file."""
    raw = Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    document = json.loads(raw, parse_float=Decimal)
    if isinstance(document, list):
        events, base = document, 0
    else:
        events, base = document["traceEvents"], int(document.get("baseTimeNanoseconds", 0))
    return from_events(events, base)


def from_events(events: list[Any], base_ns: int = 0) -> Oracle:
    """The same from events already parsed (numbers int, str or Decimal)."""
    complete = [e for e in events if isinstance(e, dict) and e.get("ph") == "X"]
    calls: dict[int, tuple[int, int]] = {}
    for event in complete:
        if not _CALL_CATEGORY.match(str(event.get("cat", "")).lower()):
            continue
        correlation = _argument(event, "correlation", "correlation id")
        if correlation is None:
            continue
        start = base_ns + nanoseconds(event["ts"])
        end = start + nanoseconds(event.get("dur", 0))
        if correlation not in calls or start < calls[correlation][0]:
            calls[correlation] = (start, end)
    work = []
    for event in complete:
        kind = _kind(event)
        if kind is None:
            continue
        start = base_ns + nanoseconds(event["ts"])
        end = start + nanoseconds(event.get("dur", 0))
        correlation = _argument(event, "correlation", "correlation id")
        launched, returned = calls.get(correlation, (None, None)) if correlation else (None, None)
        device = _argument(event, "device")
        stream = _argument(event, "stream")
        work.append(
            Work(
                start,
                end,
                kind,
                event["pid"] if device is None else device,
                event["tid"] if stream is None else stream,
                launched,
                returned,
                event["name"],
            )
        )
    marks = sorted(
        (
            base_ns + nanoseconds(e["ts"]),
            base_ns + nanoseconds(e["ts"]) + nanoseconds(e["dur"]),
            e["name"],
        )
        for e in complete
        if str(e.get("name", "")).startswith("ProfilerStep#")
        and str(e.get("cat")).lower() in ("user_annotation", "cpu_op", "operator")
    )
    return Oracle(work, marks, complete)


def sweep(work: Iterable[Work]) -> list[Segment]:
    """The time line as stretches with something running, from sorted starts and ends."""
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for item in work:
        changes[item.start].append((item.kind, +1))
        changes[item.end].append((item.kind, -1))
    running: dict[str, int] = defaultdict(int)
    segments = []
    since = 0
    for moment in sorted(changes):
        now = frozenset(kind for kind, count in running.items() if count)
        if now:
            segments.append(Segment(since, moment, now))
        for kind, change in changes[moment]:
            running[kind] += change
        since = moment
    return segments


def cut(segments: Iterable[Segment], a: int, b: int) -> Iterable[tuple[frozenset[str], int]]:
    """What of each segment lies in [a, b)."""
    for segment in segments:
        length = min(segment.end, b) - max(segment.start, a)
        if length > 0:
            yield segment.kinds, length


def _argument(event: dict[str, Any], *names: str) -> Any:
    arguments = event.get("args")
    for name in names:
        if isinstance(arguments, dict) and name in arguments:
            return arguments[name]
    return None


def _kind(event: dict[str, Any]) -> str | None:
    category = str(event.get("cat", "")).lower()
    name = str(event.get("name", ""))
    if category == "mtia_ccp_events":
        # Queue entries that wait for or signal an event are not work; dma_* move data.
        if name.startswith(("event_wait", "event_record")):
            return None
        return COPY if name.startswith("dma_") else COMPUTING
    kind = _WORK_CATEGORIES.get(category)
    if kind == "kernel":
        return COMMUNICATION if _COLLECTIVE.search(name) else COMPUTING
    return kind
