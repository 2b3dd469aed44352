"""What counts as compilation, by the names of real recordings."""

from __future__ import annotations

import pytest

from tests.builders import MUL, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.analysis.compilation import KINDS, compile_events, compiling

COMPILE = "_compile.compile_inner (dynamo_timed)"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (COMPILE, "compile"),
        ("async_compile.wait (dynamo_timed)", "compile"),
        ("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "autotune"),
        ("TorchDynamo Cache Lookup", None),
        ("Torch-Compiled Region: 0/1", None),
        ("## Call CompiledFxGraph fabc ##", None),
        ("CompiledFunction", None),
        ("Optimizer.step#AdamW.step", None),
    ],
)
def test_annotations(name: str, kind: str | None) -> None:
    b = TraceBuilder()
    b.annotation(name, 0, 100)
    assert _kinds(b) == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch/_dynamo/convert_frame.py(812): _compile", "compile"),
        ("torch\\_dynamo\\convert_frame.py(812): _compile", "compile"),
        ("torch/_inductor/compile_fx.py(690): compile_fx_inner", "compile"),
        ("triton/compiler/compiler.py(234): compile", "compile"),
        ("torch/_inductor/runtime/triton_heuristics.py(900): benchmark_all_configs", "autotune"),
        ("triton/runtime/autotuner.py(138): _bench", "autotune"),
        ("triton/testing.py(120): do_bench", "autotune"),
        # at every step of a compiled model
        ("torch/_inductor/compile_fx.py(934): run", None),
        ("torch/_inductor/output_code.py(460): __call__", None),
        ("torch/_inductor/runtime/triton_heuristics.py(1100): run", None),
        ("triton/runtime/autotuner.py(230): run", None),
        ("/tmp/torchinductor_me/ab/cabc.py(120): call", None),
        ("torch/_dynamo/eval_frame.py(738): _fn", None),
        ("transformers/utils/import_utils.py(793): is_torchdynamo_compiling", None),
    ],
)
def test_python_frames(name: str, kind: str | None) -> None:
    b = TraceBuilder()
    b.python(name, 0, 100)
    assert _kinds(b) == ([kind] if kind else [])


@pytest.mark.parametrize(("name", "found"), [("Lazy Function Loading", 1), ("Buffer Flush", 0)])
def test_overhead_rows(name: str, found: int) -> None:
    b = TraceBuilder()
    b.event("overhead", name, 0, 50, pid=-1, tid=0)
    assert _kinds(b) == ["module load"] * found


def test_nested_events_are_one_stretch() -> None:
    b = TraceBuilder()
    b.annotation(COMPILE, 0, 1000)
    b.python("torch/_dynamo/convert_frame.py(812): _compile", 100, 500)
    b.launch(2000, 300, name="cuModuleLoadData")
    start, end = compiling(b.trace())
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == [
        (0, 1_000_000),
        (2_000_000, 2_300_000),
    ]


def test_a_compiled_model_with_stacks_is_not_compiling() -> None:
    """Frames of Inductor's own run time surround every kernel: the gaps are still launches."""
    b = TraceBuilder()
    with b.step():
        for _ in range(30):
            b.call("aten::mul", kernel=MUL, gpu=2, host=40)
    b.python("torch/_inductor/output_code.py(460): __call__", 0, 1200)
    b.python("/tmp/torchinductor_me/ab/cabc.py(120): call", 1, 1198)
    gaps = Analysis(b.trace()).gaps
    assert not gaps.of("compilation").any()
    assert gaps.of("launch").sum() > 20


def test_a_gap_in_which_the_host_compiled() -> None:
    b = TraceBuilder()
    with b.step():
        b.call("aten::mul", kernel=MUL)
        b.annotation(COMPILE, 12, 900)
        b.clock[100] = 950
        b.call("aten::mul", kernel=MUL)
    gaps = Analysis(b.trace()).gaps
    assert (gaps.end - gaps.start)[gaps.of("compilation")].max() > 800_000


def _kinds(b: TraceBuilder) -> list[str]:
    b.op("aten::mul", 0, 10)
    return [KINDS[k] for k in compile_events(b.trace()).kind]
