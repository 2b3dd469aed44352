"""The text report: fits, prints names literally, says cause, price and fix."""

from __future__ import annotations

import re

import pytest

from tests.report import samples
from tracekit.detectors.finding import Fix, Undetermined, Where
from tracekit.report import text
from tracekit.report.style import Style, columns

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_a_finding_gives_cause_price_and_fix() -> None:
    d = samples.diagnosis(findings=(samples.finding(),))
    out = text.render(d)
    assert "1  LCH001  launch-bound-region  high" in out
    assert "whole step, 10 launches" in out
    assert re.search(r"0\.80 \(0\.72-0\.88\) +80 % +0\.20$", out, re.M)
    assert "   fix  one CUDA graph over forward, backward and optimizer" in out
    assert "        with torch.cuda.graph(graph):\n            loss = step()\n" in out
    assert "(tracekit explain LCH001)" in out
    assert "Without LCH001: 1.00 -> 0.20 ms a step, as recorded with the profiler on." in out


def test_the_step_time_line_sums_to_the_step() -> None:
    out = text.render(samples.diagnosis())
    rows = re.findall(r"^ +([\d.]+) +\S+ %  (?:GPU|exposed|idle)", out, re.M)
    total = re.search(r"^ +([\d.]+) +ms, the whole step", out, re.M)
    assert total is not None
    assert sum(map(float, rows)) == pytest.approx(float(total[1]), abs=0.01 * len(rows))
    assert "3 steps (ProfilerStep#)" in out
    assert "complete" in out
    assert "elementwise" in out


def test_unprofiled_step_time_adds_a_column() -> None:
    out = text.render(samples.diagnosis(unprofiled_ms=0.5))
    assert out.splitlines()[1].startswith("0.50 ms a step without the profiler (1.")
    assert "unprofiled  recorded  of step" in out
    assert re.search(r"^ +0\.500 +1\.\d+ +ms, the whole step$", out, re.M)


def test_unprofiled_below_gpu_work_has_no_estimate() -> None:
    out = text.render(samples.diagnosis(unprofiled_ms=0.01))
    assert "unprofiled  recorded" not in out


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("color", [False, True])
def test_lines_fit(width: int, color: bool) -> None:
    long = samples.finding(
        insight="word " * 80,
        where=Where("in a_very_long_" + "name" * 40, file="/deep/" * 40 + "train.py", line=7),
    )
    d = samples.diagnosis(
        samples.host_bound("kernel_" * 60),
        (
            long,
            samples.finding("LAY001", 0.02),
            samples.finding("FUS001", 12345, 56789, name="unfused-elementwise-chain"),
        ),
        undetermined=(Undetermined("FUS001", "unfused-elementwise-chain", "no shapes " * 30),),
        notes=("a note " * 40,),
    )
    for line in text.render(d, Style(color=color, width=width)).splitlines():
        assert columns(ANSI.sub("", line)) <= width, line


def test_a_long_line_of_code_stays_code() -> None:
    code = (
        "    x = compute(a, b)"
        + " " * 40
        + "  # refilled every step\n"
        + "y = '  # "
        + "z" * 80
        + "'"
    )
    d = samples.diagnosis(findings=(samples.finding(fixes=(Fix("t", code, "a", "n"),)),))
    out = text.render(d, Style(width=80))
    assert "            # refilled every step\n            x = compute(a, b)\n" in out
    assert "        y = '  # " + "z" * 80 + "'\n" in out


def test_colour_changes_nothing_but_colour() -> None:
    d = samples.diagnosis(findings=(samples.finding(), samples.finding("LAY001", 0.005)))
    assert ANSI.sub("", text.render(d, Style(color=True))) == text.render(d, Style())


def test_names_are_neutralised() -> None:
    nasty = samples.finding(
        title=samples.NASTY,
        insight=samples.NASTY,
        where=Where(samples.NASTY, (samples.NASTY,), file=samples.NASTY),
    )
    out = text.render(samples.diagnosis(samples.host_bound(samples.NASTY), (nasty,)))
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "\u202e" not in out
    assert "[red]kernel[/red]" in out


def test_note_findings_are_short_and_the_bound_is_said() -> None:
    d = samples.diagnosis(findings=(samples.finding("LAY001", 0.002),))
    out = text.render(d)
    assert "No finding saves 1 % of the step or more." in out
    assert "launches" in out
    assert "torch.cuda.graph" not in out


def test_no_finding_says_so_and_what_the_step_is_bound_by() -> None:
    out = " ".join(text.render(samples.diagnosis()).split())
    assert "No finding. The GPU is idle 90 % of the step; the largest part of that is" in out


def test_findings_about_the_recording_have_no_price() -> None:
    about = samples.finding(
        "TRC006", 0.0, insight="The profiler slows the host.", action="Time it."
    )
    out = text.render(samples.diagnosis(findings=(samples.finding(), about)))
    assert "About the recording:\n  TRC006 launch-bound-region\n    The profiler slows" in out
    assert "2  TRC006" not in out
    assert "saves ms" not in text.render(samples.diagnosis(findings=(about,)))


def test_cpu_only() -> None:
    why = Undetermined("LCH001", "launch-bound-region", "the trace holds no GPU work")
    out = text.render(samples.diagnosis(samples.cpu_only(), undetermined=(why,)))
    assert "no GPU work" in out
    assert "0.50 ms a step, as recorded" in out
    assert "GPU busy" not in out
    assert "Could not judge:\n  LCH001 launch-bound-region: the trace holds no GPU work" in out


def test_several_devices() -> None:
    out = text.render(samples.diagnosis(samples.two_devices()))
    assert "NVIDIA H200 (device 0, 1 more)" in out


def test_damage_is_told() -> None:
    d = samples.diagnosis()
    from tracekit.trace.model import Damage

    d.trace.health.events_skipped = 12
    d.trace.health.skipped_by_cause["without a time"] = 12
    d.trace.health.damage += [Damage(k, "broken", 3) for k in range(5)]
    out = text.render(d)
    assert "degraded" in out
    assert "12 events of the file could not be read (12 without a time)." in out
    assert "Damage at byte 0: broken." in out
    assert "2 more damaged places" in out
