"""The detectors, one line each, in the order `tracekit explain` lists them.

A detector is a module with: `CODE` ("LAY001"), `NAME` ("layout-transpose"), a module docstring
that is its documentation page, a frozen dataclass `Config` of thresholds (each field has its unit
and source in a `field(metadata={"unit": ..., "source": ...})`), and
`detect(analysis: Analysis, config: Config) -> Detection`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tracekit.detectors.finding import Detection

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis

MODULES = (
    "tracekit.detectors.lch001_launch_bound_region",
    "tracekit.detectors.syn001_host_sync_stall",
    "tracekit.detectors.lay001_layout_transpose",
    "tracekit.detectors.fus001_unfused_elementwise_chain",
    "tracekit.detectors.syn002_pageable_copy",
    "tracekit.detectors.gap001_input_starvation",
    "tracekit.detectors.mem001_allocator_churn",
    "tracekit.detectors.pre001_fp32_matmul_without_tf32",
    "tracekit.detectors.fus002_unfused_optimizer",
    "tracekit.detectors.fus003_many_small_reductions",
    "tracekit.detectors.nrm001_norm_far_below_bandwidth",
    "tracekit.detectors.cmp002_graph_break",
    "tracekit.detectors.trc001_damaged_trace",
    "tracekit.detectors.trc002_launches_missing",
    "tracekit.detectors.trc003_no_gpu_events",
    "tracekit.detectors.trc004_implausible_duration",
    "tracekit.detectors.trc005_compilation_in_window",
    "tracekit.detectors.trc006_profiler_inflates_host_bound",
)


def modules() -> list[ModuleType]:
    """Every registered detector."""
    return [import_module(name) for name in MODULES]


def run(
    analysis: Analysis, *, select: Iterable[str] | None = None, ignore: Iterable[str] = ()
) -> Detection:
    """Run the wanted detectors on one analysis.

    Raises:
        ValueError: if `select` or `ignore` matches no detector.
    """
    chosen = [m for m in modules() if _wanted(m.CODE, select, ignore)]
    known = [m.CODE for m in modules()]
    for prefix in [*(select or ()), *ignore]:
        if not any(code.startswith(prefix.upper()) for code in known):
            raise ValueError(f"no detector matches {prefix!r}; there are {', '.join(known)}")
    answers = [m.detect(analysis, m.Config()) for m in chosen]
    return Detection(
        tuple(d for a in answers for d in a.drafts),
        tuple(u for a in answers for u in a.undetermined),
        tuple(n for a in answers for n in a.notes),
    )


def _wanted(code: str, select: Iterable[str] | None, ignore: Iterable[str]) -> bool:
    chosen = select is None or any(code.startswith(p.upper()) for p in select)
    return chosen and not any(code.startswith(p.upper()) for p in ignore)
