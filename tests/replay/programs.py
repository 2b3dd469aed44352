"""Small programs as traces, with the step time of every variation known by construction."""

from __future__ import annotations

from tests.builders import ADD, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.replay.model import StepModel

LATENCY = 5.0  # us from launch to start on an idle stream
KERNELS = 25


def model(b: TraceBuilder) -> StepModel:
    """The replayable model of a program."""
    built = Analysis(b.trace()).replay
    assert built is not None
    return built


def program(
    host: float, gpu: float, *, steps: int = 4, kernels: int = KERNELS, sync: bool = False
) -> TraceBuilder:
    """Steps of `kernels` ops that each take `host` us to launch a kernel of `gpu` us; with `sync`
    the host waits for the last kernel at the end of each step (it returns 2 us after its end)."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            for k in range(kernels):
                b.call(f"aten::op{k % 5}", kernel=ADD, gpu=gpu, host=host, delay=LATENCY)
            if sync:
                at = b.clock[100]
                until = max(at + 1, b.free[7] + 2)
                b.op("aten::item", at, until - at + 1)
                b.launch(at, until - at, name="cudaStreamSynchronize")
                b.clock[100] = until + 1
    return b
