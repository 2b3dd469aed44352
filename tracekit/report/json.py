"""The JSON report: the contract that scripts hold on to (docs/report-json.md, schema.json).

The same trace and options give the same bytes. The text is ASCII with every control character
escaped, so that it may be shown in a terminal. There is no NaN and no infinity: a number that is
not known is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from tracekit.detectors.finding import Finding, Fix, Saving, Undetermined
from tracekit.diagnosis import Diagnosis
from tracekit.report import facts
from tracekit.report.facts import NS_PER_MS, number

SCHEMA_VERSION = 1


def render(d: Diagnosis) -> str:
    """The report of one trace."""
    return dump(document(d))


def render_many(reports: Iterable[Diagnosis], unreadable: dict[str, str]) -> str:
    """The reports of several paths: `{"schema_version", "reports": [...], "unreadable": [...]}`."""
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "reports": [document(d) for d in reports],
            "unreadable": [{"path": p, "error": why} for p, why in unreadable.items()],
        }
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of the report of one path."""
    text = resources.files("tracekit.report").joinpath("schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def dump(value: Any) -> str:
    """JSON text ending in a newline."""
    text = json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def document(d: Diagnosis) -> dict[str, Any]:
    """The report of one trace as plain values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "trace": _trace(d),
        "health": _health(d),
        "steps": _steps(d),
        "findings": [_finding(f) for f in d.findings],
        "combined_saving": None
        if d.combined_saving is None
        else {"codes": list(d.combined_codes), **_saving(d.combined_saving)},
        "undetermined": [_undetermined(u) for u in d.undetermined],
    }


def _trace(d: Diagnosis) -> dict[str, Any]:
    trace = d.trace
    return {
        "path": trace.path,
        "bytes": trace.bytes,
        "events": trace.health.events,
        "vendor": trace.vendor,
        "devices": [
            {
                "id": device.id,
                "name": device.name or None,
                "gpu_events": device.gpu_events,
                "analysed": device.analysed,
            }
            for device in facts.devices(d)
        ],
        "versions": facts.versions(trace),
        "rank": trace.rank,
        "world_size": trace.world_size,
    }


def _health(d: Diagnosis) -> dict[str, Any]:
    read, found = d.trace.health, facts.health(d)
    return {
        "status": found.status,
        "events_skipped": read.events_skipped,
        "skipped_by_cause": dict(sorted(read.skipped_by_cause.items())),
        "ignored_by_kind": dict(sorted(read.ignored_by_kind.items())),
        "orphan_gpu_events": found.orphans,
        "carry_in_gpu_events": found.carry_in,
        "gpu_events_outside_steps": found.outside,
        "tolerant": read.tolerant,
        "damage": [
            {"offset": x.offset, "cause": x.cause, "events_lost": x.events} for x in read.damage
        ],
        "notes": list(dict.fromkeys([*d.notes, *d.steps.notes])),
    }


def _steps(d: Diagnosis) -> dict[str, Any]:
    step, accounting, steps = facts.step_facts(d), d.analysis.accounting, d.steps
    return {
        "count": step.count,
        "source": step.source,
        "wall_ms": {
            "median": number(step.median),
            "low": number(step.low),
            "high": number(step.high),
        },
        "unprofiled_ms": number(step.unprofiled),
        "gpu_busy_ms": number(step.busy),
        "gpu_idle_ms": number(step.idle),
        "gpu_events": number(step.launched),
        "breakdown_ms": _numbers(step.breakdown),
        "unprofiled_breakdown_ms": None
        if step.unprofiled_breakdown is None
        else _numbers(step.unprofiled_breakdown),
        "classes_ms": _numbers(step.classes),
        "per_step": [
            {
                "index": int(steps.index[k]),
                "start_ns": int(steps.start[k]),
                "end_ns": int(steps.end[k]),
                "wall_ms": number(steps.wall_ns[k] / NS_PER_MS),
                "gpu_busy_ms": number(accounting.busy_ns[k] / NS_PER_MS),
                "gpu_idle_ms": number(accounting.idle_ns[k] / NS_PER_MS),
                "gpu_events": int(accounting.launches[k]),
                "breakdown_ms": {
                    key: number(values[k] / NS_PER_MS)
                    for key, values in accounting.breakdown_ns.items()
                },
            }
            for k in range(len(steps))
        ],
        "devices": [
            {
                "device": int(device),
                "busy_ms": [number(v / NS_PER_MS) for v in busy],
                "idle_ms": [number(v / NS_PER_MS) for v in (accounting.wall_ns - busy)],
            }
            for device, busy in sorted(accounting.devices_ns.items())
        ],
        "streams": [
            {
                "device": int(device),
                "stream": int(stream),
                "busy_ms": [number(v / NS_PER_MS) for v in busy],
            }
            for (device, stream), busy in sorted(accounting.streams_ns.items())
        ],
    }


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "code": f.code,
        "name": f.name,
        "severity": f.severity,
        "title": f.title,
        "insight": f.insight,
        "action": f.action,
        "impact": f.impact,
        "saving": _saving(f.saving),
        "evidence": {
            "event_ids": [int(i) for i in f.evidence.event_ids],
            "counts": {k: number(v) for k, v in f.evidence.counts.items()},
            "lines": list(f.evidence.lines),
        },
        "where": {
            "text": f.where.text,
            "ops": list(f.where.ops),
            "module": f.where.module,
            "phase": f.where.phase,
            "file": f.where.file,
            "line": f.where.line,
        },
        "fixes": [_fix(x) for x in f.fixes],
        "confidence": f.confidence,
        "fingerprint": f.fingerprint,
    }


def _saving(s: Saving) -> dict[str, Any]:
    return {
        "ms_per_step": number(s.ms_per_step),
        "low": number(s.low),
        "high": number(s.high),
        "percent_of_step": number(s.percent_of_step),
        "base": s.base,
        "step_ms": number(s.step_ms),
        "then_ms": number(s.then_ms),
    }


def _fix(x: Fix) -> dict[str, Any]:
    return {
        "title": x.title,
        "code": x.code,
        "applies_when": x.applies_when,
        "numerics": x.numerics,
    }


def _undetermined(u: Undetermined) -> dict[str, Any]:
    return {"code": u.code, "name": u.name, "why": u.why}


def _numbers(values: dict[str, float]) -> dict[str, Any]:
    return {key: number(value) for key, value in values.items()}
