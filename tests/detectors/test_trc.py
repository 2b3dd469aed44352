"""TRC001 to TRC006: what they say of a broken recording; silence on a sound one."""

from __future__ import annotations

import io
from types import ModuleType

import pytest

import tracekit
from tests.builders import GEMM, MUL, TraceBuilder
from tracekit.analysis.analysis import Analysis, AnalysisOptions
from tracekit.detectors import (
    trc001_damaged_trace,
    trc002_launches_missing,
    trc003_no_gpu_events,
    trc004_implausible_duration,
    trc005_compilation_in_window,
    trc006_profiler_inflates_host_bound,
)
from tracekit.detectors.finding import Draft
from tracekit.detectors.registry import MODULES
from tracekit.trace.read import read

DETECTORS = (
    trc001_damaged_trace,
    trc002_launches_missing,
    trc003_no_gpu_events,
    trc004_implausible_duration,
    trc005_compilation_in_window,
    trc006_profiler_inflates_host_bound,
)


def found(module: ModuleType, trace: TraceBuilder | bytes, **options: float) -> Draft | None:
    """The one draft of a detector, or None."""
    data = trace if isinstance(trace, bytes) else trace.bytes()
    analysis = Analysis(read(io.BytesIO(data)), AnalysisOptions(**options))  # type: ignore[arg-type]
    answer = module.detect(analysis, module.Config())
    assert not answer.undetermined
    assert len(answer.drafts) <= 1
    return answer.drafts[0] if answer.drafts else None


def healthy(steps: int = 3, kernels: int = 30) -> TraceBuilder:
    """A GPU-bound program: the host runs ahead."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            for _ in range(kernels):
                b.call("aten::mm", kernel=GEMM, gpu=40, host=10)
    return b


def host_bound(steps: int = 3, kernels: int = 30) -> TraceBuilder:
    """Kernels of 5 us launched 40 us apart."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            for _ in range(kernels):
                b.call("aten::mul", kernel=MUL, gpu=5, host=40)
    return b


@pytest.mark.parametrize("module", DETECTORS, ids=lambda m: m.CODE)
def test_silent_on_a_sound_trace(module: ModuleType) -> None:
    assert found(module, healthy()) is None


@pytest.mark.parametrize("module", DETECTORS, ids=lambda m: m.CODE)
def test_page_and_registration(module: ModuleType) -> None:
    assert module.__name__ in MODULES
    page = module.__doc__ or ""
    assert page.startswith(f"{module.CODE} {module.NAME}: ")
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## What it detects",
        "## Why it matters",
        "## How it is measured",
        "## Example",
        "## Fix",
        "## False positives",
        "## References",
    ]


def test_health_is_a_note_and_comes_last() -> None:
    d = tracekit.diagnose(io.BytesIO(host_bound().bytes()[:-400]))
    codes = [f.code for f in d.findings]
    assert codes[0] == "LCH001"
    assert codes[-2:] == ["TRC001", "TRC006"]
    for finding in d.findings[-2:]:
        assert (finding.severity, finding.saving.ms_per_step) == ("note", 0)
        assert finding.fixes


# TRC001 ------------------------------------------------------------------------------------------


def test_a_cut_file() -> None:
    data = healthy().bytes()
    draft = found(trc001_damaged_trace, data[: len(data) - 250])
    assert draft is not None
    assert draft.evidence.counts["events lost"] == 1
    assert any(line.startswith("byte ") for line in draft.evidence.lines)


def test_an_event_without_a_time() -> None:
    b = healthy()
    del b.events[5]["ts"]
    draft = found(trc001_damaged_trace, b)
    assert draft is not None
    assert draft.evidence.counts["events lost"] == 1
    assert draft.insight.startswith("1 event could not be read")


def test_a_mended_name_loses_nothing() -> None:
    """A raw backslash in a Windows path is repaired without losing the event."""
    b = healthy()
    b.python("PLACE", 0, 10)
    text = b.bytes().replace(b"PLACE", rb"torch\cuda\__init__.py(219): synchronize")
    draft = found(trc001_damaged_trace, text)
    assert draft is not None
    assert draft.evidence.counts["events lost"] == 0
    assert "no event was lost" in draft.insight


# TRC002 ------------------------------------------------------------------------------------------


def test_orphans_in_the_middle_of_the_steps() -> None:
    b = healthy()
    del_these = [e for e in b.events if e["cat"] == "cuda_runtime"][20:40]
    b.events = [e for e in b.events if e not in del_these]
    draft = found(trc002_launches_missing, b)
    assert draft is not None
    assert draft.evidence.counts["GPU events without launch in the steps"] == 20
    assert draft.evidence.counts["GPU events in the steps"] == 90
    assert "20 of 90 GPU events" in draft.insight


def test_work_from_before_the_recording_is_normal() -> None:
    """A recording begins while the GPU still runs what warm-up launched."""
    b = TraceBuilder()
    for k in range(10):
        b.kernel(GEMM, 40.0 * k, 40)
    b.free[7] = 400
    with b.step():
        for _ in range(30):
            b.call("aten::mm", kernel=GEMM, gpu=40)
    assert found(trc002_launches_missing, b) is None


def test_a_replay_recorded_in_part() -> None:
    """One graph launch; of its kernels only the first and the last are in the file."""
    b = TraceBuilder()
    with b.step():
        c = b.launch(0, 10, name="cudaGraphLaunch")
        b.kernel(GEMM, 20, 100, c)
        b.kernel(GEMM, 20_000, 100, c)
        b.clock[100] = 100.0
    draft = found(trc002_launches_missing, b)
    assert draft is not None
    assert "99 % of the step is GPU idle that nothing recorded explains" in draft.insight
    assert draft.evidence.counts["GPU events without launch in the steps"] == 0
    last = next(i for i, e in enumerate(b.events) if e["ts"] == 20_000)
    assert draft.evidence.event_ids == (last,)


def test_a_whole_replay_is_sound() -> None:
    b = TraceBuilder()
    with b.step():
        c = b.launch(0, 10, name="cudaGraphLaunch")
        for k in range(50):
            b.kernel(GEMM, 20 + 41.0 * k, 40, c)
        b.clock[100] = 100.0
    assert found(trc002_launches_missing, b) is None


# TRC003 ------------------------------------------------------------------------------------------


def test_launches_without_gpu_events() -> None:
    b = healthy()
    b.events = [e for e in b.events if e["cat"] != "kernel"]
    draft = found(trc003_no_gpu_events, b)
    assert draft is not None
    assert draft.evidence.counts["launching calls"] == 90
    assert "kept from reading the GPU" in draft.insight


@pytest.mark.parametrize(
    ("device", "says"), [("NVIDIA H200", "names a GPU (NVIDIA H200)"), (None, "only the CPU")]
)
def test_only_the_cpu_was_recorded(device: str | None, says: str) -> None:
    b = TraceBuilder(device)
    with b.step():
        b.call("aten::mm")
    draft = found(trc003_no_gpu_events, b)
    assert draft is not None
    assert says in draft.insight


def test_one_copy_is_gpu_work() -> None:
    b = TraceBuilder()
    with b.step():
        b.call("aten::copy_", kernel="Memcpy HtoD (Pinned -> Device)", cat="gpu_memcpy")
    assert found(trc003_no_gpu_events, b) is None


# TRC004 ------------------------------------------------------------------------------------------


def test_a_kernel_of_an_hour() -> None:
    b = healthy()
    b.kernel("broken", 100, 3.6e9, b.launch(90))
    draft = found(trc004_implausible_duration, b)
    assert draft is not None
    assert draft.evidence.counts["GPU events left out"] == 1
    assert draft.evidence.event_ids == (len(b.events) - 1,)
    assert "3,600.0 s" in draft.insight


def test_a_negative_duration() -> None:
    b = healthy()
    b.kernel("broken", 100, -5, b.launch(90))
    draft = found(trc004_implausible_duration, b)
    assert draft is not None
    assert draft.evidence.counts == {"GPU events left out": 0, "negative durations": 1}
    assert draft.insight == "1 event with a negative duration, counted as 0."


def test_a_long_kernel_among_long_work_is_believed() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(30):
            b.call("aten::mm", kernel=GEMM, gpu=200_000)
        b.call("aten::mm", kernel=GEMM, gpu=3_000_000)
    assert found(trc004_implausible_duration, b) is None


# TRC005 ------------------------------------------------------------------------------------------


def test_compiling_in_the_first_step() -> None:
    b = TraceBuilder()
    with b.step():
        start = b.clock[100]
        b.annotation("_compile.compile_inner (dynamo_timed)", start, 5000)
        b.clock[100] = start + 5000
        b.call("aten::mm", kernel=GEMM)
    for _ in range(2):
        with b.step():
            b.call("aten::mm", kernel=GEMM)
    draft = found(trc005_compilation_in_window, b)
    assert draft is not None
    assert draft.evidence.counts == {"compile, ms": 5.0, "benchmark kernels": 0, "steps with it": 1}
    assert draft.insight.startswith("compile 5.0 ms in 1 of 3 recorded steps")
    assert "--steps" in draft.action


def test_benchmark_kernels_are_counted_on_their_own_thread() -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            start = b.clock[100]
            for _ in range(5):
                b.call("aten::mm", kernel=GEMM)
            b.annotation("CachingAutotuner.benchmark_all_configs (dynamo_timed)", start, 50)
            b.call("aten::mm", kernel=GEMM, tid=101)  # another thread trains meanwhile
            b.clock[100] = start + 5000
    draft = found(trc005_compilation_in_window, b)
    assert draft is not None
    assert draft.evidence.counts["benchmark kernels"] == 10
    assert "TORCH_LOGS=recompiles" in draft.action


def test_compiling_before_the_steps_is_warm_up() -> None:
    b = TraceBuilder()
    b.annotation("_compile.compile_inner (dynamo_timed)", 0, 5000)
    b.clock[100] = 6000.0
    for _ in range(2):
        with b.step():
            b.annotation("TorchDynamo Cache Lookup", b.clock[100], 100)
            b.call("aten::mm", kernel=GEMM)
    assert found(trc005_compilation_in_window, b) is None


# TRC006 ------------------------------------------------------------------------------------------


def test_a_host_bound_step_without_a_reference() -> None:
    draft = found(trc006_profiler_inflates_host_bound, host_bound())
    assert draft is not None
    # an op and a launch, 30 times, and the mark
    assert draft.evidence.counts["recorded CPU events a step"] == 61
    # 1.2 ms: 61 events at 11 us are 56 % of it, so the range is recorded / 1.9 to / 1.2
    assert "takes 0.632 to 1 ms. Host-bound numbers are upper bounds." in draft.insight
    assert "--unprofiled-ms" in draft.action


def test_an_unprofiled_step_time_settles_it() -> None:
    assert found(trc006_profiler_inflates_host_bound, host_bound(), unprofiled_ms=1.0) is None


def test_few_events_cannot_have_slowed_the_step() -> None:
    """The host sleeps 200 ms between two kernels: nothing of that is the profiler's."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(2):
                b.call("aten::mm", kernel=GEMM, gpu=40)
                b.clock[100] += 200_000
    assert found(trc006_profiler_inflates_host_bound, b) is None
