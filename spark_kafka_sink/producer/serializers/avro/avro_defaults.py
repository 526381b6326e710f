"""Encodes the default of a schema's field, which stands as JSON in the schema."""

from __future__ import annotations

import struct
from typing import Any

from spark_kafka_sink.producer.serializers.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from spark_kafka_sink.producer.serializers.schemas.kernel import MisfitError
from spark_kafka_sink.records.varints import varint


def default_bytes(schema: AvroType, value: Any) -> bytes:
    """Encodes a default. Raises MisfitError if it is not a value of the type."""
    try:
        return _default(schema, value)
    except RecursionError:
        raise MisfitError("its default is nested too deeply, or contains itself") from None


def _default(schema: AvroType, value: Any) -> bytes:
    match schema:
        case Union(branches=branches):
            return _of_union(branches, value)
        case Record(fields=fields) if isinstance(value, dict):
            parts = []
            for field in fields:
                own = value.get(field.name, field.default)
                if own is MISSING:
                    raise MisfitError(f"its default has no value for the field {field.name}")
                parts.append(_default(field.type, own))
            return b"".join(parts)
        case Array(items=items) if isinstance(value, list):
            return _block([_default(items, one) for one in value])
        case Map(values=values) if isinstance(value, dict):
            return _block([_sized(key.encode()) + _default(values, one) for key, one in value.items()])
        case Enum(symbols=symbols) if isinstance(value, str) and value in symbols:
            return varint(symbols.index(value))
        case Fixed(size=size) if isinstance(value, str) and len(value) == size:
            return _bytes(value)
        case Primitive(kind=kind):
            return _primitive(kind, value)
        case _:
            raise MisfitError("its default is not a value of the type")


def _of_union(branches: tuple[AvroType, ...], value: Any) -> bytes:
    """Encodes the default as the first type that can hold it. Avro before 1.12 allows only the first of all."""
    for index, branch in enumerate(branches):
        try:
            return varint(index) + _default(branch, value)
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
