"""Where the steps of a program end: optimizers of every kind, and calls of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profiler.conftest import MODEL, SMALL, Record, count, load, marks
from tracekit.profiler.choose import STALE, Largest, Least
from tracekit.profiler.plan import Plan

SGD = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
"""
)

LBFGS = (
    MODEL
    + """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad()
    value = loss()
    value.backward()
    return value
for _ in range(12):
    optimizer.step(closure)
"""
)

SUPER = (
    MODEL
    + """
class Mine(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
optimizer = Mine(model.parameters(), lr=0.1)
for _ in range(12):
    loss().backward()
    optimizer.step()
"""
)

WRAPPED = (
    MODEL
    + """
class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner
    def step(self, closure=None):
        self.inner.step()
        self.inner.step()
optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(12):
    loss().backward()
    optimizer.step()
"""
)

SCALER = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for i in range(16):
    optimizer.zero_grad()
    value = loss()
    if i in (1, 4, 9):
        value = value * float("inf")
    scaler.scale(value).backward()
    scaler.step(optimizer)
    scaler.update()
print("made", 16 - 3)
"""
)

FAILING = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def bad():
    raise ZeroDivisionError
for i in range(14):
    optimizer.zero_grad()
    loss().backward()
    try:
        optimizer.step(bad if i in (1, 5, 8) else None)
    except ZeroDivisionError:
        pass
"""
)

SCHEDULED = (
    MODEL
    + """
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
for _ in range(12):
    loss().backward()
    optimizer.step()
    schedule.step()
"""
)

COMPILED_BESIDE = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.nn.Parameter(torch.ones(3))
inner = torch.optim.SGD([other], lr=0.1)
@torch.compile(backend="eager")
def update():
    inner.step()
for _ in range(12):
    loss().backward()
    other.sum().backward()
    update()
    optimizer.step()
"""
)


@pytest.mark.parametrize(
    "body", [SGD, LBFGS, SUPER, WRAPPED, SCALER, FAILING, SCHEDULED],
    ids=["sgd", "lbfgs", "super", "wrapped", "scaler", "failing", "scheduled"],
)  # fmt: skip
def test_one_step_for_each_outermost_step(tmp_path: Path, record_script: Record, body: str) -> None:
    outcome = record_script(body)
    assert outcome.status == 0
    assert outcome.trouble is None
    trace = load(tmp_path / "out" / "trace.json.gz")
    assert marks(trace) == ["ProfilerStep#1", "ProfilerStep#2"]
    assert trace["tracekit"]["phases"] == {"wait": 2, "measure": 3, "warmup": 1, "steps": 2}


# the warning is torch's own, on the way to compiling an optimizer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_optimizer_beside(record_script: Record) -> None:
    outcome = record_script(COMPILED_BESIDE)
    assert (outcome.status, outcome.trouble) == (0, None)


def test_a_whole_step_lies_between_two_marks(tmp_path: Path, record_script: Record) -> None:
    record_script(SGD)
    trace = load(tmp_path / "out" / "trace.json.gz")
    for name in ("aten::linear", "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"):
        assert count(trace, name) == 2, name


def test_the_optimizer_that_steps_least_often(tmp_path: Path, record_script: Record) -> None:
    outcome = record_script(
        MODEL
        + """
critic = torch.optim.SGD(torch.nn.Linear(4, 4).parameters(), lr=0.1)
class Generator(torch.optim.SGD): pass
generator = Generator(model.parameters(), lr=0.1)
for _ in range(12):
    for _ in range(3):
        critic.step()
    loss().backward()
    generator.step()
""",
        plan=Plan(wait=4, measure=2, warmup=1, steps=2),
    )
    assert outcome.recording is not None
    assert outcome.recording.manifest.about.step_on == "optimizer Generator"
    trace = load(tmp_path / "out" / "trace.json.gz")
    assert count(trace, "Optimizer.step#SGD.step") == 6
    assert count(trace, "Optimizer.step#Generator.step") == 2


def test_calls_of_the_largest_model(tmp_path: Path, record_script: Record) -> None:
    body = (
        MODEL
        + """
model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
criterion = torch.nn.MSELoss()
small = torch.nn.Linear(4, 4)
with torch.no_grad():
    for _ in range(12):
        x = small(torch.randn(2, 4))
        criterion(model(x), x)
assert not model._forward_hooks
"""
    )
    outcome = record_script(body, step_on="forward")
    assert outcome.status == 0
    assert outcome.recording is not None
    assert outcome.recording.manifest.about.step_on == "forward Sequential"
    trace = load(tmp_path / "out" / "trace.json.gz")
    assert marks(trace) == ["ProfilerStep#1", "ProfilerStep#2"]
    assert count(trace, "aten::relu") == 2


def test_calls_of_a_compiled_model(tmp_path: Path, record_script: Record) -> None:
    body = (
        MODEL
        + """
model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
compiles = []
def backend(graph, inputs):
    compiles.append(1)
    return graph.forward
compiled = torch.compile(model, backend=backend, fullgraph=True)
with torch.no_grad():
    for _ in range(12):
        compiled(torch.randn(2, 4))
print("compiles", len(compiles))
"""
    )
    outcome = record_script(body, step_on="forward")
    assert (outcome.status, outcome.trouble) == (0, None)
    assert len(marks(load(tmp_path / "out" / "trace.json.gz"))) == 2


def test_a_model_that_is_saved_while_it_is_watched(tmp_path: Path, record_script: Record) -> None:
    body = (
        MODEL
        + """
import copy, pickle
with torch.no_grad():
    for i in range(12):
        model(torch.randn(2, 4))
        again = pickle.loads(pickle.dumps(model))
        again(torch.randn(2, 4))
        copy.deepcopy(model)(torch.randn(2, 4))
"""
    )
    outcome = record_script(body, step_on="forward")
    assert (outcome.status, outcome.trouble) == (0, None)
    trace = load(tmp_path / "out" / "trace.json.gz")
    assert count(trace, "aten::linear") == 6


def test_torch_is_left_as_it_was(record_script: Record) -> None:
    from torch.autograd.profiler import profile as legacy
    from torch.nn.modules import module
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

    before = legacy._prepare_trace, dict(hooks)
    record_script(SGD)
    record_script(SGD, step_on="forward")
    assert (legacy._prepare_trace, dict(hooks)) == before
    assert not module._has_any_global_hook()


class Thing:
    """Something that steps."""

    def __init__(self, size: int = 0) -> None:
        self.size = size


def test_an_optimizer_that_has_stopped_is_left_out() -> None:
    choice, old, new = Least(3), Thing(), Thing()
    choice.offer(old)
    assert any(choice.offer(new) for _ in range(STALE + 10))
    assert choice.chosen() is new


def test_the_largest_even_when_it_comes_late() -> None:
    choice = Largest(3, lambda thing: int(thing.size))
    small, large = Thing(1), Thing(9)
    assert not choice.offer(small)
    assert [choice.offer(large) for _ in range(3)] == [False, False, True]
    assert choice.chosen() is large


def test_a_tie_goes_to_the_last_of_the_iteration() -> None:
    choice, first, second = Least(2), Thing(), Thing()
    said = [choice.offer(x) for _ in range(2) for x in (first, second)]
    assert said == [False, False, False, True]
    assert choice.chosen() is second


def test_no_waiting_at_all(tmp_path: Path, record_script: Record) -> None:
    outcome = record_script(SGD, plan=Plan(wait=0, measure=0, warmup=1, steps=SMALL.steps))
    assert outcome.recording is not None
    assert outcome.recording.manifest.phases["wait"] == 1
