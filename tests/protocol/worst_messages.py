"""Messages that cost a reader most: a single array of the smallest elements, once for each array that a message has."""

from __future__ import annotations

import dataclasses
import struct
import uuid
from collections.abc import Iterator
from typing import Any

from spark_kafka_sink.protocol.fields import (
    ArrayOf,
    BytesType,
    FixedType,
    RecordsType,
    StringType,
    UuidType,
    WireType,
    wire_fields,
)

Path = tuple[str, ...]


def array_paths(cls: type, version: int) -> Iterator[Path]:
    """Yields the names of the fields that lead to each array."""
    for field in wire_fields(cls):
        if not field.is_in(version):
            continue
        kind = field.wire.type
        element = kind.element if isinstance(kind, ArrayOf) else kind
        if isinstance(kind, ArrayOf):
            yield (field.name,)
        if isinstance(element, type):
            yield from ((field.name, *path) for path in array_paths(element, version))


def worst_message(cls: type, version: int, path: Path, count: int) -> Any:
    """Returns a message with `count` elements in the array at `path`, and as little as possible elsewhere."""
    values = {}
    for field in wire_fields(cls):
        if not field.is_in(version):
            continue
        kind = field.wire.type
        if not path or field.name != path[0]:
            if field.wire.tag is None:
                values[field.name] = _smallest(kind, version)
        elif not isinstance(kind, ArrayOf):
            assert dataclasses.is_dataclass(kind)
            values[field.name] = worst_message(kind, version, path[1:], count)  # type: ignore[arg-type]
        elif len(path) == 1:
            values[field.name] = [_large_number(kind.element) or _smallest(kind.element, version)] * count
        else:
            assert isinstance(kind.element, type)
            values[field.name] = [worst_message(kind.element, version, path[1:], count)]
    return cls(**values)


def _large_number(kind: WireType) -> int | None:
    """Returns a number that Python does not keep ready, as it does small ones."""
    return 1_000_003 % (1 << 8 * struct.calcsize(kind.code) - 1) if isinstance(kind, FixedType) else None


def _smallest(kind: WireType, version: int) -> Any:
    match kind:
        case FixedType(code=code):
            return False if code == "?" else 0
        case StringType():
            return ""
        case UuidType():
            return uuid.UUID(int=5)
        case BytesType():
            return b""
        case RecordsType():
            return (b"",)
        case ArrayOf():
            return ()
        case _:
            return worst_message(kind, version, (), 0)
