"""Makes a column of one row from a Python value, with the types of an Avro schema.

Arrow alone would guess: a float would be a double, and a dict without a key would have a null. A dict makes a struct of exactly
its keys, so that the schema's defaults apply to those that are missing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers.avro.avro_schema import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
)
from spark_kafka_sink.producer.serializers.serializer import refused_value

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_ARROW: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("us"),
    "uuid": pa.string(),
}


def column_of_value(schema: AvroType, value: object) -> pa.Array:
    """Returns a column with one row.

    Args:
        schema: the schema.
        value: a dict, a Row, or a value of a type that the schema has; not None.

    Raises:
        SerializationError: the value does not have the schema's type. The value itself is not shown.
    """
    plain = _plain(value, schema, "")
    try:
        return pa.array([plain], _type(schema, [plain]))
    except _ARROW:
        raise _culprit(plain, schema, "") or SerializationError("the value does not fit the schema") from None


def _present(schema: AvroType) -> AvroType:
    """Returns the type of values other than None."""
    if not isinstance(schema, Union):
        return schema
    others = [branch for branch in schema.branches if not is_null(branch)]
    if len(others) != 1:
        raise SerializationError(f"the union {schema} is not supported for single values; send columns")
    return others[0]


def _plain(value: Any, schema: AvroType, path: str) -> Any:
    """Returns the value with dicts in place of rows, text in place of UUIDs, and times that Arrow reads as meant."""
    if value is None:
        return None
    schema = _present(schema)
    if isinstance(schema, Record):
        types = {field.name: field.type for field in schema.fields}
        pairs = _pairs(value, path)
        for name in pairs:
            if name not in types:
                where = f"{path}.{name}".lstrip(".")
                raise SerializationError(f"{where}: {schema} has no such field; it has {', '.join(types)}", path=where)
        return {name: _plain(inner, types[name], f"{path}.{name}") for name, inner in pairs.items()}
    if isinstance(schema, Array) and isinstance(value, list | tuple):
        return [_plain(inner, schema.items, f"{path}[{place}]") for place, inner in enumerate(value)]
    if isinstance(schema, Map) and isinstance(value, Mapping):
        return [(key, _plain(inner, schema.values, f"{path}[{key}]")) for key, inner in value.items()]
    if isinstance(value, bool) and not (isinstance(schema, Primitive) and schema.kind == "boolean"):
        raise _refused(value, schema, path)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return _moment(value, schema, path)
    return value


def _refused(value: object, schema: AvroType, path: str) -> SerializationError:
    error = refused_value(value, f"a value of {schema}")
    where = path.lstrip(".")
    return SerializationError(f"{where}: {error.message}" if where else error.message, **error.facts, path=where)


def _culprit(value: Any, schema: AvroType, path: str) -> SerializationError | None:
    """Returns the error about the first part of a plain value that Arrow refuses. Arrow's own text shows the value."""
    if value is None:
        return None
    schema = _present(schema)
    parts: Iterable[tuple[str, Any, AvroType]]
    match schema:
        case Record(fields=fields):
            parts = [(f"{path}.{field.name}", value[field.name], field.type) for field in fields if field.name in value]
        case Array(items=items) if isinstance(value, list):
            parts = [(f"{path}[{place}]", inner, items) for place, inner in enumerate(value)]
        case Map(values=values) if isinstance(value, list):
            parts = [(f"{path}[{key}]", inner, values) for key, inner in value]
        case _:
            try:
                pa.array([value], _type(schema, [value]))
            except _ARROW:
                return _refused(value, schema, path)
            return None
    return next(filter(None, (_culprit(inner, kind, where) for where, inner, kind in parts)), None)


def _moment(value: datetime.datetime, schema: AvroType, path: str) -> datetime.datetime:
    """Returns a time as Arrow reads it. One without a zone is local time, as in the JSON serializer."""
    logical = "" if not isinstance(schema, Primitive) or schema.logical is None else schema.logical.name
    if logical.startswith("timestamp-"):
        return value.astimezone(datetime.UTC)
    if not logical.startswith("local-timestamp-"):
        raise _refused(value, schema, path)
    if value.tzinfo is not None:
        where = path.lstrip(".")
        raise SerializationError(f"{where}: a datetime with a time zone is not {logical}; remove the zone", path=where)
    return value


def _pairs(value: Any, path: str) -> dict[str, Any]:
    """Returns the fields of a dict, or of a Row or named tuple. Raises SerializationError for another class."""
    if isinstance(value, Mapping):
        return dict(value)
    names: Sequence[str] | None = getattr(value, "__fields__", None) or getattr(value, "_fields", None)
    if not isinstance(value, tuple) or names is None:
        where = path.lstrip(".")
        error = refused_value(value, "a dict, a Row or a named tuple, because the schema is a record")
        raise SerializationError(f"{where}: {error.message}" if where else error.message, **error.facts, path=where)
    return dict(zip(names, value, strict=True))


def _type(schema: AvroType, values: Sequence[Any]) -> pa.DataType:
    """Returns the Arrow type of plain values of a schema. A struct has the fields that any of the values has."""
    present = [value for value in values if value is not None]
    schema = _present(schema) if present else schema
    if not present and isinstance(schema, Union):
        return pa.null()
    if isinstance(schema, Record):
        fields = [field for field in schema.fields if any(field.name in value for value in present)]
        inner = [[value.get(field.name) for value in present] for field in fields]
        return pa.struct([(field.name, _type(field.type, own)) for field, own in zip(fields, inner, strict=True)])
    if isinstance(schema, Array):
        return pa.list_(_type(schema.items, [inner for value in present for inner in value]))
    if isinstance(schema, Map):
        return pa.map_(pa.string(), _type(schema.values, [inner for value in present for _, inner in value]))
    if isinstance(schema, Enum):
        return pa.string()
    if isinstance(schema, Primitive | Fixed) and schema.logical is not None and schema.logical.name == "decimal":
        wide = pa.decimal256 if schema.logical.precision > 38 else pa.decimal128
        return wide(schema.logical.precision, schema.logical.scale)
    if isinstance(schema, Fixed):
        return pa.string() if any(isinstance(value, str) for value in present) else pa.binary()
    assert isinstance(schema, Primitive)
    return _PRIMITIVES[schema.kind] if schema.logical is None else _LOGICAL.get(schema.logical.name, _PRIMITIVES[schema.kind])
