"""The shape of one event, as msgspec decodes it.

A chunk is decoded in two calls or a few: first its events with `args` left as text, then the
`args` of each table's events together, into a Struct of only the fields that table has. Half of
a file's events are flow arrows without args, and small Structs stay in the processor's cache.
Fields an event lacks keep their default, which is what the tables call missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Number = int | float | str | None
NO_TEXT = msgspec.Raw(b"")


class Args(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "external_id": "External id",
        "old_external_id": "external id",
        "seq": "Sequence number",
        "fwd_tid": "Fwd thread id",
        "concrete": "Concrete Inputs",
        "dtypes": "Input type",
        "strides": "Input Strides",
        "shapes": "Input Dims",
        "old_shapes": "Input dims",
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "occupancy": "est. achieved occupancy %",
        "graph_node": "graph node id",
        "collective": "Collective name",
        "msg_elements": "In msg nelems",
        "group_size": "Group size",
        "group": "Process Group Name",
        "python_parent": "Python parent id",
        "python_id": "Python id",
        "module_id": "Python module id",
        "reserved": "Total Reserved",
        "allocated": "Total Allocated",
        "memory_bytes": "Bytes",
        "addr": "Addr",
        "device_id": "Device Id",
        "device_type": "Device Type",
        "wait_stream": "wait_on_stream",
        "wait_event": "wait_on_cuda_event_id",
        "memory_size": "mem size",
    },
):
    """`args` of an event: the fields some table has a column for."""

    # In the order Kineto writes them: msgspec looks for a key first where the last one ended.
    external_id: Number = -1
    seq: Number = -1
    fwd_tid: Number = -1
    concrete: msgspec.Raw = NO_TEXT
    dtypes: msgspec.Raw = NO_TEXT
    strides: msgspec.Raw = NO_TEXT
    shapes: msgspec.Raw = NO_TEXT
    device: Number = -1
    stream: Number = -1
    correlation: Number = -1
    registers: Number = -1
    shared_memory: Number = -1
    grid: msgspec.Raw = NO_TEXT
    block: msgspec.Raw = NO_TEXT
    occupancy: Number = -1
    graph_node: Number = -1
    bytes: Number = -1
    python_parent: Number = -1
    python_id: Number = -1
    module_id: Number = -1
    reserved: Number = -1
    allocated: Number = -1
    memory_bytes: Number = -1
    addr: Number = -1
    device_id: Number = -1
    device_type: Number = -1
    wait_stream: Number = -1
    wait_event: Number = -1
    kernel_file: Number = None
    collective: Number = None
    msg_elements: Number = -1
    group_size: Number = -1
    dtype: Number = None
    group: Number = None
    kind: Number = None
    size: Number = -1
    memory_size: Number = -1
    name: Number = None
    labels: Number = None
    old_external_id: Number = -1
    old_shapes: msgspec.Raw = NO_TEXT


EMPTY_ARGS = msgspec.Raw(b"{}")


class Event(msgspec.Struct, gc=False):
    """An event whose time a float64 holds exactly, or is an integer."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: msgspec.Raw = EMPTY_ARGS


class TextTimeEvent(msgspec.Struct, gc=False):
    """The same with `ts` and `dur` as they are written: for decimal times from 2^43 us up."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT
    args: msgspec.Raw = EMPTY_ARGS


class CheckedEvent(msgspec.Struct, gc=False):
    """An event with everything that any table reads, for checking a single one."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: Args | None = None


AnyEvent = Event | TextTimeEvent

decode_events = msgspec.json.Decoder(list[Event]).decode
decode_text_time_events = msgspec.json.Decoder(list[TextTimeEvent]).decode
decode_event = msgspec.json.Decoder(CheckedEvent).decode


class ArgsDecoder:
    """Decodes the args of many events into a Struct of the given fields of `Args`."""

    def __init__(self, fields: set[str]) -> None:
        known = {f.name: f for f in msgspec.structs.fields(Args)}
        wanted = [known[name] for name in Args.__struct_fields__ if name in fields]
        kind = msgspec.defstruct(
            "SomeArgs",
            [(f.name, f.type, f.default) for f in wanted],
            rename={f.name: f.encode_name for f in wanted},
            frozen=True,
            gc=False,
        )
        self._missing = kind()
        self._decode = msgspec.json.Decoder(list[kind | None]).decode  # type: ignore[valid-type]

    def __call__(self, events: list[Any]) -> list[Any]:
        args = self._decode(b"[" + b",".join([e.args for e in events]) + b"]")
        return [a or self._missing for a in args]


FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""What a decoder raises for text it cannot read."""


def _getter(name: str) -> Callable[[list[Any]], list[Any]]:
    # A comprehension of its own for each field: the interpreter specialises each for one slot,
    # and runs it in half the time of map(attrgetter(...)).
    made: Callable[[list[Any]], list[Any]] = eval(f"lambda rows: [row.{name} for row in rows]")
    return made


FIELD = {name: _getter(name) for name in (*Event.__struct_fields__, *Args.__struct_fields__)}
"""Field name to a function that gives that field of many events, or of many args."""
