"""What the words of a trace mean: categories of events, and names of runtime and driver calls.

Vendors are kept apart: ROCm writes its `hip*` calls under the category `cuda_runtime`, so the
name decides, and only a name that tells nothing falls back to the category.
"""

from __future__ import annotations

import re

CALL_KINDS: dict[str, str] = {
    "kernel": "launches one kernel (cudaLaunchKernel, cuLaunchKernelEx, hipModuleLaunchKernel ...)",
    "graph": "launches a captured graph (cudaGraphLaunch, hipGraphLaunch)",
    "memcpy": "starts a copy; `blocking_copy(name)` tells which ones also wait for it",
    "memset": "starts a fill",
    "sync_stream": "blocks the host until a stream is empty (cudaStreamSynchronize)",
    "sync_device": "blocks the host until the device is idle (cudaDeviceSynchronize)",
    "sync_event": "blocks the host until an event has happened (cudaEventSynchronize)",
    "wait_event": "makes a stream wait for an event; the host does not wait",
    "record_event": "records an event into a stream",
    "query": "asks whether a stream or event is done; never blocks",
    "alloc": "allocates device or pinned memory",
    "free": "frees device or pinned memory",
    "module_load": "loads GPU code (cuModuleLoadData, hipModuleLoad, cuLibraryLoadData)",
    "other": "anything else (cudaGetDevice, cudaFuncGetAttributes, cudaStreamIsCapturing ...)",
}
"""`launches.kind`: what a runtime or driver call does."""

# Category (lower case) to the table its complete events (ph X) go to.
TABLE_OF_CATEGORY: dict[str, str] = {
    "cpu_op": "ops",
    "operator": "ops",
    "hpu_op": "ops",
    "cuda_runtime": "launches",
    "cuda_driver": "launches",
    "runtime": "launches",
    "driver": "launches",
    "xpu_runtime": "launches",
    "xpu_driver": "launches",
    "mtia_runtime": "launches",
    "glow_runtime": "launches",
    "privateuse1_runtime": "launches",
    "privateuse1_driver": "launches",
    "kernel": "gpu",
    "concurrent_kernel": "gpu",
    "gpu_memcpy": "gpu",
    "memcpy": "gpu",
    "gpu_memset": "gpu",
    "memset": "gpu",
    # only some of its names are work, see `gpu_kind`
    "mtia_ccp_events": "gpu",
    "user_annotation": "annotations",
    "gpu_user_annotation": "annotations",
    "mtia_user_annotation": "annotations",
    "overhead": "annotations",
    "trace": "annotations",
    "python_function": "python",
    "python": "python",
    "cuda_sync": "syncs",
    # an instant (ph i); only its "[memory]" rows have a table
    "cpu_instant_event": "memory",
}

ANNOTATION_WHERE: dict[str, str] = {
    "user_annotation": "cpu",
    "gpu_user_annotation": "gpu",
    "mtia_user_annotation": "gpu",
    "overhead": "overhead",
    "trace": "span",
}

_GPU_KIND_OF_CATEGORY = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}

_VENDOR_OF_CATEGORY = {
    "xpu_runtime": "xpu",
    "xpu_driver": "xpu",
    "mtia_runtime": "mtia",
    "cuda_driver": "cuda",
    "glow_runtime": "other",
    "privateuse1_runtime": "other",
    "privateuse1_driver": "other",
}

# An MTIA queue's own bookkeeping occupies no engine: waiting is the opposite of work.
_MTIA_NOT_WORK = ("event_wait", "event_record")


def gpu_kind(category: str, name: str) -> str | None:
    """'kernel', 'memcpy' or 'memset' of a device row; None where the row is no work."""
    if category != "mtia_ccp_events":
        return _GPU_KIND_OF_CATEGORY[category]
    if name.startswith(_MTIA_NOT_WORK):
        return None
    return "memcpy" if name.startswith("dma_") else "kernel"


def call_vendor(category: str, name: str) -> str:
    """'cuda', 'hip', 'xpu', 'mtia' or 'other': whose call this is."""
    found = _VENDOR_OF_CATEGORY.get(category)
    if found is not None and found != "cuda":
        return found
    if name.startswith(("hip", "hsa", "roctx")):
        return "hip"
    if name.startswith(("cu", "nv")):
        return "cuda"
    if name.startswith(("ze", "ur", "pi", "sycl")) and not name.startswith("pipe"):
        return "xpu"
    return found or "other"


# First match wins. Names are compared without the vendor's prefix, API version suffixes
# (_v2, _ptsz, _spt) and case, so one rule serves cudaX, cuX, hipX, zeX and urX.
_RULES: list[tuple[str, str]] = [
    ("graph", r"graphlaunch|graphexeclaunch|enqueuegraph|commandbufferenqueue"),
    (
        "kernel",
        r"(extmodule|ext|module|cooperative|commandlist\w*)?launch\w*(kernel|grid|hostfunc)\w*"
        r"|launch$|launchkernelexc|appendlaunch|enqueuekernellaunch\w*|appendlaunchkernel\w*"
        r"|enqueuecooperativekernellaunch\w*",
    ),
    (
        "wait_event",
        r"streamwaitevent|waitonevent|streamwaitvalue|enqueueeventswait\w*"
        r"|commandlistappendwaitonevents",
    ),
    ("record_event", r"eventrecord|recordevent|commandlistappendsignalevent"),
    (
        "sync_stream",
        r"streamsynchronize|synchronizestream|queuefinish"
        r"|commandqueuesynchronize|commandlisthostsynchronize",
    ),
    (
        "sync_event",
        r"eventsynchronize|synchronizeevent|eventwait|eventhostsynchronize"
        r"|fencehostsynchronize",
    ),
    (
        "sync_device",
        r"devicesynchronize|ctxsynchronize|threadsynchronize|synchronizedevice"
        r"|synchronize$",
    ),
    ("query", r"eventquery|streamquery|eventquerystatus|eventgetinfo"),
    ("memset", r"memset|\w*memoryfill|enqueueusmfill|enqueuemembufferfill"),
    ("memcpy", r"memcpy|\w*memorycopy|enqueueusmmemcpy|enqueuemembuffer(read|write|copy)"),
    ("free", r"free(?!z)|memfree|usmfree|mempooltrim|memrelease"),
    (
        "alloc",
        r"(ext)?malloc|hostalloc|memalloc|memhostalloc|memcreate|hostmalloc"
        r"|usm\w*alloc|hostregister|memaddressreserve",
    ),
    (
        "module_load",
        r"module(load|create)|libraryload|linkcreate|linkcomplete|registerfatbinary"
        r"|programbuild|programlink|loadimage",
    ),
]
_COMPILED = [(kind, re.compile(pattern)) for kind, pattern in _RULES]
_PREFIX = re.compile(r"^(?:cuda|cu|hip|hsa_|ze|ur|pi|mtia|enqueuecommand\s+|runfunction\s*-\s*)")


def call_kind(name: str, category: str = "") -> str:
    """The `CALL_KINDS` entry of a runtime or driver call."""
    text = name.lower()
    if category == "mtia_runtime" and text.startswith("runfunction"):
        return "kernel"  # an executable is submitted to the device as one unit
    bare = _PREFIX.sub("", text, count=1)
    for kind, pattern in _COMPILED:
        if pattern.match(bare):
            return kind
    return "other"


_BLOCKING_COPY = re.compile(
    r"^(?:(?:cuda|hip)Memcpy(?:2D|3D)?(?:(?:To|From)?Symbol|ToArray|FromArray|ArrayToArray)?"
    r"|cuMemcpy(?:HtoD|DtoH|DtoD|2D|3D)?|hipMemcpy(?:HtoD|DtoH|DtoD)"
    r"|hipMemcpyWithStream)(?:_v2|_v3020|_ptds|_spt)*$"
)


def blocking_copy(name: str) -> bool:
    """Whether a copy call returns only after the copy (cudaMemcpy, hipMemcpyWithStream, ...).

    An Async call can block too (pageable memory): that shows in its duration, not in its name.
    """
    return bool(_BLOCKING_COPY.match(name))


HIP_COPY_KINDS: dict[str, str] = {
    "0": "HtoH", "1": "HtoD", "2": "DtoH", "3": "DtoD", "4": "Default", "1024": "DtoDNoCU",
}  # fmt: skip
"""hipMemcpyKind, which ROCm traces write as a number."""
