"""The destination of a write: brokers, topic, fields of its records, and its trace. The driver makes it, for exporters. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from spark_kafka_sink.installation import SameVersion

if TYPE_CHECKING:
    from spark_kafka_sink.options.sink_options import SinkOptions
    from spark_kafka_sink.spark.schema import SinkSchema


@dataclass(frozen=True, slots=True)
class Field(SameVersion):
    """A field of a record.

    Attributes:
        name: Its name.
        type: Its type, in the words of Spark or of the schema's format.
        text: Its comment; empty if it has none.
        fields: Those of a struct.
    """

    name: str
    type: str
    text: str = ""
    fields: tuple[Field, ...] = ()

    def to_list(self) -> list[Any]:
        """Returns the field as a list for JSON."""
        return [self.name, self.type, self.text, [one.to_list() for one in self.fields]]

    @staticmethod
    def from_list(values: Sequence[Any]) -> Field:
        """Reads what `to_list` returns. Raises ValueError or TypeError for other values."""
        name, kind, text, fields = values
        return Field(str(name), str(kind), str(text), tuple(Field.from_list(one) for one in fields))


@dataclass(frozen=True, slots=True)
class Destination(SameVersion):
    """The place that the rows of a write go to. It holds no secret.

    Attributes:
        servers: The bootstrap servers, "host:port" each.
        topic: The topic of all rows; None if a column names it.
        letters: The dead-letter topic; None if there is none.
        fields: The columns that are written, or the fields of the value's schema.
        context: The traceparent of the batch's span, if it is in the headers of the batch's records.
        parent: The traceparent of the span above that one.
    """

    servers: tuple[str, ...]
    topic: str | None = None
    letters: str | None = None
    fields: tuple[Field, ...] = ()
    context: str = ""
    parent: str = ""

    def to_list(self) -> list[Any]:
        """Returns the destination as a list for JSON."""
        return [self.servers, self.topic, self.letters, [one.to_list() for one in self.fields], self.context, self.parent]

    @staticmethod
    def from_list(values: Sequence[Any]) -> Destination:
        """Reads what `to_list` returns. Raises ValueError or TypeError for other values."""
        servers, topic, letters, fields, context, parent = values
        made = tuple(Field.from_list(one) for one in fields)
        return Destination(tuple(map(str, servers)), _text(topic), _text(letters), made, str(context), str(parent))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def destination(options: SinkOptions, columns: SinkSchema, schema: t.StructType) -> Destination:
    """Returns the destination of a write.

    Its fields are those of the value's schema, if a registry has it. Otherwise they are the columns that are written, as
    OpenLineage's agent for Spark has them for Spark's own Kafka sink.

    Args:
        options: The sink's options, with the schemas of a registry.
        columns: The record's columns.
        schema: The DataFrame's columns, to which `columns` refers.
    """
    found = schema_fields(getattr(options.producer.value_serializer, "schema", None))
    fields = found or spark_fields(schema.fields[place] for place in sorted(columns.places()))
    servers, trace = options.producer.bootstrap_servers, options.record.trace
    return Destination(servers, options.topic, options.errors.topic, fields, trace.context, trace.parent)


def spark_fields(fields: Iterable[t.StructField]) -> tuple[Field, ...]:
    """Returns columns of a DataFrame as fields."""
    return tuple(
        Field(
            one.name,
            "struct" if isinstance(one.dataType, t.StructType) else one.dataType.simpleString(),
            str((one.metadata or {}).get("comment", "")),
            spark_fields(one.dataType.fields) if isinstance(one.dataType, t.StructType) else (),
        )
        for one in fields
    )


def schema_fields(schema: object) -> tuple[Field, ...]:
    """Returns the fields of an Avro record or a JSON object. Empty for anything else, such as Protobuf, and without a schema."""
    from spark_kafka_sink.formats.schema_serializer import ResolvedSchema  # 40 ms, and for writes only

    if not isinstance(schema, ResolvedSchema) or schema.format not in ("avro", "json-schema"):
        return ()
    try:
        found = json.loads(schema.text)
        return _avro(found) if schema.format == "avro" else _json(found)
    except (ValueError, KeyError, TypeError, AttributeError):  # whatever form the text has, the write goes on
        return ()


def _avro(found: Any) -> tuple[Field, ...]:
    if not isinstance(found, dict) or found.get("type") != "record":
        return ()
    return tuple(
        Field(str(one["name"]), _avro_type(one["type"]), str(one.get("doc", "")), _avro(_only(one["type"])))
        for one in found["fields"]
    )


def _only(kind: Any) -> Any:
    """Returns the type that may be null, or the type itself."""
    others = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    return others[0] if len(others) == 1 else kind


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        return "union<" + ",".join(map(_avro_type, kind)) + ">"
    if not isinstance(kind, dict):
        return str(kind)
    inner = kind.get("items", kind.get("values"))
    return str(kind.get("logicalType") or kind["type"]) + ("" if inner is None else f"<{_avro_type(inner)}>")


def _json(found: Any) -> tuple[Field, ...]:
    properties = found.get("properties") if isinstance(found, dict) else None
    if not isinstance(properties, dict):
        return ()
    return tuple(Field(name, _json_type(one), _json_text(one), _json(one)) for name, one in properties.items())


def _json_type(found: Any) -> str:
    kind = found.get("type", "any") if isinstance(found, dict) else "any"
    return "union<" + ",".join(map(str, kind)) + ">" if isinstance(kind, list) else str(kind)


def _json_text(found: Any) -> str:
    return str(found.get("description", "")) if isinstance(found, dict) else ""
