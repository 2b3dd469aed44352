"""Who launched what, on traces small enough to read."""

from __future__ import annotations

import numpy as np

from tests.builders import AUTOGRAD, TraceBuilder
from tracekit.analysis.links import link, roots


def test_launch_and_op_chain() -> None:
    b = TraceBuilder()
    b.op("aten::linear", 0, 30)
    b.op("aten::addmm", 5, 20)
    b.kernel("gemm", 40, 10, b.launch(10))
    b.op("aten::mul", 50, 10)
    b.kernel("mul", 70, 5, b.launch(65))  # launched after aten::mul had ended
    trace = b.trace()
    links = link(trace)
    names = trace.table("ops").text("name")
    assert [names[r] for r in links.chain(int(links.gpu_op[0]))] == ["aten::linear", "aten::addmm"]
    assert links.gpu_op.tolist()[1] == -1


def test_a_sibling_does_not_hide_the_parent() -> None:
    b = TraceBuilder()
    b.op("parent", 0, 100)
    b.op("child", 10, 10)
    b.op("grandchild", 12, 2)
    b.op("marker", 50, 0)
    b.kernel("k", 120, 1, b.launch(60))
    trace = b.trace()
    links = link(trace)
    names = trace.table("ops").text("name")
    assert [names[r] for r in links.chain(int(links.gpu_op[0]))] == ["parent"]
    assert [names[p] if p >= 0 else None for p in links.op_parent] == [
        None,
        "parent",
        "child",
        "parent",
    ]


def test_ops_of_another_thread_do_not_enclose() -> None:
    b = TraceBuilder()
    b.op("main", 0, 100)
    b.kernel("k", 50, 1, b.launch(10, tid=AUTOGRAD))
    assert link(b.trace()).gpu_op.tolist() == [-1]


def test_many_kernels_on_one_graph_launch() -> None:
    b = TraceBuilder()
    c = b.launch(0, name="cudaGraphLaunch")
    for i in range(5):
        b.kernel("k", 10 + 2 * i, 1, c)
    assert link(b.trace()).gpu_launch.tolist() == [0] * 5


def test_orphan_keeps_the_op_of_its_external_id_and_nothing_else() -> None:
    b = TraceBuilder()
    external = b.op("aten::mul", 0, 10)
    b.kernel("with id", 20, 1, 77, **{"External id": external})
    b.kernel("without", 30, 1, 78)
    links = link(b.trace())
    assert links.gpu_launch.tolist() == [-1, -1]
    assert links.gpu_op.tolist() == [0, -1]


def test_equal_correlation_ids_of_a_merged_file_are_told_apart_by_time() -> None:
    b = TraceBuilder()
    first = b.launch(0)
    b.kernel("early", 10, 1, first)
    b._correlation = 0
    second = b.launch(100)
    assert second == first
    b.kernel("late", 110, 1, second)
    assert link(b.trace()).gpu_launch.tolist() == [0, 1]


def test_roots_are_the_outermost_ops() -> None:
    parent = np.array([-1, 0, 1, 2, -1, 4, 3])
    assert roots(parent).tolist() == [0, 0, 0, 0, 4, 4, 0]
