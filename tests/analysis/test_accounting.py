"""The breakdown of a step and the causes of idle (laws 2 and 5), by hand."""

from __future__ import annotations

import pytest

from tests.builders import ADD, AUTOGRAD, MAIN, TraceBuilder
from tracekit.analysis.accounting import BREAKDOWN_KEYS
from tracekit.analysis.analysis import Analysis
from tracekit.analysis.idle import CAUSES

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def parts(b: TraceBuilder, step: int = 0) -> dict[str, float]:
    analysis = Analysis(b.trace())
    accounting = analysis.accounting
    total = sum(accounting.breakdown_ns[k] for k in BREAKDOWN_KEYS)
    assert total.tolist() == accounting.wall_ns.tolist() == analysis.steps.wall_ns.tolist()
    return {k: v[step] / 1e3 for k, v in accounting.breakdown_ns.items() if v[step]}


def test_priority_where_work_overlaps() -> None:
    """Computing 10-50, communication 30-80, a copy 70-100: 40 + 30 + 20, idle the rest."""
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, 110)
    b.kernel(ADD, 10, 40, b.launch(1))
    b.kernel(NCCL, 30, 50, b.launch(2), stream=9)
    b.kernel("Memcpy DtoD (Device -> Device)", 70, 30, b.launch(3), stream=11, cat="gpu_memcpy")
    found = parts(b)
    assert (found["computing"], found["communication"], found["copies"]) == (40, 30, 20)
    assert sum(v for k, v in found.items() if k.startswith("idle")) == 20


def test_streams_are_a_union_not_a_sum() -> None:
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, 100)
    b.kernel(ADD, 0, 60, b.launch(0), stream=7)
    b.kernel(ADD, 20, 60, b.launch(1), stream=9)
    analysis = Analysis(b.trace())
    assert analysis.accounting.busy_ns.tolist() == [80_000]
    assert analysis.accounting.idle_ns.tolist() == [20_000]
    streams = {k: v.tolist() for k, v in analysis.accounting.streams_ns.items()}
    assert streams == {(0, 7): [60_000], (0, 9): [60_000]}
    assert {k: v.tolist() for k, v in analysis.accounting.devices_ns.items()} == {0: [80_000]}


def gap(b: TraceBuilder) -> tuple[str, float]:
    """Cause and length of the one gap between the first and second kernel."""
    gaps = Analysis(b.trace()).gaps
    row = int((gaps.end - gaps.start).argmax())
    return CAUSES[gaps.cause[row]], float(gaps.end[row] - gaps.start[row]) / 1e3


def two_kernels(second_launch: float, second_start: float, *, mark: float = 10_000) -> TraceBuilder:
    """A kernel 10-110 launched at 0; another one as given."""
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, mark)
    b.kernel(ADD, 10, 100, b.launch(0))
    b.kernel(ADD, second_start, mark - second_start, b.launch(second_launch))
    return b


def test_idle_for_a_launch() -> None:
    b = two_kernels(300, 310)
    b.op("aten::add", 100, 210)
    assert gap(b) == ("launch", 200)


def test_idle_with_work_in_the_queue_is_the_devices() -> None:
    assert gap(two_kernels(5, 140)) == ("device", 30)


def test_long_idle_with_work_in_the_queue_was_not_recorded() -> None:
    assert gap(two_kernels(5, 3_110)) == ("unknown", 3_000)


def test_idle_after_a_host_wait() -> None:
    """The host waits from 20 to 115 for the first kernel, launches again at 160."""
    b = two_kernels(160, 170)
    b.launch(20, 95, name="cudaStreamSynchronize")
    b.op("aten::add", 115, 50)
    assert gap(b) == ("host_sync", 60)


def test_a_wait_that_ended_before_the_gpu_ran_dry_is_not_to_blame() -> None:
    b = two_kernels(300, 310)
    b.launch(20, 30, name="cudaStreamSynchronize")  # returns at 50; the kernel ends at 110
    b.op("aten::add", 100, 210)
    assert gap(b) == ("launch", 200)


@pytest.mark.parametrize(
    ("name", "cause"), [("cudaMalloc", "allocator"), ("cuModuleLoadData", "compilation")]
)
def test_idle_during_a_slow_call(name: str, cause: str) -> None:
    b = two_kernels(1_000, 1_010)
    b.launch(150, 800, name=name)
    assert gap(b) == (cause, 900)


def test_idle_for_input() -> None:
    b = two_kernels(1_000, 1_010)
    b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 120, 800)
    assert gap(b) == ("input", 900)


def test_a_silent_host_before_the_inputs_copy_waits_for_input() -> None:
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, 10_000)
    b.kernel(ADD, 10, 100, b.launch(0))
    b.kernel("Memcpy HtoD (Pinned -> Device)", 5_010, 4_990, b.launch(5_000), cat="gpu_memcpy")
    assert gap(b) == ("input", 4_900)


def test_a_silent_host_before_a_kernel_is_other_host_work() -> None:
    assert gap(two_kernels(5_000, 5_010)) == ("other_host", 4_900)


def test_idle_before_an_orphan_is_unknown() -> None:
    b = TraceBuilder()
    b.annotation("ProfilerStep#0", 0, 1_000)
    b.kernel(ADD, 10, 100, b.launch(0))
    b.kernel(ADD, 400, 100, 12_345)
    b.kernel(ADD, 500, 500, b.launch(450))
    assert gap(b) == ("unknown", 290)


def test_gaps_inside_a_graph_are_the_devices_even_without_its_launch() -> None:
    for correlation in (0, 4_242):
        b = TraceBuilder()
        b.annotation("ProfilerStep#0", 0, 1_000)
        c = correlation or b.launch(0, name="cudaGraphLaunch")
        for k in range(3):
            b.kernel(ADD, 10 + 100 * k, 60, c)
        b.kernel(ADD, 270, 730, b.launch(5))
        assert gap(b) == ("device", 40)


def test_backward_launches_of_the_autograd_thread_count_as_launching() -> None:
    b = two_kernels(300, 310)
    b.op("autograd::engine::evaluate_function: MulBackward0", 100, 200, tid=AUTOGRAD)
    b.op("aten::backward", 90, 220, tid=MAIN)
    assert gap(b)[0] == "launch"
