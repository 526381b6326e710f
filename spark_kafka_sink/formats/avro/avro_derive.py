"""Derives an Avro schema from the type of a column."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from spark_kafka_sink.formats.avro.avro_schema import Array, AvroType, Fixed, Map, Primitive, Record
from spark_kafka_sink.formats.fit import Derivation, check_full_name, comment_of, unused
from spark_kafka_sink.producer.serializers.arrays import is_list, is_text, is_uuid

_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def derive(kind: pa.DataType, name: str, *, nullable: bool = False) -> str:
    """Derives a schema, as JSON text.

    A nullable field becomes a union of null and its type, with null as its default. A nested record is named after its path: the
    field `address` of the record `order` is the record `order_address`. The field metadata `comment` becomes `doc`.

    Args:
        kind: type of the column; a struct becomes a record.
        name: name of the record, with its namespace if it has one.
        nullable: whether the value itself becomes a union with null.

    Raises:
        SchemaError: Avro has no such name or type. The text names each column.
    """
    check_full_name(name, "Avro")
    walk = _Walk()
    found = walk.type_of(kind, name, "")
    walk.end("Avro")
    return json.dumps(["null", found] if nullable and found != "null" else found, ensure_ascii=False)


def natural(kind: pa.DataType) -> str | dict[str, Any] | None:
    """Returns the Avro type, as JSON, of a type without parts and without a name; None: there is none."""
    for fits, schema in _PLAIN:
        if fits(kind):
            return schema
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": max(kind.precision, kind.scale), "scale": kind.scale}
    if pa.types.is_time(kind):
        base, unit = ("int", "millis") if pa.types.is_time32(kind) else ("long", "micros")
        return {"type": base, "logicalType": f"time-{unit}"}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'local-' if kind.tz is None else ''}timestamp-{_UNITS[kind.unit]}"}
    return None


def is_natural(schema: AvroType, kind: pa.DataType) -> bool:
    """Returns whether `schema` is the type that would be derived, but for names and fields."""
    match schema:
        case Record():
            return bool(pa.types.is_struct(kind))
        case Array():
            return is_list(kind)
        case Map():
            return bool(pa.types.is_map(kind))
        case Fixed(logical=None):
            return bool(pa.types.is_fixed_size_binary(kind))
        case Primitive():
            derived = natural(kind)
            logical = None if schema.logical is None else schema.logical.name
            if isinstance(derived, dict):
                return bool(derived["type"] == schema.kind and derived["logicalType"] == logical)
            return derived == schema.kind and logical is None
        case _:
            return False


class _Walk(Derivation):
    """Walks over a type. It keeps the names of records, because `a_b.c` and `a.b_c` would be one."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()

    def type_of(self, kind: pa.DataType, name: str, path: str) -> Any:
        if pa.types.is_dictionary(kind):
            return self.type_of(kind.value_type, name, path)
        if pa.types.is_struct(kind):
            return self._record(kind, name, path)
        if is_list(kind):
            return {"type": "array", "items": self._field_type(kind.value_field, name, f"{path}[]")}
        if pa.types.is_map(kind):
            if not is_text(kind.key_type):
                self.problem(path, f"the keys of a map are {kind.key_type}, must be string")
            return {"type": "map", "values": self._field_type(kind.item_field, name, f"{path}[]")}
        if pa.types.is_fixed_size_binary(kind):
            return {"type": "fixed", "name": unused(name, self._names, "_"), "size": kind.byte_width}
        found = natural(kind)
        if found is None:
            self.problem(path, f"Avro has no type for {kind}: cast it, for example to string")
        return found

    def _record(self, kind: pa.DataType, name: str, path: str) -> dict[str, Any]:
        record = unused(name, self._names, "_")
        fields: list[dict[str, Any]] = []
        for index in range(kind.num_fields):
            field = kind.field(index)
            inside = f"{path}.{field.name}"
            self.check_name(field.name, inside, "Avro")
            if any(one["name"] == field.name for one in fields):
                self.problem(inside, "two columns have this name")
            found = {"name": field.name, "type": self._field_type(field, f"{name}_{field.name}", inside)}
            if isinstance(found["type"], list):
                found["default"] = None
            if comment := comment_of(field):
                found["doc"] = comment
            fields.append(found)
        return {"type": "record", "name": record, "fields": fields}

    def _field_type(self, field: pa.Field, name: str, path: str) -> Any:
        found = self.type_of(field.type, name, path)
        return ["null", found] if field.nullable and found != "null" else found


_PLAIN = (
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (lambda kind: pa.types.is_integer(kind) and (kind.bit_width < 32 or kind == pa.int32()), "int"),
    (pa.types.is_integer, "long"),
    (lambda kind: kind in (pa.float16(), pa.float32()), "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind), "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
    (is_uuid, {"type": "string", "logicalType": "uuid"}),
)
