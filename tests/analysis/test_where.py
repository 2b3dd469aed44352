"""Where GPU work comes from."""

from __future__ import annotations

import numpy as np

from tests.builders import AUTOGRAD, MUL, TraceBuilder
from tracekit.analysis.analysis import Analysis
from tracekit.detectors.place import where_of


def test_chain_module_phase_and_line() -> None:
    b = TraceBuilder()
    b.python("train.py(12): step", 0, 100)
    b.python("nn.Module: UNet_0", 1, 90)
    b.python("/usr/lib/python3.11/site-packages/torch/nn/modules/module.py(1): _call_impl", 2, 80)
    b.python("nn.Module: SiLU_3", 3, 70)
    b.clock[100] = 5
    b.call(("aten::silu", "aten::mul"), kernel=MUL)
    found = where_of(Analysis(b.trace()), np.array([0]))
    assert found.ops == ("aten::silu", "aten::mul")
    assert found.module == "UNet_0/SiLU_3"
    assert (found.file, found.line) == ("train.py", 12)
    assert found.phase == "forward"


def test_backward_work_leads_to_the_forward_module() -> None:
    b = TraceBuilder()
    b.python("model.py(7): forward", 0, 30)
    b.python("nn.Module: Block_1", 1, 28)
    b.clock[100] = 5
    b.call("aten::mul", kernel=MUL, seq=9)
    b.clock[AUTOGRAD] = 100
    name = "autograd::engine::evaluate_function: MulBackward0"
    with b.inside(name, tid=AUTOGRAD, seq=9, fwd_tid=1):
        b.call("aten::mul", kernel=MUL, tid=AUTOGRAD)
    found = where_of(Analysis(b.trace()), np.array([1]))
    assert found.phase == "backward"
    assert found.module == "Block_1"
    assert (found.file, found.line) == ("model.py", 7)


def test_the_optimizer_is_told_by_its_annotation() -> None:
    b = TraceBuilder()
    b.call("aten::add_", kernel=MUL)
    b.annotation("Optimizer.step#SGD.step", 0, 20)
    assert where_of(Analysis(b.trace()), np.array([0])).phase == "optimizer"


def test_many_rows_give_the_commonest_place() -> None:
    b = TraceBuilder()
    for name in ("aten::add", "aten::mul", "aten::mul"):
        b.call(name, kernel=MUL)
    assert where_of(Analysis(b.trace()), np.arange(3)).ops == ("aten::mul",)


def test_work_without_an_op_says_so() -> None:
    b = TraceBuilder()
    b.kernel(MUL, 0, 5)
    found = where_of(Analysis(b.trace()), np.array([0]))
    assert found.text == "no op recorded"
    assert found.ops == () and found.phase is None and found.file is None
