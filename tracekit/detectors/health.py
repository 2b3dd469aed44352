"""What the TRC detectors share: a draft that tells about the recording and saves nothing itself."""

from __future__ import annotations

from tracekit.detectors.finding import Draft, Evidence, Fix, Where
from tracekit.replay.edits import Edits


def health_draft(
    code: str,
    name: str,
    *,
    title: str,
    insight: str,
    action: str,
    impact: str,
    where: str,
    evidence: Evidence,
    fix: Fix,
) -> Draft:
    """A draft without edits: its saving is 0, its severity note, and it comes after the others."""
    return Draft(
        code=code,
        name=name,
        title=title,
        insight=insight,
        action=action,
        impact=impact,
        edits=Edits(),
        evidence=evidence,
        where=Where(text=where),
        fixes=(fix,),
        confidence="high",
    )


def record_again(title: str, code: str, applies_when: str) -> Fix:
    """A fix that changes the recording, never the training."""
    return Fix(title=title, code=code, applies_when=applies_when, numerics="nothing")
