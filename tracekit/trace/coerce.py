"""Events that are valid JSON but hold another type than expected: the odd field is dropped."""

from __future__ import annotations

from collections import Counter

import msgspec

from tracekit.trace.event import FAULTS, Args, Number

WRONG_TYPE = "a field of an unexpected type, read as missing"

_TEXT = ("ph", "cat", "name")
_NUMBER = ("pid", "tid", "ts", "dur")
_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_number = msgspec.json.Decoder(Number).decode
_decode_any = msgspec.json.Decoder().decode
_KNOWN = {f.encode_name: f.type for f in msgspec.structs.fields(Args)}


def coerce(event: bytes, done: Counter[str]) -> bytes:
    """The event as JSON that decodes into `Event`; b"" if it is no JSON object at all."""
    try:
        top = _decode_top(event)
        for key in _TEXT:
            if key in top:
                value = _decode_any(top[key])
                if not isinstance(value, str):
                    top[key] = msgspec.Raw(msgspec.json.encode("" if value is None else str(value)))
                    done[WRONG_TYPE] += value is not None
        for key in _NUMBER:
            if key in top and not _is_number(top[key]):
                top[key] = msgspec.Raw(b"null")
                done[WRONG_TYPE] += 1
        if "args" in top:
            top["args"] = _args(top["args"], done)
        return msgspec.json.encode(top)
    except FAULTS:
        return b""


def _args(raw: msgspec.Raw, done: Counter[str]) -> msgspec.Raw:
    try:
        args = _decode_top(raw)
    except FAULTS:
        if bytes(raw).strip() != b"null":
            done[WRONG_TYPE] += 1
        return msgspec.Raw(b"null")
    for key, kind in _KNOWN.items():
        if key in args and kind is not msgspec.Raw and not _is_number(args[key]):
            del args[key]
            done[WRONG_TYPE] += 1
    return msgspec.Raw(msgspec.json.encode(args))


def _is_number(raw: msgspec.Raw) -> bool:
    try:
        _decode_number(raw)
    except FAULTS:
        return False
    return True
