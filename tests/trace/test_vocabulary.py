"""Names of calls: vendors kept apart, waits told from copies and from GPU-side waits."""

from __future__ import annotations

import pytest

from tracekit.trace.vocabulary import CALL_KINDS, blocking_copy, call_kind, call_vendor, gpu_kind

KINDS = {
    "kernel": "cudaLaunchKernel cudaLaunchKernelExC cuLaunchKernel cuLaunchKernelEx hipLaunchKernel"
    " hipModuleLaunchKernel hipExtModuleLaunchKernel hipExtLaunchKernel"
    " hipLaunchCooperativeKernel cudaLaunchCooperativeKernel cuLaunchCooperativeKernel"
    " cudaLaunchKernel_ptsz zeCommandListAppendLaunchKernel urEnqueueKernelLaunch cuLaunchGrid",
    "graph": "cudaGraphLaunch hipGraphLaunch cuGraphLaunch",
    "memcpy": "cudaMemcpyAsync cudaMemcpy hipMemcpyWithStream cuMemcpyHtoDAsync_v2 hipMemcpyAsync"
    " cudaMemcpy2DAsync cudaMemcpyPeerAsync urEnqueueUSMMemcpy zeCommandListAppendMemoryCopy",
    "memset": "cudaMemsetAsync hipMemset cuMemsetD32Async urEnqueueUSMFill"
    " zeCommandListAppendMemoryFill",
    "sync_stream": "cudaStreamSynchronize hipStreamSynchronize cuStreamSynchronize urQueueFinish"
    " synchronizeStream zeCommandQueueSynchronize",
    "sync_device": "cudaDeviceSynchronize hipDeviceSynchronize cuCtxSynchronize synchronize",
    "sync_event": "cudaEventSynchronize hipEventSynchronize cuEventSynchronize urEventWait"
    " zeEventHostSynchronize",
    "wait_event": "cudaStreamWaitEvent hipStreamWaitEvent cuStreamWaitEvent",
    "record_event": "cudaEventRecord cudaEventRecordWithFlags hipEventRecord recordEvent",
    "query": "cudaEventQuery cudaStreamQuery hipEventQuery",
    "alloc": "cudaMalloc cudaMallocAsync hipMalloc cudaHostAlloc hipExtMallocWithFlags"
    " cuMemAlloc_v2 cuMemCreate cudaMallocHost",
    "free": "cudaFree cudaFreeAsync hipFree cuMemFree_v2 cudaFreeHost",
    "module_load": "hipModuleLoadData cuModuleLoadData cuModuleLoadDataEx cuLibraryLoadData",
    "other": "cudaFuncGetAttributes cudaGetDevice cudaStreamIsCapturing cudaEventDestroy INVALID"
    " cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaGetFuncBySymbol hipCtxGetCurrent"
    " cudaEventElapsedTime cudaGraphInstantiate cudaPointerGetAttributes hipInit",
}


@pytest.mark.parametrize(
    ("name", "kind"), [(n, kind) for kind, names in KINDS.items() for n in names.split()]
)
def test_kind(name, kind):
    assert call_kind(name) == kind
    assert kind in CALL_KINDS


def test_mtia_calls():
    calls = {
        "enqueueCommand memcpyHtoDAsync": "memcpy",
        "enqueueCommand waitOnEvent": "wait_event",
        "runFunction - job_prep_and_submit_for_execution": "kernel",
        "predictor_executor::run gif_thread_id:1576": "other",
    }
    assert {n: call_kind(n, "mtia_runtime") for n in calls} == calls


@pytest.mark.parametrize(
    ("category", "name", "vendor"),
    [
        ("cuda_runtime", "cudaLaunchKernel", "cuda"),
        ("cuda_runtime", "hipLaunchKernel", "hip"),
        ("cuda_driver", "cuLaunchKernel", "cuda"),
        ("runtime", "cudaMemcpyAsync", "cuda"),
        ("runtime", "hipMemcpyAsync", "hip"),
        ("xpu_runtime", "urEnqueueKernelLaunch", "xpu"),
        ("xpu_driver", "zeCommandListAppendLaunchKernel", "xpu"),
        ("mtia_runtime", "recordEvent", "mtia"),
        ("cuda_runtime", "INVALID", "other"),
        ("privateuse1_runtime", "aclrtLaunchKernel", "other"),
    ],
)
def test_vendor(category, name, vendor):
    assert call_vendor(category, name) == vendor


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("cudaMemcpy", True),
        ("hipMemcpyWithStream", True),
        ("hipMemcpy", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaMemcpyToSymbol", True),
        ("cudaMemcpyAsync", False),
        ("hipMemcpyAsync", False),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cudaStreamSynchronize", False),
    ],
)
def test_blocking_copies(name, blocks):
    assert blocking_copy(name) is blocks


def test_device_rows():
    assert gpu_kind("kernel", "x") == "kernel"
    assert gpu_kind("gpu_memcpy", "Memcpy HtoD") == "memcpy"
    assert gpu_kind("memset", "Memset") == "memset"
    assert gpu_kind("mtia_ccp_events", "event_wait") is None
