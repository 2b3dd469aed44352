"""Traces made by hand: a compact description into Kineto JSON, read by the real reader.

Times are microseconds. Deterministic: the same calls give the same bytes. Two ways to use it:

* placed by hand, every event with its own time, for a case to be checked on paper:
  `b.op("aten::mul", 0, 20); c = b.launch(5); b.kernel("k", 30, 10, c)`;
* written as a program, with a host clock and a clock a stream that move on their own:
  `b.call("aten::mul", kernel=ELEMENTWISE, gpu=10)`, inside `with b.step():` where steps matter.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tracekit.trace.model import Trace
from tracekit.trace.read import read

PID = 100
MAIN, AUTOGRAD = 100, 101

# Kernel names as real traces have them.
MUL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)"
)
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int)"
)
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, float, 4> >(float)"
GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN"
TO_NHWC = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, "
    "false, true, (cudnnKernelDataType_t)0>(cudnn::engines_precompiled::nchw2nhwc_params_t<float>)"
)
TO_NCHW = TO_NHWC.replace("nchwToNhwc", "nhwcToNchw").replace("nchw2nhwc", "nhwc2nchw")
CONV = (
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_"
    "warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn"
)
DGRAD = CONV.replace("fprop", "dgrad")


class TraceBuilder:
    """Collects events; `dict()`, `bytes()` and `trace()` hand them out.

    Args:
        device: product name of GPU 0, or None to leave deviceProperties out.
        base: time added to every event, us (real traces start at large times).
        capability: compute capability of the device.
    """

    def __init__(
        self,
        device: str | None = "NVIDIA H200",
        *,
        base: float = 0,
        capability: tuple[int, int] = (9, 0),
        header: dict[str, Any] | None = None,
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {"schemaVersion": 1, **(header or {})}
        if device is not None:
            self.header["deviceProperties"] = [
                {
                    "id": 0,
                    "name": device,
                    "computeMajor": capability[0],
                    "computeMinor": capability[1],
                }
            ]
        self.base = base
        self.clock: dict[int, float] = {}
        """host time of each thread, us; the program-like methods move it"""
        self.free: dict[int, float] = {}
        """time at which each stream is done, us"""
        self._correlation = 0
        self._external = 0
        self._step = 0

    # Events placed by hand -------------------------------------------------------------------

    def event(self, cat: str, name: str, ts: float, dur: float, **fields: Any) -> None:
        """Any complete event; `fields` override pid, tid and args."""
        body = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": MAIN}
        self.events.append({**body, "ts": self.base + ts, "dur": dur, **fields})

    def op(
        self,
        name: str,
        ts: float,
        dur: float,
        *,
        tid: int = MAIN,
        shapes: Sequence[Any] | None = None,
        dtypes: Sequence[str] | None = None,
        strides: Sequence[Any] | None = None,
        seq: int | None = None,
        fwd_tid: int = 0,
        **args: Any,
    ) -> int:
        """A cpu_op; returns its External id. `shapes` etc. as the profiler writes them."""
        self._external += 1
        found: dict[str, Any] = {"External id": self._external}
        if shapes is not None:
            found["Input Dims"] = list(shapes)
            found["Input type"] = list(dtypes if dtypes is not None else ["float"] * len(shapes))
            if strides is not None:
                found["Input Strides"] = list(strides)
        if seq is not None:
            found |= {"Sequence number": seq, "Fwd thread id": fwd_tid}
        self.event("cpu_op", name, ts, dur, tid=tid, args={**found, **args})
        return self._external

    def launch(
        self, ts: float, dur: float = 4, *, name: str = "cudaLaunchKernel", tid: int = MAIN
    ) -> int:
        """A runtime call; returns its correlation id."""
        self._correlation += 1
        args = {"correlation": self._correlation, "cbid": 211}
        cat = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else ""
        self.event(cat or "cuda_runtime", name, ts, dur, tid=tid, args=args)
        return self._correlation

    def kernel(
        self,
        name: str,
        ts: float,
        dur: float,
        correlation: int = 0,
        *,
        stream: int = 7,
        device: int = 0,
        cat: str = "kernel",
        **args: Any,
    ) -> None:
        """Work on the GPU; correlation 0 is an orphan. `cat="gpu_memcpy"` for copies."""
        found: dict[str, Any] = {"device": device, "stream": stream, "context": 1, **args}
        if correlation:
            found["correlation"] = correlation
        self.event(cat, name, ts, dur, pid=device, tid=stream, args=found)

    def annotation(
        self, name: str, ts: float, dur: float, *, gpu: bool = False, tid: int = MAIN
    ) -> None:
        """A user_annotation, or with `gpu` its repetition on the GPU's time line."""
        if gpu:
            self.event("gpu_user_annotation", name, ts, dur, pid=0, tid=7)
        else:
            self.event("user_annotation", name, ts, dur, tid=tid)

    def python(self, name: str, ts: float, dur: float, *, tid: int = MAIN) -> None:
        """A python_function row: 'train.py(12): step' or 'nn.Module: UNet_0'."""
        self.event("python_function", name, ts, dur, tid=tid, args={"Python id": len(self.events)})

    # A program, with clocks that move --------------------------------------------------------

    @contextmanager
    def step(self, *, gap: float = 0) -> Iterator[None]:
        """One training step: its ProfilerStep# mark covers what is called inside."""
        start = max([0.0, *self.clock.values()]) + gap
        self.clock = dict.fromkeys({MAIN, *self.clock}, start)
        yield
        end = max(self.clock.values())
        self.annotation(f"ProfilerStep#{self._step}", start, end - start)
        self.clock = dict.fromkeys(self.clock, end)
        self._step += 1

    @contextmanager
    def inside(self, name: str, *, tid: int = MAIN, **op: Any) -> Iterator[None]:
        """An op around everything called inside: `with b.inside("aten::convolution_backward"):`"""
        start = self.clock.get(tid, 0.0)
        self.clock[tid] = start + 1
        yield
        self.clock[tid] += 1
        self.op(name, start, self.clock[tid] - start, tid=tid, **op)

    def call(
        self,
        op: str | Sequence[str],
        *,
        kernel: str | None = None,
        gpu: float = 10,
        host: float = 10,
        tid: int = MAIN,
        stream: int = 7,
        delay: float = 5,
        cat: str = "kernel",
        **details: Any,
    ) -> None:
        """One op that launches one kernel (none when `kernel` is None).

        `op` may be a chain, outermost first; `details` (shapes, dtypes, strides, seq) go to the
        innermost. The op takes `host` us; the kernel starts `delay` us after the launch call, or
        when its stream is free.
        """
        chain = [op] if isinstance(op, str) else list(op)
        start = self.clock.get(tid, 0.0)
        for depth, name in enumerate(chain):
            inner = depth == len(chain) - 1
            extent = (start + depth * 0.25, host - depth * 0.5)
            self.op(name, *extent, tid=tid, **(details if inner else {}))
        if kernel is not None:
            at = start + host / 2
            correlation = self.launch(at, min(4.0, host / 4), tid=tid)
            begins = max(at + delay, self.free.get(stream, 0.0))
            self.kernel(kernel, begins, gpu, correlation, stream=stream, cat=cat)
            self.free[stream] = begins + gpu
        self.clock[tid] = start + host

    # Results ---------------------------------------------------------------------------------

    def dict(self) -> dict[str, Any]:
        """The file as an object."""
        return {**self.header, "traceEvents": self.events}

    def bytes(self) -> bytes:
        """The file as JSON text."""
        return json.dumps(self.dict()).encode()

    def trace(self) -> Trace:
        """The file, read."""
        return read(io.BytesIO(self.bytes()))
