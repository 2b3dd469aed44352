"""The markdown report: complete, and names from the trace stay text."""

from __future__ import annotations

from tests.report import samples
from tracekit.detectors.finding import Fix, Undetermined, Where
from tracekit.report import markdown


def test_it_holds_what_a_reviewer_needs() -> None:
    d = samples.diagnosis(
        findings=(samples.finding(),),
        undetermined=(Undetermined("FUS001", "unfused-elementwise-chain", "no shapes"),),
        notes=("host-bound numbers are upper bounds",),
    )
    out = markdown.render(d)
    assert "| 1 | LCH001 launch-bound-region | high | whole step, 10 launches |" in out
    assert "```python\ngraph = torch.cuda.CUDAGraph()" in out
    assert "**Together (LCH001): 1.00 → 0.20 ms a step** (recorded)." in out
    assert "- FUS001 unfused-elementwise-chain: no shapes" in out
    assert "- Host-bound numbers are upper bounds." in out
    assert "| GPU computing |" in out


def test_no_finding() -> None:
    assert "No finding. The GPU is idle" in markdown.render(samples.diagnosis())
    assert markdown.render(samples.diagnosis(samples.cpu_only())).count("|") == 0


def test_findings_about_the_recording_have_no_price() -> None:
    about = samples.finding("TRC006", 0.0, insight="The profiler slows the host.")
    out = markdown.render(samples.diagnosis(findings=(about,)))
    assert "- TRC006 launch-bound-region: The profiler slows the host." in out
    assert "### Findings" not in out


def test_names_take_no_effect() -> None:
    nasty = samples.finding(where=Where(samples.NASTY), insight=samples.NASTY)
    out = markdown.render(samples.diagnosis(findings=(nasty,)))
    row = next(line for line in out.splitlines() if line.startswith("| 1 |"))
    assert row.replace("\\|", "").count("|") == 8
    assert "\x1b" not in out
    assert "<b>" not in out
    assert "@all" not in out


def test_escaping() -> None:
    assert markdown.escape("1. a # b") == "1\\. a # b"
    assert markdown.escape("- a*b_c|d") == "\\- a\\*b\\_c\\|d"
    assert markdown.escape("[x](y) <i> @me") == "\\[x\\](y) &lt;i> &#64;me".replace("i>", "i\\>")


def test_no_code_closes_its_fence() -> None:
    code = "print('''```''')\n```\n# after"
    fenced = markdown.fence(code)
    assert fenced.startswith("````python\n")
    assert fenced.endswith("\n````")
    fix = Fix("t", code, "a", "n")
    assert fenced in markdown.render(samples.diagnosis(findings=(samples.finding(fixes=(fix,)),)))
