"""`tracekit profile` as a command: its arguments, exit status, and what it imports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.profiler.conftest import MODEL, load, marks, python
from tracekit.commands.profile import command

SCRIPT = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[2])):
    loss().backward()
    optimizer.step()
print(sys.argv[1:])
"""
)
FEW = ["--wait", "1", "--measure", "1", "--steps", "2"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        [*FEW, "train.py", "--", "--steps", "9", "--", "-m"],
        ["train.py", *FEW, "--", "--steps", "9", "--", "-m"],
        [*FEW, "-m", "train", "--", "--steps", "9", "--", "-m"],
    ],
)
def test_arguments_after_the_dashes_are_the_scripts(script: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(command, arguments)
    sys.modules.pop("train", None)
    assert result.exit_code == 0, result.output
    assert result.stdout == "['--steps', '9', '--', '-m']\n"
    trace = load(script.parent / "traces" / "trace.json.gz")
    assert len(marks(trace)) == 2


def test_a_recorded_folder_is_diagnosed(script: Path) -> None:
    from tracekit.commands.diagnose import command as diagnose

    for out in ("out", "out/b.json"):
        recorded = CliRunner().invoke(command, [*FEW, "train.py", "-o", out, "--", "x", "9"])
        assert recorded.exit_code == 0, recorded.output
    result = CliRunner().invoke(diagnose, ["out", "--format", "json"], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert result.stderr == ""
    assert len(json.loads(result.stdout)["reports"]) == 2


def test_a_byte_that_is_not_utf8_leaves_the_trace_whole(script: Path) -> None:
    arguments = [*FEW, "train.py", "--", "\udcff", "9"]
    done = python("-m", "tracekit", "profile", *arguments, cwd=script.parent)
    assert done.returncode == 0, done.stderr
    report = python("-m", "tracekit", "diagnose", "traces/trace.json.gz", cwd=script.parent)
    assert "· complete\n" in report.stdout


def test_too_few_steps_exit_1_and_say_what_to_change(script: Path) -> None:
    result = CliRunner().invoke(command, ["train.py", "--", "x", "5"])
    assert result.exit_code == 1
    assert "made 5 steps" in result.stderr
    assert "--wait" in result.stderr


def test_the_options_reach_the_recording(script: Path) -> None:
    out = script.parent / "mine.json"
    options = ["--no-shapes", "--stacks", "--memory", "-o", str(out)]
    result = CliRunner().invoke(command, [*FEW, *options, "train.py", "--", "x", "9"])
    assert result.exit_code == 0, result.output
    manifest = load(out)["tracekit"]
    assert manifest["options"] == {
        "record_shapes": False, "with_stack": True, "profile_memory": True,
    }  # fmt: skip
    assert json.loads((script.parent / "mine.manifest.json").read_text()) == manifest


def test_a_script_with_a_syntax_error(script: Path) -> None:
    script.write_text("def f(:\n")
    result = CliRunner().invoke(command, ["train.py"])
    assert result.exit_code == 1
    assert "SyntaxError" in result.stderr
    assert "tracekit/profiler" not in result.stderr


def test_importing_the_recorder_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, tracekit.profiler, tracekit.commands.profile, tracekit.profiler.script\n"
        "import tracekit.profiler.rung\n"
        "print([m for m in ('torch', 'numpy', 'rich', 'msgspec', 'pandas') if m in sys.modules])"
    )
    assert python("-c", code, cwd=tmp_path).stdout == "[]\n"


def test_the_top_level_name() -> None:
    import tracekit
    from tracekit import profiler

    assert tracekit.profile is profiler.profile
