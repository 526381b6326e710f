"""Encodes the default of a schema's field, which stands as JSON in the schema."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.producer.serializers.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from spark_kafka_sink.producer.serializers.schemas.kernel import MisfitError
from spark_kafka_sink.records.varints import varint

Missing = Callable[[Field], bytes]
"""Returns the bytes of a record's field that a default does not have, from the field's own default."""


def default_bytes(schema: AvroType, value: Any) -> bytes:
    """Encodes a default. Raises MisfitError if it is not a value of the type."""

    def missing(field: Field) -> bytes:
        return _default(field.type, field.default, missing)

    try:
        return _default(schema, value, missing)
    except RecursionError:
        raise MisfitError("its default is nested too deeply, or contains itself") from None


def check_defaults(schema: AvroType) -> None:
    """Raises SchemaError for the first field whose default is not a value of its type."""
    waiting: list[tuple[str, AvroType]] = [("", schema)]
    seen: set[int] = set()
    while waiting:
        path, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        match one:
            case Union(branches=branches):
                waiting += [(path, branch) for branch in branches]
            case Array(items=inner) | Map(values=inner):
                waiting.append((f"{path}[]", inner))
            case Record(fields=fields):
                waiting += [(f"{path}.{field.name}", field.type) for field in fields]
                for field in fields:
                    _check_default(field, f"{path}.{field.name}".lstrip("."))


def _check_default(field: Field, path: str) -> None:
    if field.default is MISSING:
        return
    try:
        # The defaults of the fields inside are checked by themselves: with them, bytes may double with each record.
        _default(field.type, field.default, lambda _: b"")
    except (MisfitError, RecursionError) as error:
        problem = str(error) if isinstance(error, MisfitError) else "its default is nested too deeply"
        raise SchemaError(f"the Avro schema is not valid: field {path}: {problem}", path=path) from None


def _default(schema: AvroType, value: Any, missing: Missing) -> bytes:
    match schema:
        case Union(branches=branches):
            return _of_union(branches, value, missing)
        case Record(fields=fields) if isinstance(value, dict):
            parts = []
            for field in fields:
                if field.name in value:
                    parts.append(_default(field.type, value[field.name], missing))
                elif field.default is MISSING:
                    raise MisfitError(f"its default has no value for the field {field.name}")
                else:
                    parts.append(missing(field))
            return b"".join(parts)
        case Array(items=items) if isinstance(value, list):
            return _block([_default(items, one, missing) for one in value])
        case Map(values=values) if isinstance(value, dict):
            return _block([_sized(key.encode()) + _default(values, one, missing) for key, one in value.items()])
        case Enum(symbols=symbols) if isinstance(value, str) and value in symbols:
            return varint(symbols.index(value))
        case Fixed(size=size) if isinstance(value, str) and len(value) == size:
            return _bytes(value)
        case Primitive(kind=kind):
            return _primitive(kind, value)
        case _:
            raise MisfitError("its default is not a value of the type")


def _of_union(branches: tuple[AvroType, ...], value: Any, missing: Missing) -> bytes:
    """Encodes the default as the first type that can hold it. Avro before 1.12 allows only the first of all."""
    for index, branch in enumerate(branches):
        try:
            return varint(index) + _default(branch, value, missing)
        except MisfitError:
            continue
    raise MisfitError("its default is not a value of any type of the union")


def _primitive(kind: str, value: Any) -> bytes:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return b"\1" if value else b"\0"
    is_whole = is_number and (isinstance(value, int) or value.is_integer())
    if kind in ("int", "long") and is_whole and -1 <= int(value) >> (31 if kind == "int" else 63) <= 0:
        return varint(int(value))
    if kind in ("float", "double") and is_number:
        try:
            return struct.pack("<f" if kind == "float" else "<d", value)
        except OverflowError:
            raise MisfitError(f"its default is out of range for {kind}") from None
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode(errors="replace"))
    if kind == "bytes" and isinstance(value, str):
        return _sized(_bytes(value))
    raise MisfitError("its default is not a value of the type")


def _bytes(text: str) -> bytes:
    """Returns the bytes that Avro writes as the characters U+0000 to U+00FF."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise MisfitError("its default has a character above U+00FF") from None


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return b"".join([varint(len(items)), *items, b"\0"]) if items else b"\0"
