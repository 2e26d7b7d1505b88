"""Chakra execution traces: protocol buffers with a node for each operation of one rank.

A file is messages, each after its length: metadata, then nodes. The few fields that matter are read and
written here, for the package of the format is not on PyPI. Times are whole microseconds; an attribute of
ours beside them has nanoseconds, and rounding never moves the end of a rank by more than half a microsecond.

Source: mlcommons/chakra, schema/protobuf/et_def.proto; astra-sim, astra-sim/workload/Workload.cc.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from umm.errors import InputError
from umm.profiles.kernel import MULTIPLY, SEND, Kernel, Profile, kind_of
from umm.profiles.kineto import multiplied

COMP, SENDS, RECEIVES, COLLECTIVE = 4, 5, 6, 7  # types of nodes that take time on a device
COMM_TYPES = {
    "all-reduce": 0, "reduce": 1, "all-gather": 2, "broadcast": 5, "all-to-all": 6, "reduce-scatter": 7,
}  # fmt: skip
VERSION = "0.0.4"
NANOS = "duration_nanos"
_NAMES = {number: name for name, number in COMM_TYPES.items()} | {3: SEND, 4: SEND, 8: "reduce-scatter"}
"""Kinds by the format's number; gathers and scatters to one rank are NCCL's sends."""
_BLOCKS, _DEEPEST = (1, 5), 64  # wire types with 8 and 4 bytes; bits of the longest number


class Node(NamedTuple):
    """One operation."""

    id: int  # its number within the rank's trace, from 1
    name: str
    type: int  # of the four above
    start: float  # seconds since the start
    seconds: float
    after: tuple[int, ...] = ()  # numbers of nodes that it waits for
    # By name: whole numbers, switches and texts.
    attributes: dict[str, int | bool | str] = {}  # noqa: RUF012  # never changed
    shapes: str = ""  # sizes of its operands, as Kineto writes them


def is_chakra(content: bytes) -> bool:
    """Whether bytes start as a Chakra trace does: metadata with a version."""
    try:
        first = next(_messages(content))
        return any(number == 1 and isinstance(value, bytes) for number, value in _fields(first))
    except (InputError, StopIteration):
        return False


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(content) or shift >= _DEEPEST:
            raise InputError("the Chakra trace ends or breaks within a number")
        byte = content[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at


def _messages(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size, at = _varint(content, at)
        if size > len(content) - at:
            raise InputError("the Chakra trace ends within a message")
        yield content[at : at + size]
        at += size


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message: numbers, and bytes of texts and messages."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in _BLOCKS:
            size = 8 if wire == 1 else 4
        else:
            raise InputError(f"the Chakra trace has a field of wire type {wire}, which is unknown")
        if size > len(message) - at:
            raise InputError("the Chakra trace ends within a field")
        yield number, message[at : at + size]
        at += size


def _text(value: int | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _node(message: bytes) -> Node:
    ident = kind = start = micros = 0
    name, shapes, after = "", "", []
    attributes: dict[str, int | bool | str] = {}
    for number, value in _fields(message):
        if isinstance(value, int):
            ident, kind = (value if number == 1 else ident), (value if number == 3 else kind)
            start, micros = (value if number == 6 else start), (value if number == 7 else micros)
            after += [value] if number in (4, 5) else []
        elif number == 2:
            name = _text(value)
        elif number in (4, 5):
            at = 0
            while at < len(value):
                dependency, at = _varint(value, at)
                after.append(dependency)
        elif number == 8:
            shapes = next((_text(x) for n, x in _fields(value) if n == 2), "")
        elif number == 10:
            key, content = "", cast("int | str", 0)
            for n, item in _fields(value):
                if n == 1:
                    key = _text(item)
                elif n == 29:
                    content = _text(item)
                elif isinstance(item, int):
                    # Numbers with a sign are stored as their difference from none: zigzag.
                    content = (item >> 1) ^ -(item & 1) if n in (15, 17) else item
            attributes[key] = content
    nanos = attributes.get(NANOS)
    seconds = nanos / 1e9 if isinstance(nanos, int) else micros / 1e6
    return Node(ident, name, kind, start / 1e6, seconds, tuple(after), attributes, shapes)


def nodes_of(content: bytes) -> list[Node]:
    """Return the nodes of a trace; InputError if it breaks off, or is no such trace."""
    messages = _messages(content)
    next(messages, None)
    return [_node(x) for x in messages]


def profile_of(content: bytes) -> Profile:
    """Return the kernels of a trace: nodes that take time on its device; InputError if none do."""
    kernels = [
        _kernel(x)
        for x in nodes_of(content)
        if x.type in (COMP, SENDS, RECEIVES, COLLECTIVE) and x.seconds and not x.attributes.get("is_cpu_op")
    ]
    if not kernels:
        raise InputError("no node of the Chakra trace takes time on a device")
    return Profile(tuple(sorted(kernels, key=lambda x: x.start)), source="chakra")


def _kernel(node: Node) -> Kernel:
    attributes = node.attributes
    size, ranks = attributes.get("comm_size", 0), attributes.get("comm_ranks", 0)
    nbytes = size if isinstance(size, int) else 0
    plain = Kernel(kind_of(node.name), node.name, node.seconds, start=node.start)
    if node.type == COLLECTIVE:
        number = attributes.get("comm_type", 0)
        kind = _NAMES.get(number, "all-reduce") if isinstance(number, int) else "all-reduce"
        return plain._replace(kind=kind, nbytes=nbytes, ranks=ranks if isinstance(ranks, int) else 0)
    if node.type in (SENDS, RECEIVES):
        return plain._replace(kind=SEND, nbytes=nbytes)
    if plain.kind == MULTIPLY and node.shapes:
        try:
            return plain._replace(shape=multiplied(node.name, json.loads(node.shapes)))
        except (ValueError, RecursionError):
            return plain
    return plain


def _coded(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _coded(number << 3) + _coded(value)
    return _coded(number << 3 | 2) + _coded(len(value)) + value


def _written(node: Node) -> bytes:
    start, end = round(node.start * 1e6), round((node.start + node.seconds) * 1e6)
    parts = [
        _field(1, node.id), _field(2, node.name.encode("utf-8", "replace")), _field(3, node.type),
        *([_field(5, b"".join(map(_coded, node.after)))] if node.after else []),
        _field(6, start), _field(7, end - start),
    ]  # fmt: skip
    if node.shapes:
        parts.append(_field(8, _field(2, node.shapes.encode())))
    attributes: dict[str, Any] = {"is_cpu_op": False, NANOS: round(node.seconds * 1e9), **node.attributes}
    for name, value in attributes.items():
        if isinstance(value, bool):
            item = _field(27, int(value))
        elif isinstance(value, int):
            item = _field(13, value)
        else:
            item = _field(29, value.encode("utf-8", "replace"))
        parts.append(_field(10, _field(1, name.encode()) + item))
    return b"".join(parts)


def written(nodes: Iterable[Node]) -> bytes:
    """Return nodes as a Chakra trace.

    >>> node = Node(1, "gemm", COMP, 0.0, 1.5e-6, attributes={"num_ops": 2**40})
    >>> [(x.name, x.seconds, x.attributes["num_ops"]) for x in nodes_of(written([node]))]
    [('gemm', 1.5e-06, 1099511627776)]
    """
    messages = [_field(1, VERSION.encode()), *map(_written, nodes)]
    return b"".join(_coded(len(x)) + x for x in messages)
