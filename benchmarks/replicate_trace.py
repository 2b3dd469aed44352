"""Replicate a real trace to a given size: `replicate_trace.py IN OUT --megabytes N`.

Each copy continues the one before: its times are shifted by the recording's span, its correlation,
External, flow and Python ids and its step numbers are offset, so that the result reads as one
longer recording. The text is edited in place, so it keeps Kineto's own layout byte for byte.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

ID_KEYS = (
    "External id", "external id", "correlation", "id", "Ev Idx", "Python id", "Python parent id",
    "Sequence number", "Record function id", "wait_on_cuda_event_record_corr_id",
)  # fmt: skip
_EDIT = re.compile(
    r'(?P<key>"(?:ts|' + "|".join(map(re.escape, ID_KEYS)) + r')":\s*)(?P<whole>\d+)(?!\d)'
    r"|(?P<step>ProfilerStep#)(?P<number>\d+)"
)


def replicate(text: str, megabytes: float) -> list[str]:
    """The pieces of a trace of at least `megabytes` MB made of copies of `text`."""
    events = json.loads(text)
    events = events["traceEvents"] if isinstance(events, dict) else events
    timed = [e for e in events if e.get("ph") == "X"]
    start = min(float(e["ts"]) for e in timed)
    span = int(max(float(e["ts"]) + float(e.get("dur", 0)) for e in timed) - start) + 1000
    steps = {int(m[1]) for m in re.finditer(r"ProfilerStep#(\d+)", text)}
    step = max(steps) - min(steps) + 1 if steps else 0
    offset = 1 + max(
        (int(m["whole"]) for m in _EDIT.finditer(text) if m["key"] and not _is_time(m["key"])),
        default=0,
    )

    head_end = text.index("[", text.index('"traceEvents"')) + 1 if text.lstrip()[0] == "{" else 1
    body_end = _array_end(text, head_end)
    head, body, tail = text[:head_end], text[head_end:body_end], text[body_end:]
    body = body.rstrip()
    copies = max(1, round(megabytes * 1e6 / len(body)))
    pieces = [head, body]
    for copy in range(1, copies):
        pieces += [",", _shifted(body, copy * span, copy * offset, copy * step)]
    return [*pieces, tail]


def _is_time(key: str) -> bool:
    return key.startswith('"ts"')


def _array_end(text: str, start: int) -> int:
    """Where the event array that starts at `start` closes."""
    decoder, at = json.JSONDecoder(), start - 1
    return decoder.raw_decode(text, at)[1] - 1


def _shifted(body: str, time: int, ids: int, steps: int) -> str:
    def edit(found: re.Match[str]) -> str:
        if found["step"]:
            return f"{found['step']}{int(found['number']) + steps}"
        return f"{found['key']}{int(found['whole']) + (time if _is_time(found['key']) else ids)}"

    return _EDIT.sub(edit, body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=float, required=True)
    options = parser.parse_args()
    packed = options.source.read_bytes()
    text = (gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed).decode()
    with options.target.open("w", encoding="utf-8") as file:
        for piece in replicate(text, options.megabytes):
            file.write(piece)
    print(f"{options.target}: {options.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
