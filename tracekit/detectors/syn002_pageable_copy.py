"""SYN002 pageable-copy: the host waits while the driver copies from or to pageable memory.

## What it detects
Copies between ordinary (pageable) host memory and the device that are large enough to matter:
`Memcpy HtoD (Pageable -> Device)` and `Memcpy DtoH (Device -> Pageable)`.

## Why it matters
The GPU cannot read pageable memory. The driver copies it piece by piece through its own pinned
buffer: the call blocks the host meanwhile, whatever `non_blocking` says, and the copy reaches a
fraction of the link's bandwidth (an A100 recording: 4 to 6 GB/s where the link gives 25).

## How it is measured
Size and memory kind come from the recording. The price is the step replayed with the host no
longer blocked in the copy calls and the synchronize that follows inside the same op, and each
copy as long as a pinned one: bytes over the bandwidth of the trace's own pinned copies, else over
the device's PCIe link. The range: the copy as slow as it is, only without blocking the host (for
copies to the host: faster, but the host still waits for the values), up to a copy that overlaps
computation altogether (prefetched on a stream of its own).

## Example
    1 copy of 32 MB a step, 8 GB/s; the host is blocked in it for 4.1 ms a step

## Fix
`DataLoader(pin_memory=True)`, or `tensor.pin_memory()` once, and `.to(device, non_blocking=True)`.
To the host: copy into a pinned tensor with `non_blocking=True`, and read it a step later.

## False positives
Copies up to 64 KB are staged at once and do not block; a number read by `.item()` is SYN001's.
ROCm writes `Host -> Device` for both kinds of memory: the answer there is undetermined. Pinning
memory that is used only once costs more than it saves: pin what is used every step.

## References
https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html
https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.copies import (
    BLOCKING_BYTES,
    HostCopies,
    pageable_copies,
    pinned_speed,
    unknown_copies,
    waits_for,
)
from tracekit.detectors.finding import Detection, Draft, Evidence, Fix, Undetermined
from tracekit.detectors.place import where_of
from tracekit.replay.edits import Edits
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

CODE = "SYN002"
NAME = "pageable-copy"

_CALL_NS = 4_000
"""host time that the call of an asynchronous copy keeps"""


@dataclass(frozen=True)
class Config:
    """Thresholds of SYN002."""

    min_bytes: int = field(
        default=BLOCKING_BYTES,
        metadata={
            "unit": "bytes a copy",
            "source": "CUDA runtime API, synchronisation behaviour: up to 64 KB do not block",
        },
    )
    min_step_share_percent: float = field(
        default=0.3,
        metadata={
            "unit": "% of the step, in the copies or blocked by them",
            "source": "below the 0.5 % that a step repeats to on an H200",
        },
    )


def detect(analysis: Analysis, config: Config) -> Detection:
    """At most one finding for each direction."""
    if not len(analysis.trace.table("gpu")):
        return Detection(undetermined=(Undetermined(CODE, NAME, "the trace has no GPU events"),))
    drafts, unclear = [], []
    for direction in ("HtoD", "DtoH"):
        copies = pageable_copies(analysis, direction, config.min_bytes)
        if _share(analysis, copies) >= config.min_step_share_percent:
            drafts.append(_draft(analysis, copies))
        blind = unknown_copies(analysis, direction, config.min_bytes)
        share = _share(analysis, blind)
        if share >= config.min_step_share_percent:
            way = "to the device" if direction == "HtoD" else "to the host"
            why = (
                f"copies {way} ({len(blind)}) take {share:.1f} % of the step, but the recording "
                "does not say whether the host's memory is pinned (ROCm writes Host for both)"
            )
            unclear.append(Undetermined(CODE, NAME, why))
    return Detection(tuple(drafts), tuple(unclear))


def _share(analysis: Analysis, copies: HostCopies) -> float:
    """What the copies take, or the host's time in them where that is longer, % of the steps."""
    wall = float(analysis.steps.wall_ns.sum())
    if not len(copies) or wall <= 0:
        return 0.0
    copying = float(analysis.trace.table("gpu").ints("dur")[copies.rows].sum())
    return 100 * max(copying, _blocked_ns(analysis, copies)) / wall


def _blocked_ns(analysis: Analysis, copies: HostCopies) -> float:
    calls = np.union1d(copies.calls, waits_for(analysis, copies))
    return float(analysis.trace.table("launches").ints("dur")[calls].sum())


def _unblocked(analysis: Analysis, copies: HostCopies) -> Edits:
    """The host goes on at once: its waits are dropped, and so is its time in the calls that
    returned before their copy had ended (which the replay takes for plain host time)."""
    launches = analysis.trace.table("launches")
    calls = np.unique(copies.calls)
    start = launches.ts[calls]
    kept = np.minimum(launches.ints("dur")[calls], _CALL_NS)
    spans = np.stack([launches.ints("tid")[calls], start + kept, launches.end[calls]], axis=1)
    return Edits(drop_waits=waits_for(analysis, copies), remove_host=spans)


def _draft(analysis: Analysis, copies: HostCopies) -> Draft:
    gpu, count = analysis.trace.table("gpu"), max(len(analysis.steps), 1)
    to_device = copies.direction == "HtoD"
    duration = gpu.ints("dur")[copies.rows]
    total = int(copies.bytes.sum())
    speed = total / max(float(duration.sum()), 1.0)
    pinned = pinned_speed(analysis, copies.direction)
    unblocked = _unblocked(analysis, copies)
    faster = Edits()
    lines = [f"pageable copies reach {speed:.1f} GB/s"]
    if pinned is None:
        lines.append("how fast a pinned copy is on this device is not known: durations are kept")
    else:
        new: Ints = np.minimum(duration, (copies.bytes / pinned[0]).astype(np.int64))
        faster = Edits(resize_gpu=copies.rows, resize_ns=new)
        lines.append(f"pinned ones {pinned[0]:.0f} GB/s ({pinned[1]})")
    order = np.argsort(-duration, kind="stable")[:20]
    often = len(copies) / count
    mb, blocked = total / 1e6 / count, _blocked_ns(analysis, copies) / 1e6 / count
    route = "pageable host memory to the GPU" if to_device else "the GPU to pageable host memory"
    return Draft(
        code=CODE,
        name=NAME,
        title=f"copies from {route} block the host",
        insight=(
            f"{often:.3g} copies a step bring {mb:.1f} MB from {route} at {speed:.1f} GB/s; the "
            f"host is blocked in them for {blocked:.2f} ms a step."
        ),
        action=(
            "Pin the batch's memory and copy it with non_blocking=True."
            if to_device
            else "Copy into a pinned tensor with non_blocking=True, and read it a step later."
        ),
        impact="The host runs ahead during the copy, and the copy runs at the link's speed.",
        edits=unblocked | faster,
        pessimistic=unblocked if to_device else faster,
        optimistic=unblocked | Edits(remove_gpu=copies.rows),
        evidence=Evidence(
            event_ids=tuple(int(i) for i in gpu.ints("id")[copies.rows[order]]),
            counts={
                "copies a step": round(often, 2),
                "MB a step": round(mb, 3),
                "GB/s": round(speed, 2),
                "copying, ms a step": round(float(duration.sum()) / 1e6 / count, 3),
                "host blocked, ms a step": round(blocked, 3),
            },
            lines=tuple(lines),
        ),
        where=where_of(analysis, copies.rows),
        fixes=(_TO_DEVICE, _PREFETCH) if to_device else (_TO_HOST,),
        confidence="high" if pinned is not None and to_device else "medium",
    )


_TO_DEVICE = Fix(
    title="pinned memory and non_blocking",
    code=(
        "loader = DataLoader(dataset, num_workers=4, pin_memory=True)\n"
        "x = x.to('cuda', non_blocking=True)     # without a loader: x = x.pin_memory() once"
    ),
    applies_when="the same memory, or a loader's, is copied every step",
    numerics="nothing",
)
_PREFETCH = Fix(
    title="the next batch on a stream of its own",
    code=(
        "copying = torch.cuda.Stream()\n"
        "with torch.cuda.stream(copying):                      # while this step computes\n"
        "    following = pinned.to('cuda', non_blocking=True)\n"
        "torch.cuda.current_stream().wait_stream(copying)      # before the next step uses it\n"
        "following.record_stream(torch.cuda.current_stream())"
    ),
    applies_when="the copy is pinned and still takes a visible part of the step",
    numerics="nothing",
)
_TO_HOST = Fix(
    title="a pinned tensor, read one step later",
    code=(
        "out = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)   # once\n"
        "out.copy_(result, non_blocking=True); done.record()   # done = torch.cuda.Event()\n"
        "...                                                   # the next step is launched\n"
        "done.synchronize(); use(out)"
    ),
    applies_when="the values are not needed before the next step is launched",
    numerics="nothing",
)
