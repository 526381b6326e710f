"""Encodes the default of a schema's field, which stands as JSON in the schema."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.avro.avro_schema import MISSING, Array, AvroType, Enum, Field, Fixed, Map, Primitive, Record, Union
from spark_kafka_sink.formats.nodes import MisfitError
from spark_kafka_sink.records.varints import varint

_LARGEST: Final = 100_000
_VALUE: Final = 10  # what a value counts beside its bytes


class _TooLargeError(Exception):
    pass


class _Walk:
    """A walk over the defaults of a schema of which nobody knows who wrote it: they may double with each record or union.

    Args:
        most: bytes and values that it may have.
        completes: whether fields that a default does not have get their own default.
    """

    def __init__(self, most: int, *, completes: bool) -> None:
        self._left = most
        self._completes = completes

    def took(self, data: bytes, values: int = 0) -> bytes:
        """Counts bytes and values. Raises _TooLargeError."""
        self._left -= len(data) + _VALUE * values
        if self._left < 0:
            raise _TooLargeError
        return data

    def missing(self, field: Field) -> bytes:
        return self.took(_known(field)) if self._completes else b""


def default_bytes(field: Field) -> bytes:
    """Encodes the default of a field. Raises MisfitError if it is not a value of the type, or too large."""
    try:
        return _known(field)
    except RecursionError:
        raise MisfitError("its default is nested too deeply, or contains itself") from None
    except _TooLargeError:
        raise MisfitError(f"its default, with those of the fields inside, has more than {_LARGEST:,} bytes") from None


def _known(field: Field) -> bytes:
    found = _encoded(field)
    if isinstance(found, Exception):
        raise type(found)(*found.args)
    return found


@lru_cache(maxsize=256)
def _encoded(field: Field) -> bytes | MisfitError | _TooLargeError:
    """Returns the bytes of a field's default, or the error. Both are found once for all records that have the field."""
    try:
        return _default(field.type, field.default, _Walk(_LARGEST, completes=True))
    except (MisfitError, _TooLargeError) as error:
        return error.with_traceback(None)


def check_defaults(schema: AvroType, size: int) -> None:
    """Raises SchemaError for the first field whose default is not a value of its type.

    Args:
        schema: the schema.
        size: characters of its text. Unions of records may need many attempts, which are limited.
    """
    # The defaults of the fields inside are checked by themselves.
    walk = _Walk(2 * _VALUE * size + _LARGEST, completes=False)
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
                    _check_default(field, f"{path}.{field.name}".lstrip("."), walk)


def _check_default(field: Field, path: str, walk: _Walk) -> None:
    if field.default is MISSING:
        return
    try:
        _default(field.type, field.default, walk)
    except (MisfitError, RecursionError, _TooLargeError) as error:
        problem = str(error) if isinstance(error, MisfitError) else "its default is too large or nested too deeply"
        raise SchemaError(f"the Avro schema is not valid: field {path}: {problem}", path=path) from None


def _default(schema: AvroType, value: Any, walk: _Walk) -> bytes:
    walk.took(b"", 1)
    match schema:
        case Union(branches=branches):
            return _of_union(branches, value, walk)
        case Record(fields=fields) if isinstance(value, dict):
            parts = []
            for field in fields:
                if field.name in value:
                    parts.append(_default(field.type, value[field.name], walk))
                elif field.default is MISSING:
                    raise MisfitError(f"its default has no value for the field {field.name}")
                else:
                    parts.append(walk.missing(field))
            return b"".join(parts)
        case Array(items=items) if isinstance(value, list):
            return _block([_default(items, one, walk) for one in value])
        case Map(values=values) if isinstance(value, dict):
            return _block([walk.took(_sized(key.encode())) + _default(values, one, walk) for key, one in value.items()])
        case Enum(symbols=symbols) if isinstance(value, str) and value in symbols:
            return varint(symbols[value])
        case Fixed(size=size) if isinstance(value, str) and len(value) == size:
            return walk.took(_bytes(value))
        case Primitive(kind=kind):
            return walk.took(_primitive(kind, value))
        case _:
            raise MisfitError("its default is not a value of the type")


def _of_union(branches: tuple[AvroType, ...], value: Any, walk: _Walk) -> bytes:
    """Encodes the default as the first type that can hold it. Avro before 1.12 allows only the first of all."""
    for index, branch in enumerate(branches):
        try:
            return varint(index) + _default(branch, value, walk)
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
