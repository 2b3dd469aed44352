"""CMP002: regions that nest are graph breaks; what they cost the host, and only where it shows."""

from __future__ import annotations

import pytest

from tests.builders import ADD, AUTOGRAD, MAIN, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors import cmp002_graph_break as cmp
from tracekit.detectors.finding import Detection, Finding
from tracekit.detectors.pricing import price

PART = 180
"""us from one part to the next: a look-up (20), the function (150), 10 of silence"""


def part(b: TraceBuilder, number: int, gpu: float, *, seq: int, grid: int, fx: bool = True) -> None:
    """The function's code at 21..170 us; in it Inductor's call at 40..150, one kernel's op at
    100..140."""
    at = b.clock[MAIN]
    b.op("TorchDynamo Cache Lookup", at, 20)
    b.op("CompiledFunction", at + 21, 149, seq=seq)
    if fx:
        b.annotation(f"## Call CompiledFxGraph f{number} ##", at + 40, 110)
    kernel(b, at + 100, gpu, grid, MAIN)
    b.clock[MAIN] = at + PART


def kernel(b: TraceBuilder, at: float, gpu: float, grid: int, tid: int) -> None:
    b.op("triton_per_fused_add_0", at, 40, tid=tid)
    begins = max(at + 25, b.free.get(7, 0.0))
    c = b.launch(at + 20, 10, name="cuLaunchKernel", tid=tid)
    b.kernel("triton_per_fused_add_0", begins, gpu, c, grid=[grid, 1, 1], block=[32, 1, 1])
    b.free[7] = begins + gpu


def program(
    parts: int = 3,
    *,
    nested: bool = True,
    gpu: float = 5,
    same_grid: bool = False,
    eager: bool = False,
    silence: float = 0,
    backward: bool = False,
) -> TraceBuilder:
    """Four steps: a compiled function in `parts` parts; per part a backward node."""
    b = TraceBuilder()
    for step in range(4):
        with b.step():
            seqs = [100 * step + i for i in range(parts)]
            starts = []
            for i, seq in enumerate(seqs):
                starts.append(b.clock.setdefault(MAIN, 0.0) + 20)
                part(b, i, gpu, seq=seq, grid=64 if same_grid else 64 + i)
                if i < parts - 1:
                    if eager:
                        b.call("aten::add", kernel=ADD, gpu=2, host=30)
                    b.clock[MAIN] += silence
            for i, start in enumerate(starts):
                end = b.clock[MAIN] - i if nested else start + 155
                b.op(f"Torch-Compiled Region: {i}/0", start, end - start)
            if backward:
                at = b.clock[MAIN] + 50
                for i, seq in reversed(list(enumerate(seqs))):
                    name = "autograd::engine::evaluate_function: CompiledFunctionBackward"
                    b.op(name, at, 200, tid=AUTOGRAD)
                    b.op("CompiledFunctionBackward", at + 5, 190, tid=AUTOGRAD, seq=seq, fwd_tid=1)
                    b.annotation(f"## Call CompiledFxGraph b{i} ##", at + 50, 130, tid=AUTOGRAD)
                    kernel(b, at + 90, gpu, 640 + i, AUTOGRAD)
                    at += 200
                b.clock[MAIN] = b.clock[AUTOGRAD] = at
    return b


def detect(b: TraceBuilder) -> Detection:
    return cmp.detect(Analysis(b.trace()), cmp.Config())


def finding(b: TraceBuilder) -> Finding:
    analysis = Analysis(b.trace())
    (found,) = price(analysis, cmp.detect(analysis, cmp.Config())).findings
    return found


def host_us(detection: Detection, which: str = "edits") -> float:
    """Host time that goes, us a step."""
    (draft,) = detection.drafts
    spans = getattr(draft, which).remove_host
    return float((spans[:, 2] - spans[:, 1]).sum()) / 4e3


def test_breaks_cost_what_is_between_the_parts_kernels() -> None:
    found = finding(program())
    assert found.evidence.counts["graph breaks a step"] == 2
    # From the end of one kernel's op (140) to the start of the next (180 + 100): twice 140 us.
    assert found.saving.step_ms == pytest.approx(0.54, abs=0.02)
    assert found.saving.ms_per_step == pytest.approx(0.28, abs=0.02)
    assert "fullgraph=True" in found.fixes[0].code
    detection = detect(program())
    assert host_us(detection) == pytest.approx(280)
    # At the low end Inductor's own code, up to 150 and from 220 on, stays: twice 70 us.
    assert host_us(detection, "pessimistic") == pytest.approx(140)


def test_kernels_over_the_same_grid_become_one() -> None:
    detection = detect(program(same_grid=True))
    (draft,) = detection.drafts
    # Two of the three ops of 40 us go as well, with their kernels, whose time the first one takes.
    assert host_us(detection) == pytest.approx(280 + 80)
    assert len(draft.edits.remove_gpu) == 4 * 2
    assert draft.edits.resize_ns.tolist() == [15_000] * 4


def test_the_gradients_parts_are_the_forwards() -> None:
    # Between two nodes: from a kernel's op (130) to the node's end (200), from a node's start to
    # its kernel's op (90).
    assert host_us(detect(program(backward=True))) == pytest.approx(280 + 2 * (70 + 90))


def test_eager_work_between_the_parts_stays() -> None:
    detection = detect(program(eager=True, same_grid=True))
    (draft,) = detection.drafts
    assert host_us(detection) == pytest.approx(280)
    assert host_us(detection, "optimistic") == pytest.approx(280 + 60)
    assert len(draft.edits.remove_gpu) == 0  # nothing fuses across it


def test_the_users_own_python_stays() -> None:
    """2 ms of silence at each break: no compiler takes it away."""
    detection = detect(program(silence=2_000))
    assert host_us(detection) == pytest.approx(280 - 20)


def test_functions_compiled_one_by_one_are_no_breaks() -> None:
    """A model, its loss, a second model: as many regions, none inside another."""
    assert detect(program(nested=False)) == Detection()


def test_one_region_forward_and_one_backward_is_no_break() -> None:
    assert detect(program(1, backward=True)) == Detection()


def test_breaks_behind_a_busy_gpu_cost_nothing() -> None:
    detection = detect(program(gpu=2_000))
    assert not detection.drafts
    assert "2 graph breaks a step" in detection.notes[0]


def test_unmarked_regions_are_undetermined() -> None:
    b = TraceBuilder()
    for step in range(3):
        with b.step():
            for i in range(4):
                b.clock.setdefault(MAIN, 0.0)
                part(b, i, 5, seq=10 * step + i, grid=64, fx=False)
    assert "does not mark compiled regions" in detect(b).undetermined[0].why


def test_a_break_in_one_step_of_many_is_no_finding() -> None:
    b = program(1)
    for i in range(2):
        b.op(f"Torch-Compiled Region: {7 + i}/0", 22 + i, 100 - 2 * i)
    assert not detect(b).drafts
