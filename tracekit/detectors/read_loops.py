"""What SYN001 does about a loop that reads small results one by one: its price and its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.reads import Run
from tracekit.detectors.finding import Fix
from tracekit.replay.edits import Edits

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis


def spent_ns(runs: list[Run]) -> int:
    """The host's time in the runs."""
    return sum(int(r.spans[-1, 1] - r.spans[0, 0]) for r in runs)


def read_once(analysis: Analysis, runs: list[Run]) -> Edits:
    """One op over all tensors and one read in the place of each run's turns.

    The first two turns' host time stays: it stands for that op and that read. The kernels become
    one that takes as long as all of them together, for it reads the same bytes.
    """
    duration = analysis.trace.table("gpu").ints("dur")
    edits = Edits()
    for run in runs:
        span = np.array([[run.tid, run.spans[1, 1], run.spans[-1, 1]]], np.int64)
        edits |= Edits(remove_gpu=run.copies, remove_host=span)
        if len(run.work):
            edits |= Edits(
                remove_gpu=run.work[1:],
                resize_gpu=run.work[:1],
                resize_ns=np.array([duration[run.work].sum()], np.int64),
            )
    return edits


def one_read(ops: tuple[str, ...]) -> Fix:
    """The fix of a loop that reads a small result of each of many tensors."""
    if any("norm" in n for n in ops):
        code = (
            "norms = torch.stack(torch._foreach_norm(gradients))   # two launches, no wait\n"
            "log = norms.tolist()                                  # one read, every few hundred\n"
            "# to clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)   # waits for none"
        )
    else:
        code = (
            "values = torch.stack([f(t) for t in tensors])         # stays on the GPU\n"
            "log = values.tolist()                                 # one read for all"
        )
    return Fix(
        title="all results in one tensor, read once",
        code=code,
        applies_when="no turn of the loop needs the number of the one before",
        numerics="sums in another order: the last bits",
    )
