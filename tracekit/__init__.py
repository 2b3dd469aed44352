"""tracekit: why a PyTorch training step is slow, what each cause costs, and what to change.

    import tracekit
    d = tracekit.diagnose("trace.json.gz")
    d.findings, d.steps, d.trace.gpu

Names are loaded on first use, so that `import tracekit` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "diagnose": "tracekit.diagnosis",
    "Diagnosis": "tracekit.diagnosis",
    "read": "tracekit.trace.read",
    "Trace": "tracekit.trace.model",
    "TraceError": "tracekit.trace.errors",
    "profile": "tracekit.profiler",
}

if TYPE_CHECKING:
    from tracekit.diagnosis import Diagnosis as Diagnosis
    from tracekit.diagnosis import diagnose as diagnose
    from tracekit.profiler import profile as profile
    from tracekit.trace.errors import TraceError as TraceError
    from tracekit.trace.model import Trace as Trace
    from tracekit.trace.read import read as read

__all__ = ["Diagnosis", "Trace", "TraceError", "__version__", "diagnose", "profile", "read"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
