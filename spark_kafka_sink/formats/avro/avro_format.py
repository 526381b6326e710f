"""Avro as a format of schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.avro.avro_fit import fit, natural
from spark_kafka_sink.formats.avro.avro_schema import Primitive, full_name, parse
from spark_kafka_sink.formats.avro.avro_single import encode_value
from spark_kafka_sink.formats.nodes import Derivation, check_full_name, comment_of, unused
from spark_kafka_sink.formats.schema_format import NAME_DIFFERS, ColumnPlan, Latest, LoadedSchema, SchemaFormat, compared
from spark_kafka_sink.producer.serializers.arrays import binary_array, is_list, is_text, joined
from spark_kafka_sink.records.arrow_arrays import offsets_of, scalar_of_bytes, valid_mask

_INLINE: Final = "confluent:rules"


class AvroFormat(SchemaFormat):
    """Avro. References name a type by its full name."""

    name = "avro"
    kind = "AVRO"

    def derived(self, kind: pa.DataType, name: str, latest: Latest) -> str:
        return derive(kind, name)

    def differences(self, old: str, new: str) -> list[str]:
        return differences(old, new)

    def inline_rules(self, text: str) -> list[str]:
        found: list[str] = []

        def seen(pairs: dict[str, Any]) -> dict[str, Any]:
            if pairs.get(_INLINE):
                found.append(f"{pairs.get('name', 'a type')} ({_INLINE})")
            return pairs

        try:
            json.loads(text, object_hook=seen)
        except (ValueError, RecursionError):  # the bare name of a primitive type; anything else is refused as a schema
            return [_INLINE] if _INLINE in text else []
        return found


class LoadedAvro(LoadedSchema):
    """An Avro schema."""

    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        self._tree = parse(text, named)
        self.record_name = full_name(self._tree)
        # Confluent's serializers write a whole value of this type without its length, and their deserializers read it so.
        self._is_bytes = isinstance(self._tree, Primitive) and self._tree.kind == "bytes"

    def fit(self, kind: pa.DataType) -> ColumnPlan:
        plan = fit(self._tree, kind)
        return WholeBytesPlan(plan) if self._is_bytes else plan

    def encode_value(self, value: Any, prefix: bytes = b"") -> bytes | None:
        if not self._is_bytes:
            return encode_value(self._tree, value, prefix)
        data = encode_value(self._tree, value)
        return None if data is None else prefix + data[int(_varint_widths(np.array([len(data)]))[0]) :]


@dataclass(frozen=True, slots=True)
class WholeBytesPlan(ColumnPlan):
    """How to encode columns whose rows are Avro's bytes, and not part of a record: without their length."""

    _plan: ColumnPlan

    def encode(self, column: pa.Array, prefix: bytes = b"") -> pa.Array:
        encoded = self._plan.encode(column)
        offsets = offsets_of(encoded).astype(np.int64)
        sizes = np.diff(offsets)
        widths = np.where(sizes > 0, _varint_widths(sizes), 0)
        kept = np.ones(int(offsets[-1] - offsets[0]), np.bool_)
        for place in range(int(widths.max(initial=0))):
            kept[offsets[:-1][widths > place] - offsets[0] + place] = False
        ends = np.zeros(len(offsets), np.int64)
        np.cumsum(sizes - widths, out=ends[1:])
        data = np.frombuffer(encoded.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]][kept]
        bare = binary_array(data, ends, valid_mask(encoded))
        return joined(scalar_of_bytes(prefix, bare.type), bare) if prefix else bare


def _varint_widths(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the number of bytes of the length before bytes that take `sizes` bytes with it."""
    widths = np.ones(len(sizes), np.int64)
    for width in range(1, 5):  # bytes of a length below 2 GiB, but for the last one
        widths += sizes - width >= 1 << (7 * width - 1)
    return widths


def differences(old: str, new: str) -> list[str]:
    """Returns what `SchemaFormat.differences` does."""
    try:
        schemas = [json.loads(text) for text in (old, new)]
        before, after = (dict(_fields(schema, "", set())) for schema in schemas)
    except (ValueError, TypeError, KeyError, RecursionError):  # another format, or no valid schema
        return []
    was, now = map(_record_name, schemas)
    name = [f"{NAME_DIFFERS}: was {was}, is {now}"] if was is not None and now is not None and was != now else []
    was_kind, is_kind = ({path: kind for path, (kind, _) in fields.items()} for fields in (before, after))
    return name + compared(was_kind, is_kind, {path: f", {default} a default" for path, (_, default) in after.items()})


def _record_name(schema: Any) -> str | None:
    """Returns the full name of a record. Readers find records by it, so a registry refuses another one."""
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error") or not isinstance(schema.get("name"), str):
        return None
    name, namespace = schema["name"], schema.get("namespace")
    return f"{namespace}.{name}" if isinstance(namespace, str) and namespace and "." not in name else name


def _fields(schema: Any, path: str, known: set[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the fields of all records below a type. `known` has the records that were met, so recursion ends."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _fields(branch, path, known)
        return
    if not isinstance(schema, dict):
        return
    kind = schema["type"]
    if kind == "array":
        yield from _fields(schema["items"], f"{path}[]", known)
    elif kind == "map":
        yield from _fields(schema["values"], f"{path}{{}}", known)
    elif kind == "record":
        if schema["name"] in known:
            return
        known.add(schema["name"])
        for field in schema["fields"]:
            inner = f"{path}.{field['name']}".lstrip(".")
            yield inner, (_kind(field["type"]), "with" if "default" in field else "without")
            yield from _fields(field["type"], inner, known)
    elif not isinstance(kind, str):
        yield from _fields(kind, path, known)


def _kind(schema: Any) -> str:
    """Returns a type in words. A record inside has its fields on lines of their own."""
    if isinstance(schema, list):
        return " or ".join(map(_kind, schema))
    if not isinstance(schema, dict):
        return str(schema)
    kind = schema["type"]
    if "logicalType" in schema:
        details = ", ".join(f"{schema[name]}" for name in ("precision", "scale") if name in schema)
        return f"{schema['logicalType']}({details}) in {_base(schema)}" if details else f"{schema['logicalType']}"
    if kind == "array":
        return f"array of {_kind(schema['items'])}"
    if kind == "map":
        return f"map of {_kind(schema['values'])}"
    return _base(schema)


def _base(schema: dict[str, Any]) -> str:
    kind = schema["type"]
    if kind == "fixed":
        return f"fixed({schema['size']}) {schema['name']}"
    if kind == "enum":
        return f"enum {schema['name']} of {', '.join(schema['symbols'])}"
    return f"{kind} {schema['name']}" if kind == "record" else _kind(kind)


# Deriving a schema


def derive(kind: pa.DataType, name: str) -> str:
    """Derives a schema, as JSON text.

    A nullable field becomes a union of null and its type, with null as its default. A nested record is named after its path: the
    field `address` of the record `order` is the record `order_address`. The field metadata `comment` becomes `doc`.

    Args:
        kind: type of the column; a struct becomes a record.
        name: name of the record, with its namespace if it has one.

    Raises:
        SchemaError: Avro has no such name or type. The text names each column.
    """
    check_full_name(name, "Avro")
    walk = _Derivation()
    found = walk.type_of(kind, name, "")
    walk.end("Avro")
    return json.dumps(found, ensure_ascii=False)


class _Derivation(Derivation):
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
