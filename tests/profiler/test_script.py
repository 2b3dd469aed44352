"""Programs that are recorded without an edit: they must not notice."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.profiler.conftest import (
    MODEL,
    SMALL,
    Record,
    environment,
    load,
    marks,
    python,
    tracekit,
)
from tracekit.profiler import export
from tracekit.profiler.errors import RecordError
from tracekit.profiler.plan import Plan
from tracekit.profiler.runner import load_module, load_script
from tracekit.profiler.script import profile_script

TRAIN = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
"""
)

RESULTS = (
    """
import hashlib, os, random, sys
os.environ["TORCH_LOGS_SEEN"] = str("torch" in sys.modules)
"""
    + TRAIN
    + """
if __name__ == "__main__":
    train(25)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), torch.rand(1).item(), sys.argv, __file__)
    print(sys.path[0], sys.modules["__main__"].model is model, __spec__, __package__)
    print(os.environ["TORCH_LOGS_SEEN"], torch.are_deterministic_algorithms_enabled())
    sys.exit(7)
"""
)


def test_the_results_are_those_of_the_script_alone(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(RESULTS)
    alone = python("sub/train.py", "--lr", "1", cwd=tmp_path)
    recorded = tracekit("profile", "-o", "out", "sub/train.py", "--", "--lr", "1", cwd=tmp_path)
    assert alone.returncode == recorded.returncode == 7
    assert alone.stdout == recorded.stdout
    manifest = load(tmp_path / "out" / "trace.json.gz")["tracekit"]
    assert manifest["command"] == [
        "tracekit", "profile", "-o", "out", "sub/train.py", "--", "--lr", "1",
    ]  # fmt: skip
    assert manifest["complete"]


@pytest.mark.parametrize(
    ("ending", "status"),
    [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('sorry')", 1), ("exit(2)", 2)],
)
def test_exit_codes_pass_through(record_script: Record, ending: str, status: int) -> None:
    outcome = record_script(TRAIN + "train(10)\n" + ending)
    assert outcome.status == status
    assert outcome.recording is not None
    assert outcome.recording.manifest.complete


def test_an_exception_is_shown_as_python_shows_it(
    tmp_path: Path, record_script: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = record_script(TRAIN + "def f():\n    raise ValueError('mine')\ntrain(7)\nf()\n")
    assert outcome.status == 1
    shown = capsys.readouterr().err
    assert shown.rstrip().endswith("ValueError: mine")
    assert str(tmp_path / "train.py") in shown
    assert "tracekit/profiler" not in shown
    trace = load(tmp_path / "out" / "trace.json.gz")
    assert marks(trace) == ["ProfilerStep#1", "Interrupted step#2"]
    assert "ValueError" in trace["tracekit"]["incomplete_why"]


def test_a_hook_of_the_script_sees_its_own_frames_only(
    tmp_path: Path, record_script: Record, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    hook = "import sys\nsys.excepthook = lambda *a: sys.__excepthook__(*a)\n1 / 0\n"
    record_script(hook)
    shown = capsys.readouterr().err
    assert str(tmp_path / "train.py") in shown
    assert "tracekit/profiler" not in shown


@pytest.mark.parametrize(
    ("body", "end"), [("import nothing_of_that_name", "ModuleNotFoundError"),
                      ("raise SystemExit(2)", "exit status 2")],
)  # fmt: skip
def test_a_script_that_ends_before_its_first_step(
    record_script: Record, body: str, end: str
) -> None:
    trouble = record_script(body).trouble
    assert trouble == (
        f"nothing was recorded: the program ended with {end} before its first optimizer step"
    )


def test_a_script_that_changes_its_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        TRAIN + "import os\nos.mkdir('run')\nos.chdir('run')\ntrain(9)\n"
    )
    outcome = profile_script(load_script("train.py"), [], out="out", plan=SMALL)
    assert outcome.trouble is None
    assert (tmp_path / "out" / "trace.json.gz").is_file()
    assert outcome.recording is not None
    assert str(tmp_path / "out" / "trace.json.gz") in str(outcome.recording)


def test_ctrl_c_inside_the_script(tmp_path: Path, record_script: Record) -> None:
    outcome = record_script(TRAIN + "train(7)\nraise KeyboardInterrupt\n")
    assert outcome.status == 130
    manifest = load(tmp_path / "out" / "trace.json.gz")["tracekit"]
    assert (manifest["complete"], manifest["steps"]) == (False, 1)


def test_a_real_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        TRAIN + "import time\ntrain(40)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tracekit", "profile", "--steps", "1000", str(script)],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors
    manifest = load(tmp_path / "traces" / "trace.json.gz")["tracekit"]
    assert (manifest["complete"], manifest["steps"]) == (False, 19)
    assert "Ctrl-C" in manifest["incomplete_why"]


def test_a_script_that_never_steps(record_script: Record, tmp_path: Path) -> None:
    outcome = record_script("import torch; print('done')")
    assert (outcome.status, outcome.recording) == (0, None)
    assert outcome.trouble is not None
    assert "made no optimizer step" in outcome.trouble
    assert "--step-on forward" in outcome.trouble
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("steps", [1, 4, 6])
def test_a_script_that_steps_too_little(record_script: Record, steps: int) -> None:
    outcome = record_script(TRAIN + f"train({steps})")
    assert outcome.recording is None
    made = "1 step" if steps == 1 else f"{steps} steps"
    assert f"the program made {made}" in str(outcome.trouble)


def test_a_new_optimizer_every_step(record_script: Record) -> None:
    body = MODEL + (
        "for _ in range(30):\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    loss().backward()\n"
        "    optimizer.step()\n"
    )
    trouble = str(record_script(body).trouble)
    assert "of 30 optimizer steps no object made more than" in trouble
    assert "with tracekit.profile()" in trouble


def test_stop_after_recording(record_script: Record, capsys: pytest.CaptureFixture[str]) -> None:
    body = TRAIN + "try:\n    train(10**9)\nexcept Exception:\n    print('caught')\n"
    body += "finally:\n    print('cleaned up')\nprint('went on')\n"
    outcome = record_script(body, stop_after_recording=True)
    assert outcome.status == 0
    assert outcome.recording is not None
    assert capsys.readouterr().out == "cleaned up\n"


def test_a_module_with_a_relative_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "recorded_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(TRAIN)
    (package / "job.py").write_text(
        "import sys\nfrom .parts import train\n"
        "assert (__name__, __package__) == ('__main__', 'recorded_package')\n"
        "assert __spec__.name == 'recorded_package.job'\n"
        "assert sys.argv == [__file__, '-x'], sys.argv\ntrain(10)\n"
    )
    (package / "__main__.py").write_text("from .parts import train\ntrain(10)\nraise SystemExit(4)")
    monkeypatch.chdir(tmp_path)
    for name, arguments, status in [("job", ["-x"], 0), ("", [], 4)]:
        program = load_module(f"recorded_package.{name}".rstrip("."))
        outcome = profile_script(program, arguments, out=tmp_path / f"out{name}", plan=SMALL)
        assert outcome.status == status
        assert outcome.recording is not None


@pytest.mark.parametrize("name", ["no_such_module", "json.nothing", "os.path.x.y", ""])
def test_a_module_that_is_not_there(name: str) -> None:
    with pytest.raises(RecordError) as caught:
        load_module(name)
    assert caught.value.usage


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such file"):
        load_script(str(tmp_path / "nowhere.py"))
    with pytest.raises(RecordError, match="is a directory"):
        load_script(str(tmp_path))
    with pytest.raises(RecordError, match="name too long"):
        load_script("x" * 300)
    with pytest.raises(RecordError, match="name of the script is empty"):
        load_script("")


LOADER = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.full((4,), float(index))
def main():
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    total = 0.0
    for context in ("fork", "spawn"):
        for batch in DataLoader(Data(), 4, num_workers=2, multiprocessing_context=context):
            model(batch).sum().backward()
            optimizer.step()
            total += batch.sum().item()
    print(total)
if __name__ == "__main__":
    main()
"""


def test_loader_workers_record_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOADER)
    done = tracekit("profile", "--wait", "2", "--measure", "2", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "2208.0\n"), done.stderr
    assert sorted(p.name for p in (tmp_path / "traces").iterdir()) == [
        "manifest.json", "trace.json.gz",
    ]  # fmt: skip
    assert done.stderr.count("tracekit: recorded") == 1


def test_a_forked_child_that_trains_records_nothing(tmp_path: Path, record_script: Record) -> None:
    body = TRAIN + (
        "import os\nchild = os.fork()\n"
        "if child == 0:\n    train(20)\n    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert not os.path.exists(sys.argv[1])\ntrain(10)\n"
    )
    outcome = record_script(body, str(tmp_path / "out" / "trace.json.gz"))
    assert (outcome.status, outcome.trouble) == (0, None)


@pytest.mark.parametrize(
    ("ending", "status"), [("", 0), ("sys.exit(5)", 5), ("raise ValueError", 1)]
)
def test_a_forked_child_that_runs_to_the_end(tmp_path: Path, ending: str, status: int) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\nchild = os.fork()\n"
        f"if child == 0:\n    pass\n    {ending}\n"
        "else:\n    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = tracekit("profile", "train.py", cwd=tmp_path)
    assert done.stdout == f"{status}\n"
    assert done.stderr.count("nothing was recorded") == 1


def test_a_script_that_runs_torch_profiler_itself(
    record_script: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    body = TRAIN + (
        "from torch.profiler import ProfilerActivity, profile\n"
        "with profile(activities=[ProfilerActivity.CPU]) as p:\n    train(12)\n"
        "print(len(p.key_averages()) > 3)\n"
    )
    outcome = record_script(body)
    assert (outcome.status, outcome.recording) == (0, None)
    assert "runs torch.profiler itself" in str(outcome.trouble)
    assert capsys.readouterr().out == "True\n"


def test_a_disk_that_fills_up_does_not_stop_the_script(
    record_script: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "_rewritten", full)
    outcome = record_script(TRAIN + "train(20)\nprint('trained')\n")
    assert (outcome.status, outcome.recording) == (0, None)
    assert "no space left on device" in str(outcome.trouble)
    assert capsys.readouterr().out == "trained\n"


DISTRIBUTED = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_two_ranks_write_two_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DISTRIBUTED)
    done = python(
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
        "-m", "tracekit", "profile", "--wait", "2", "--measure", "3", "train.py",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        trace = load(tmp_path / "traces" / f"trace-rank{rank}.json.gz")
        assert len(marks(trace)) == 3
        assert (trace["tracekit"]["rank"], trace["tracekit"]["world_size"]) == (rank, 2)
        assert (tmp_path / "traces" / f"manifest-rank{rank}.json").exists()


def test_the_plan_counts_every_step() -> None:
    assert Plan(2, 3, 1, 2).total == 8
