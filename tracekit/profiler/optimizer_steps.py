"""A program's steps, told by its optimizer's steps. The program is not edited.

torch calls a global hook after every `Optimizer.step`, once for foreach, fused, LBFGS and
GradScaler steps, twice for a subclass that calls `super().step()`, for each of several
optimizers, and not for a step that GradScaler skips. Steps are counted by the outermost call of
the optimizer that steps least often.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from tracekit.profiler import device
from tracekit.profiler.choose import Least
from tracekit.profiler.imported import AfterImport

MODULE = "torch.optim.optimizer"


class OptimizerSteps:
    """Calls `begin(name)` at the end of the last ignored step, then `step()` after every step."""

    word, words = "optimizer step", "optimizer steps"
    hint = (
        "for a program without an optimizer use --step-on forward; for one whose optimizer runs "
        "inside torch.compile or a CUDA graph use `with tracekit.profile()`"
    )

    def __init__(self, wait: int, begin: Callable[[str], None], step: Callable[[], None]) -> None:
        self._choice = Least(wait)
        self._begin = begin
        self._step = step
        self._handle: Any = None
        self._off = False
        self._pid = os.getpid()
        self._import = AfterImport(MODULE, self._register)

    @property
    def seen(self) -> int:
        """Steps counted before the choice."""
        return self._choice.seen

    @property
    def total(self) -> int:
        """Steps of all optimizers before the choice."""
        return self._choice.total

    def install(self) -> None:
        """Watch from now on; torch is not imported for it."""
        self._import.start()

    def quiet(self) -> None:
        """Count no more. The hook itself stays until `remove`: a compiled step is guarded on it,
        and taking it away in the middle of the program would make torch compile it again."""
        self._off = True

    def remove(self) -> None:
        """Leave torch as it was."""
        self._off = True
        self._import.cancel()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _register(self, module: ModuleType) -> None:
        torch = sys.modules["torch"]

        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
            # torch.compile traces this too, and must find nothing in it that breaks its graph
            if not torch.compiler.is_compiling():
                self._stepped(optimizer, sys._getframe(1))

        self._handle = module.register_optimizer_step_post_hook(hook)

    def _stepped(self, optimizer: Any, wrapper: FrameType) -> None:
        """A call of `Optimizer.step` has ended; `wrapper` is the frame torch puts around it."""
        if self._off or os.getpid() != self._pid or device.capturing() or _nested(wrapper):
            return
        if self._choice.chosen() is None:
            if self._choice.offer(optimizer):
                self._begin(f"optimizer {type(optimizer).__name__}")
        elif self._choice.chosen() is optimizer:
            self._step()


def _nested(wrapper: FrameType) -> bool:
    """True where another `Optimizer.step` is running further up the stack."""
    frame = wrapper.f_back
    while frame is not None:
        if frame.f_code is wrapper.f_code:
            return True
        frame = frame.f_back
    return False
