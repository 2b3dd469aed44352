"""A finding's `Where` from the rows it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.where import Place, common_place, common_place_of_ops
from tracekit.detectors.finding import Where
from tracekit.trace.table import Ints

if TYPE_CHECKING:
    from tracekit.analysis.analysis import Analysis


def where_of(analysis: Analysis, gpu_rows: Ints, text: str | None = None) -> Where:
    """Where the work of some `gpu` rows comes from, as one summary.

    Args:
        gpu_rows: rows of `gpu`.
        text: the phrase to show; by default the innermost op and the phase.
    """
    return _where(common_place(analysis, gpu_rows), text)


def where_of_ops(analysis: Analysis, op_rows: Ints, text: str | None = None) -> Where:
    """The same for rows of `ops` (-1 where unknown)."""
    return _where(common_place_of_ops(analysis, op_rows), text)


def _where(place: Place, text: str | None) -> Where:
    if text is None:
        text = place.ops[-1] if place.ops else "no op recorded"
        text += f", {place.phase}" if place.phase else ""
    return Where(text, place.ops, place.module, place.phase, place.file, place.line)
