"""On a GPU: nothing is carried into the recording, nothing is cut off, times are the device's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.profiler.conftest import load, marks, tracekit
from tracekit.profiler import Plan, record

pytestmark = pytest.mark.gpu

GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def queueing_step() -> Callable[[], None]:
    """A step whose GPU work takes much longer than its launches: the host runs ahead."""
    a = torch.randn(4096, 4096, device="cuda")

    def step() -> None:
        for _ in range(20):
            torch.mm(a, a)

    return step


def gpu_events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted((e for e in trace["traceEvents"] if e.get("cat") in GPU), key=lambda e: e["ts"])


def test_no_work_is_carried_in_or_cut_off(tmp_path: Path) -> None:
    recording = record(queueing_step(), out=tmp_path, plan=Plan(5, 20, 2, 4))
    trace = load(recording.destination.trace)
    first = min(e["ts"] for e in trace["traceEvents"] if e.get("name") == "ProfilerStep#2")
    kernels = gpu_events(trace)
    assert kernels[0]["ts"] >= first
    launched = {
        e["args"]["correlation"]
        for e in trace["traceEvents"]
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
    }
    assert all(e["args"]["correlation"] in launched for e in kernels)
    assert len(kernels) >= 80
    assert marks(trace) == [f"ProfilerStep#{i}" for i in (2, 3, 4, 5)]


def test_the_unprofiled_time_is_the_devices(tmp_path: Path) -> None:
    step = queueing_step()
    recording = record(step, out=tmp_path, plan=Plan(5, 20, 1, 2))
    timed = recording.manifest.unprofiled
    assert timed is not None
    assert timed.clock == "device"
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(20):
        step()
    end.record()
    torch.cuda.synchronize()
    assert timed.ms_per_step.median == pytest.approx(start.elapsed_time(end) / 20, rel=0.1)
    assert timed.mean_ms == pytest.approx(timed.ms_per_step.median, rel=0.1)


def test_the_manifest_names_the_gpu(tmp_path: Path) -> None:
    gpu = record(queueing_step(), out=tmp_path, plan=Plan(1, 2, 1, 1)).manifest.gpu
    assert gpu is not None
    assert gpu.name == torch.cuda.get_device_name()
    assert gpu.memory_bytes > 1 << 30


SCRIPT = """
import torch
assert not torch.cuda.is_initialized()
model = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for _ in range(40):
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(512, 2048, device="cuda")).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_a_script_on_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = tracekit("profile", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trace = load(tmp_path / "traces" / "trace.json.gz")
    assert len(marks(trace)) == 3
    first = min(e["ts"] for e in trace["traceEvents"] if e.get("name") == "ProfilerStep#1")
    assert gpu_events(trace)[0]["ts"] >= first
    assert trace["tracekit"]["unprofiled"]["clock"] in ("device", "block")


GRAPH = """
import torch
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
x = torch.randn(64, 256, device="cuda")
def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(30):
    graph.replay()
torch.cuda.synchronize()
print("replayed")
"""


def test_a_capture_is_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GRAPH)
    done = tracekit("profile", "--wait", "1", "--measure", "5", "train.py", cwd=tmp_path)
    assert done.stdout == "replayed\n", done.stderr
    assert done.returncode == 1
    assert "the program made" in done.stderr


@pytest.mark.parametrize("key", ["3", "5"])
def test_a_rung_on_the_gpu(tmp_path: Path, key: str) -> None:
    done = tracekit("profile", "--rung", key, "--preset", "tiny", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trace = load(tmp_path / "out" / "trace.json.gz")
    assert len(marks(trace)) == 3
    assert gpu_events(trace)
    assert trace["tracekit"]["unprofiled"]["clock"] == "device"
