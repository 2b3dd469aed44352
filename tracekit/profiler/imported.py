"""Call a function right after a module has been imported, without importing it.

The runner must not import torch before the script does: the script may set environment
variables that torch reads at its import (TORCH_LOGS, OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport(MetaPathFinder):
    """Calls `then(module)` once, after `name` is imported, or now if it already is.

    Use `start` and `cancel`; it takes itself out of `sys.meta_path` when it has fired.
    """

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
        self._looking = False

    def start(self) -> None:
        """Begin to watch imports."""
        module = sys.modules.get(self._name)
        if module is not None:
            self._then(module)
        else:
            sys.meta_path.insert(0, self)

    def cancel(self) -> None:
        """Stop watching; safe at any time."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The import system's question; answered by the other finders, with our loader around."""
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Then(spec.loader, self._fire)
        return spec

    def _fire(self, module: ModuleType) -> None:
        self.cancel()
        self._then(module)


class _Then(Loader):
    """A loader that calls a function after the module has run."""

    def __init__(self, loader: Loader, fire: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._fire = fire

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # the module must not notice: it sees its own loader
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._fire(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
