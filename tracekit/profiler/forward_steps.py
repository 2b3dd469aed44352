"""A program's steps, told by calls of its model: for programs without an optimizer.

While the first steps are ignored, a global hook sees every module that is called from outside
any other module; the one with the most parameters is chosen. From then on only that module
carries a hook, so that the timed steps run at the program's own speed.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracekit.profiler import device
from tracekit.profiler.choose import Largest
from tracekit.profiler.imported import AfterImport

MODULE = "torch.nn.modules.module"
_WARNING = r"Using `torch\.compile\(module\)` when there are global hooks"


class ForwardSteps:
    """Calls `begin(name)` at the end of the last ignored call, then `step()` after every call."""

    word, words = "call of a model", "calls of a model"
    hint = "for a program whose model is not an nn.Module use `with tracekit.profile()`"

    def __init__(self, wait: int, begin: Callable[[str], None], step: Callable[[], None]) -> None:
        self._choice = Largest(wait, _parameters)
        self._begin = begin
        self._step = step
        self._local = threading.local()
        self._handles: list[Any] = []
        self._filter: Any = None
        self._pid = os.getpid()
        self._import = AfterImport(MODULE, self._register)

    @property
    def seen(self) -> int:
        """Calls counted before the choice."""
        return self._choice.seen

    @property
    def total(self) -> int:
        """Calls of all models before the choice."""
        return self._choice.total

    def install(self) -> None:
        """Watch from now on; torch is not imported for it."""
        self._import.start()

    def quiet(self) -> None:
        """Count no more."""
        self.remove()

    def remove(self) -> None:
        """Leave torch and the model as they were."""
        self._import.cancel()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]

    def _register(self, module: ModuleType) -> None:
        # torch warns that such hooks see a compiled module twice, which the depth takes care of
        warnings.filterwarnings("ignore", message=_WARNING, category=UserWarning)
        self._filter = warnings.filters[0]
        self._handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def _enter(self, module: Any, args: Any) -> None:
        if not _tracing():
            self._local.depth = getattr(self._local, "depth", 0) + 1

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        if _tracing():
            return
        depth = self._local.depth = max(0, getattr(self._local, "depth", 0) - 1)
        if depth or device.capturing() or os.getpid() != self._pid:
            return
        if self._choice.chosen() is None and self._choice.offer(module):
            self.remove()
            hook = _Hook(self)
            self._handles = [module.register_forward_hook(hook)]
            self._begin(f"forward {type(module).__name__}")

    def called(self) -> None:
        """The chosen module has been called."""
        if not device.capturing() and os.getpid() == self._pid:
            self._step()


class _Hook:
    """The hook of the chosen module. A copy or a pickle of the module gets one that is idle."""

    def __init__(self, source: ForwardSteps | None = None) -> None:
        self._source = source

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if self._source is not None and not _tracing():
            self._source.called()

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return (_Hook, ())


def _tracing() -> bool:
    import torch

    return torch.compiler.is_compiling()


def _parameters(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
