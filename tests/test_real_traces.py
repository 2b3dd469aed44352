"""Real traces, end to end, against an independent count and against what is known of them.

Runs on the committed fixtures and the demo trace, and on every file of `../shared/traces` where
that folder is beside the checkout.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tracekit
from tests import oracle
from tests.test_oracle import compare
from tracekit import demo
from tracekit.analysis.intervals import covered
from tracekit.detectors.finding import Finding
from tracekit.diagnosis import Diagnosis
from tracekit.report import json as json_report
from tracekit.report import markdown as markdown_report
from tracekit.report import text as text_report

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures" / "traces"
SHARED = HERE.parents[1] / "shared" / "traces"
DEMO = Path(demo.__file__).parent


def _files() -> list[Path]:
    """Every file once: some of the committed ones are copies of shared ones."""
    found: dict[bytes, Path] = {}
    for folder in (FIXTURES, DEMO, SHARED):
        for path in sorted(folder.rglob("*.json*")):
            found.setdefault(path.read_bytes(), path)
    return list(found.values())


def _name(path: Path) -> str:
    return "/".join(path.parts[-2:])


REFUSED = [p for p in _files() if p.name.startswith("not_a_trace")]
READABLE = [p for p in _files() if p not in REFUSED]


@dataclass(frozen=True)
class Case:
    """One trace, diagnosed and counted."""

    path: Path
    diagnosis: Diagnosis
    expected: oracle.Oracle


# Parametrised tests of one module-scoped case run together, so that one trace is held at a time.
@pytest.fixture(scope="module", params=READABLE, ids=_name)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    path: Path = request.param
    yield Case(path, tracekit.diagnose(path), oracle.load(path))


@pytest.mark.parametrize("path", REFUSED, ids=_name)
def test_what_is_no_trace_is_refused_in_one_sentence(path: Path) -> None:
    with pytest.raises(tracekit.TraceError) as refusal:
        tracekit.diagnose(path)
    sentence = str(refusal.value)
    assert path.name in sentence
    assert "\n" not in sentence
    assert "Traceback" not in sentence


def test_steps_busy_idle_and_streams_agree_with_the_oracle(case: Case) -> None:
    """Every step's window, to the nanosecond; the breakdown sums to the wall time exactly."""
    compare(case.diagnosis.analysis, case.expected)


def test_the_whole_gpu_span_agrees_with_the_oracle(case: Case) -> None:
    if not case.expected.work:
        assert case.diagnosis.analysis.device == -1
        return
    analysis, t0 = case.diagnosis.analysis, case.diagnosis.trace.t0_ns
    a, b = case.expected.span
    ours = [_within(x, a - t0, b - t0) for x in _time_line(case.diagnosis)]
    split = case.expected.breakdown(analysis.device, a, b)
    assert ours == [*split.values(), case.expected.busy(analysis.device, a, b)]
    assert sum(split.values()) == ours[-1]
    assert b - a - ours[-1] == case.expected.idle(analysis.device, a, b)


def test_nothing_is_lost_and_nothing_degraded(case: Case) -> None:
    """None of these files is damaged: every event of the GPU is in the table, none skipped."""
    health = case.diagnosis.trace.health
    assert len(case.diagnosis.trace.table("gpu")) >= len(case.expected.work)
    assert (health.events_skipped, health.damage, health.tolerant) == (0, [], False)
    assert not case.diagnosis.degraded


def test_every_report_can_be_written(case: Case) -> None:
    d = case.diagnosis
    document = json.loads(json_report.render(d))
    assert document["health"]["status"] == "complete"
    assert [f["code"] for f in document["findings"]] == [f.code for f in d.findings]
    assert markdown_report.render(d).strip()
    assert all(len(line) <= 100 for line in text_report.render(d).splitlines())


def test_savings_are_possible(case: Case) -> None:
    """Between nothing and the step, inside their own range, the costliest first."""
    d = case.diagnosis
    saved = [f.saving.ms_per_step for f in d.findings]
    assert all(later <= first + 1e-3 for first, later in pairwise(saved))
    for finding in d.findings:
        s = finding.saving
        assert 0 <= s.low <= s.ms_per_step + 1e-9 <= s.high + 2e-9 <= s.step_ms + 3e-9
    if d.combined_saving is not None:
        assert d.combined_saving.ms_per_step <= d.combined_saving.step_ms


def test_trace_health_comes_last(case: Case) -> None:
    health = [f.code.startswith("TRC") for f in case.diagnosis.findings]
    assert health == sorted(health)


# What is known of single files ------------------------------------------------------------------


def shared(name: str) -> Path:
    """A file of ../shared/traces; the test is skipped where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip("../shared/traces is not beside the checkout")
    return path


@lru_cache(maxsize=1)
def diagnosed(path: Path, unprofiled_ms: float | None = None) -> Diagnosis:
    return tracekit.diagnose(path, unprofiled_ms=unprofiled_ms)


def of(d: Diagnosis, code: str) -> list[Finding]:
    return [f for f in d.findings if f.code == code]


def test_two_steps_counted_on_paper() -> None:
    """The hand-made file, whose every number can be checked with a pencil.

    us: carry-in 20-120 | step 0 from its end: GEMM 150-250, all-reduce 200-300 (50 under the
    GEMM), HtoD 280-340 (20 under the all-reduce), an orphan 360-370, a memset 390-400 | step 1:
    GEMMs 420-500 and 480-550 on two streams.
    """
    d = tracekit.diagnose(FIXTURES / "hand_two_steps_int_us.json")
    parts = d.analysis.accounting.breakdown_ns
    assert d.steps.wall_ns.tolist() == [280_000, 150_000]
    assert d.steps.median_ns == 215_000
    assert (d.steps.carry_in, d.steps.orphans) == (1, 1)
    assert parts["computing"].tolist() == [110_000, 130_000]
    assert parts["communication"].tolist() == [50_000, 0]
    assert parts["copies"].tolist() == [50_000, 0]
    assert d.analysis.accounting.streams_ns == {
        (0, 7): pytest.approx([120_000, 80_000]),
        (0, 17): pytest.approx([100_000, 0]),
        (0, 20): pytest.approx([60_000, 70_000]),
    }


@pytest.mark.parametrize(
    "path",
    [FIXTURES / "h200_ddpm32m_rung5.json.gz", SHARED / "h200/ddpm32m_rung5.json.gz"],
    ids=_name,
)
def test_graphed_step(path: Path) -> None:
    """20.5 ms a step, 19.8 of it GPU work, not launch-bound, its orphans counted."""
    if not path.exists():
        pytest.skip("../shared/traces is not beside the checkout")
    d = diagnosed(path)
    assert (len(d.steps), d.steps.source) == (3, "ProfilerStep#")
    assert d.steps.median_ns / 1e6 == pytest.approx(20.5, abs=0.05)
    assert np.median(d.analysis.accounting.busy_ns) / 1e6 == pytest.approx(19.8, abs=0.1)
    assert not of(d, "LCH001")
    assert d.steps.orphans == 2114
    # the other way to read it, each CPU mark as its step, would give 1.7 to 1.9 ms
    assert ((d.steps.mark_end - d.steps.mark_start) < 2_000_000).all()


def test_41m_graphed_step() -> None:
    d = diagnosed(shared("h200/ddpm_rung5_cuda_graph.json.gz"))
    # 27.57 ms measured without the profiler; GPU-bound steps are recorded nearly as long
    assert d.steps.median_ns / 1e6 == pytest.approx(27.57, rel=0.03)
    assert not of(d, "LCH001")


def test_compiled_step_is_launch_bound() -> None:
    """85 ms a step of which 26 is GPU work: a graph makes it about as long as that."""
    d = diagnosed(shared("h200/ddpm_rung0_compile.json.gz"), 85)
    first = d.findings[0]
    assert first.code == "LCH001"
    assert first.saving.base == "unprofiled"
    assert 24 <= first.saving.then_ms <= 32
    layout = of(d, "LAY001")
    assert layout
    assert max(f.saving.percent_of_step for f in layout) < 3
    assert layout[0].evidence.counts["GPU ms a step"] == pytest.approx(5.4, abs=0.1)
    assert np.median(d.analysis.accounting.busy_ns) / 1e6 == pytest.approx(26.05, abs=0.05)


def test_eager_step_is_launch_bound() -> None:
    d = diagnosed(shared("h200/ddpm_eager.json.gz"))
    assert d.findings[0].code == "LCH001"
    share = d.analysis.accounting.busy_ns.sum() / d.steps.wall_ns.sum()
    assert share == pytest.approx(0.24, abs=0.01)


def test_hidden_layout_copies() -> None:
    """3.3 ms a step of copies between memory formats inside aten::convolution_backward."""
    d = diagnosed(shared("h200/ddpm_rung3_channels_last_fused_adamw.json.gz"))
    assert d.findings[0].code == "LCH001"
    hidden = [f for f in of(d, "LAY001") if "hidden" in f.title]
    assert len(hidden) == 1
    assert hidden[0].evidence.counts["GPU ms a step"] == pytest.approx(3.3, abs=0.1)
    assert any("aten::convolution_backward" in line for line in hidden[0].evidence.lines)


def test_piecewise_graph_is_not_launch_bound() -> None:
    """Replays full of small kernels on a GPU that is busy 99.8 % of the time."""
    path = shared("public/mi_vllm_piecewise_graph.json.gz")
    d = diagnosed(path)
    assert not [f for f in of(d, "LCH001") if f.saving.percent_of_step > 5]
    expected = oracle.load(path)
    a, b = expected.span
    assert expected.busy(d.analysis.device, a, b) / (b - a) == pytest.approx(0.998, abs=0.001)


def test_small_bert_is_launch_bound() -> None:
    d = diagnosed(shared("public/mi300_bert_small.json.gz"))
    assert d.findings[0].code == "LCH001"
    assert d.findings[0].severity == "high"


def test_orphans_are_counted_not_guessed() -> None:
    d = diagnosed(shared("public/mi300_resnet_orphans.json.gz"))
    assert len(d.trace.table("gpu")) == 3653
    assert d.steps.orphans == 968
    launch = d.analysis.links.gpu_launch
    assert (d.steps.gpu_step[launch < 0] == -1).all()


def test_exposed_communication_and_host_items() -> None:
    """16 ranks of A100: NCCL, copies, and 945 aten::item that wait for nothing.

    Its exposed communication is often quoted as 227 ms of the 1231 ms GPU span. That is the
    sum of two things: the NCCL kernels run 187.9 ms in all, 185.3 of them not under a computing
    kernel, and 42.1 ms of copies run under neither; 185.3 + 42.1 = 227.4.
    """
    path = shared("public/negative_queue_rank0.json.gz")
    d, expected = diagnosed(path), oracle.load(path)
    device, (a, b) = d.analysis.device, expected.span
    assert (b - a) / 1e6 == pytest.approx(1231, abs=1)
    assert expected.running(device, oracle.COMMUNICATION, a, b) / 1e6 == pytest.approx(
        187.9, abs=0.05
    )
    t0 = d.trace.t0_ns
    _, talking, copying, _ = (_within(x, a - t0, b - t0) for x in _time_line(d))
    assert talking / 1e6 == pytest.approx(185.3, abs=0.05)
    assert (talking + copying) / 1e6 == pytest.approx(227.4, abs=0.05)
    assert talking == expected.uncovered(device, oracle.COMMUNICATION, a, b)

    items = [e for e in expected.events if e["name"] == "aten::item"]
    assert len(items) == 945
    calls_of: dict[object, list[int]] = defaultdict(list)
    for event in expected.events:
        if event["cat"] == "cuda_runtime":
            calls_of[event["tid"]].append(event["ts"])
    for item in items:
        calls = sorted(calls_of[item["tid"]])
        first = bisect_left(calls, item["ts"])
        assert first == len(calls) or calls[first] >= item["ts"] + item["dur"]
    assert any("945 of 945 aten::item calls" in note for note in d.notes)


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("h200/ddpm32m_rung5.json.gz", []),
        ("h200/ddpm32m_rung0.json.gz", ["TRC006"]),
        ("public/mi_vllm_piecewise_graph.json.gz", []),
        ("public/mi300_resnet_orphans.json.gz", []),
        ("public/mi_sglang_decode.json.gz", ["TRC002"]),
        ("public/negative_queue_rank0.json.gz", ["TRC002"]),
        ("public/cpu_only_rank34.json.gz", ["TRC003"]),
    ],
)
def test_health_of_real_recordings(name: str, codes: list[str]) -> None:
    d = tracekit.diagnose(shared(name), select=["TRC"])
    assert [f.code for f in d.findings] == codes


def _time_line(d: Diagnosis) -> tuple[object, ...]:
    busy = d.analysis.busy
    return busy.computing, busy.communication, busy.copies, busy.busy


def _within(intervals: object, start: int, end: int) -> int:
    return int(covered(intervals, np.array([start]), np.array([end]))[0])
