"""What a program of the corpus is made of: its description, its step, and a few shared pieces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

SEED = 0
GRAPH_WARM_UP = 3
"""Steps on the side stream before a capture; Inductor and the optimizer's state need them."""

T = TypeVar("T")
Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """One variant, ready to run: `step()` is one whole step and returns its result on the device.

    `around` holds global settings (TF32) that this variant runs under; whoever calls `step`
    enters it first, so that two variants with different settings can take turns.
    """

    step: Step
    around: Callable[[], AbstractContextManager[None]] = nullcontext


Build = Callable[[str, torch.device], Case]


@dataclass(frozen=True)
class Program:
    """A pair: the same small program with one fault and without it.

    A control has no fault (`expected` empty): its variants are `healthy` and `twin`, where the twin
    has the change that a false alarm would advise (`twin_tests` names the codes), so that
    the alarm can be held against what the change brings.
    """

    name: str
    fault: str
    """one phrase"""
    expected: tuple[str, ...]
    """codes any of which names the fault rightly"""
    reason: str
    """why the fault costs what it costs here"""
    build: Build
    steps: int | None = None
    """steps to record where the command's number would make the trace too large"""
    twin_tests: tuple[str, ...] = ()

    @property
    def control(self) -> bool:
        """True for a program without a fault."""
        return not self.expected

    @property
    def variants(self) -> tuple[str, str]:
        """Names of the two variants, the one to be improved first."""
        return ("healthy", "twin") if self.control else ("faulty", "healthy")

    def make(self, variant: str, device: torch.device) -> Case:
        """The variant, built from the same seed as the other one."""
        if variant not in self.variants:
            raise ValueError(f"{self.name} has the variants {self.variants}, not {variant!r}")
        torch.manual_seed(SEED)
        return self.build(variant, device)


def on(device: torch.device, *, cuda: T, cpu: T) -> T:
    """Sizes for a real GPU, or sizes that a test steps through in milliseconds on a CPU."""
    return cuda if device.type == "cuda" else cpu


def half(device: torch.device) -> torch.dtype:
    """bf16 where it is fast; float32 on the CPU, where tests compare the variants' numbers."""
    return on(device, cuda=torch.bfloat16, cpu=torch.float32)


def compiled(
    function: Callable[..., T], device: torch.device, *, fullgraph: bool = True
) -> Callable[..., T]:
    """torch.compile with Inductor; on the CPU only Dynamo's part of it, seconds shorter."""
    backend = on(device, cuda="inductor", cpu="eager")
    return torch.compile(function, backend=backend, dynamic=False, fullgraph=fullgraph)


def mlp(depth: int, width: int, device: torch.device, dtype: torch.dtype) -> nn.Sequential:
    """`depth` linear layers with bias (two parameters each), ReLU after each but the last."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width, device=device, dtype=dtype), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def fused_adamw(module: nn.Module, *, capturable: bool = False) -> torch.optim.AdamW:
    """AdamW with one kernel a parameter chunk.

    Both variants of a pair take the same `capturable`: inside a CUDA graph the step counters and
    the learning rate must live on the device, where a replay can read them anew.
    """
    parameters = list(module.parameters())
    if capturable and parameters[0].is_cuda:
        lr = torch.tensor(1e-4, device=parameters[0].device)
        return torch.optim.AdamW(parameters, lr=lr, fused=True, capturable=True)
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def captured(body: Step, device: torch.device) -> Step:
    """`body` as one CUDA graph; `body` itself on the CPU, which has none.

    `body` must not have run before: a gradient node that was born on another stream would pull
    that stream into the capture. It must read and write static tensors only, and leave gradients
    at None, so that they are allocated in the graph's own memory.
    """
    if device.type != "cuda":
        return body
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(GRAPH_WARM_UP):
            body()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        result = body()
    torch.cuda.current_stream(device).wait_stream(side)

    def replay(alive: Step = body) -> Tensor:
        # The graph knows addresses only: `alive` keeps the tensors that it reads from being freed.
        graph.replay()
        return result

    return replay
