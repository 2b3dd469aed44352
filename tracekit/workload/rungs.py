"""The rungs: every classic optimisation of the training step as one named difference.

Each rung differs from the one before it in one thing, says why, and names the findings of
``tracekit diagnose`` that it clears and those that it leaves, as recorded on an H200 at batch 128
(``tests/fixtures/rungs``). This module imports no torch, so the list can be printed and checked on
any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracekit.workload.errors import WorkloadError

__all__ = ["RUNGS", "Rung", "UnknownRung", "parse_rungs", "rung"]


class UnknownRung(WorkloadError, ValueError):
    """A rung was asked for that is not registered; the message lists those that are."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder: how the same training is executed.

    ``key`` is what a person types, ``number`` orders the ladder (-1 for eager). ``clears`` and
    ``leaves`` hold detector codes: no finding of the first that is worth more than a note remains,
    one of the second does (a note counts). The remaining fields are the configuration that
    ``train_step.Trainer`` reads; none of them changes what is learnt.
    """

    key: str
    number: int
    name: str
    reason: str
    clears: tuple[str, ...]
    leaves: tuple[str, ...]
    needs_cuda: bool
    compile: Literal["default", "reduce-overhead"] | None
    """``torch.compile`` mode, or None to run eagerly."""
    scope: Literal["model", "forward_batch"]
    """What is compiled: the network, or noising + network + loss together."""
    channels_last: bool
    """Weights and images in NHWC memory order."""
    sync_loss: bool
    """Read the loss with ``.item()`` every step, which makes the host wait for the GPU."""
    optimizer: Literal["foreach", "fused"]
    graph: Literal["none", "inductor", "step"]
    """Who captures CUDA graphs: nobody, Inductor (forward and backward), or the whole step."""


_LADDER = (
    Rung(
        key="eager",
        number=-1,
        name="eager + bf16 autocast",
        reason="The plain loop: every operator is its own kernel and its own launch.",
        clears=(),
        leaves=("LAY001", "SYN001", "FUS001", "FUS002", "LCH001"),
        needs_cuda=False,
        compile=None,
        scope="model",
        channels_last=False,
        sync_loss=True,
        optimizer="foreach",
        graph="none",
    ),
    Rung(
        key="0",
        number=0,
        name="torch.compile + bf16 autocast",
        reason="Inductor fuses chains of pointwise operators and norms into few Triton kernels.",
        clears=("FUS001",),
        leaves=("LAY001", "SYN001", "FUS002", "LCH001"),
        needs_cuda=False,
        compile="default",
        scope="model",
        channels_last=False,
        sync_loss=True,
        optimizer="foreach",
        graph="none",
    ),
    Rung(
        key="1",
        number=1,
        name="channels-last",
        reason="cuDNN's bf16 convolutions work in NHWC: weights and images stored so need no "
        "conversion around every convolution.",
        # The conversions go and LAY001 stays: GroupNorm returns NCHW, so that gradients are now
        # copied to NHWC. SYN001 has nothing to find here: a host that never gets ahead of the GPU
        # does not wait for it (at batch 768 it does, and SYN001 says so).
        clears=(),
        leaves=("LAY001", "FUS002", "LCH001"),
        needs_cuda=False,
        compile="default",
        scope="model",
        channels_last=True,
        sync_loss=True,
        optimizer="foreach",
        graph="none",
    ),
    Rung(
        key="2",
        number=2,
        name="loss kept on the device",
        reason="Without .item() the host may queue the next step while the GPU works on this one.",
        clears=("SYN001",),
        leaves=("LAY001", "FUS002", "LCH001"),
        needs_cuda=False,
        compile="default",
        scope="model",
        channels_last=True,
        sync_loss=False,
        optimizer="foreach",
        graph="none",
    ),
    Rung(
        key="3",
        number=3,
        name="fused AdamW",
        reason="One kernel a parameter chunk for the whole update, not a dozen foreach passes "
        "over memory.",
        clears=("FUS002",),
        leaves=("LAY001", "LCH001"),
        needs_cuda=False,
        compile="default",
        scope="model",
        channels_last=True,
        sync_loss=False,
        optimizer="fused",
        graph="none",
    ),
    Rung(
        key="4",
        number=4,
        name="reduce-overhead over forward_batch",
        reason="Noising joins the compiled region, and Inductor replays forward and backward as "
        "CUDA graphs: a few launches in place of hundreds.",
        clears=("LCH001",),
        leaves=(),
        needs_cuda=True,
        compile="reduce-overhead",
        scope="forward_batch",
        channels_last=True,
        sync_loss=False,
        optimizer="fused",
        graph="inductor",
    ),
    Rung(
        key="5",
        number=5,
        name="one CUDA graph for the step",
        reason="Forward, backward, clipping, optimizer and EMA are one launch; the host only "
        "brings the next batch.",
        clears=("LCH001",),
        leaves=("LAY001",),
        needs_cuda=True,
        compile="default",
        scope="forward_batch",
        channels_last=True,
        sync_loss=False,
        optimizer="fused",
        graph="step",
    ),
)

RUNGS: dict[str, Rung] = {each.key: each for each in _LADDER}
"""The registry, in the order of the ladder."""


def rung(key: str | int) -> Rung:
    """The rung registered under ``key`` ("eager", "0", 0, ...).

    Raises ``UnknownRung`` naming the known ones.
    """
    found = RUNGS.get(str(key).strip())
    if found is None:
        raise UnknownRung(f"There is no rung {key!r}; the rungs are {', '.join(RUNGS)}.")
    return found


def parse_rungs(text: str) -> list[Rung]:
    """A list such as ``eager,0-5`` or ``1,3`` as rungs in ladder order, each once.

    Raises ``UnknownRung`` for a part that names no rung and for an empty list.
    """
    wanted: set[str] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            low, high = rung(first).number, rung(last).number
            if low > high:
                raise UnknownRung(f"The range {part!r} runs backwards; write {last}-{first}.")
            wanted |= {each.key for each in _LADDER if low <= each.number <= high}
        else:
            wanted.add(rung(part).key)
    if not wanted:
        raise UnknownRung(f"No rung was named; the rungs are {', '.join(RUNGS)}.")
    return [each for each in _LADDER if each.key in wanted]
