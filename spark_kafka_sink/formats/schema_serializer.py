"""The serializer that writes with a resolved schema. Tasks do not connect to the registry."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.schema_format import ColumnPlan, LoadedSchema, loaded_schema
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import null_column
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.records.columns import FixedHeaders


class SchemaSerializer(SameVersion, Serializer):
    """Writes columns and single values in the schema's format, after its id. Null rows stay null.

    Equal schemas make equal serializers, and pickles hold the schema alone.

    Attributes:
        schema: the schema and its id.
    """

    wanted = "columns that fit the schema"

    def __init__(self, schema: ResolvedSchema) -> None:
        self.schema = schema
        self._loaded: LoadedSchema | None = None
        self._plans: dict[pa.DataType, ColumnPlan] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"schema": self.schema}

    def __setstate__(self, state: dict[str, ResolvedSchema]) -> None:
        self.schema = state["schema"]
        self._loaded = None
        self._plans = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaSerializer) and other.schema == self.schema

    def __hash__(self) -> int:
        return hash(self.schema)

    def accepts(self, kind: pa.DataType) -> None:
        if pa.types.is_null(kind):
            return
        try:
            self._plan(kind)
        except SchemaError as error:
            raise SerializationError(error.message, **error.facts) from None

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        return self._plan(column.type).encode(column, self._prefix())

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return self._written().encode_value(value, self._prefix())

    @property
    def own_headers(self) -> tuple[str, ...]:
        return (id_header_name(self.schema.part),)

    @property
    def adds_headers(self) -> bool:
        return self.schema.guid is not None

    def headers_of(self, topic: str, kind: pa.DataType | None) -> FixedHeaders:
        if self.schema.guid is None:
            return ()
        return (id_header(self.schema.part, self.schema.guid, self._written().after_id),)

    def _prefix(self) -> bytes:
        if self.schema.guid is not None:
            return b""
        return id_prefix(self.schema.schema_id) + self._written().after_id

    def _written(self) -> LoadedSchema:
        """Returns the schema. It is loaded once, when it is first needed."""
        if self._loaded is None:
            self._loaded = loaded_schema(self.schema.format, self.schema.text, dict(self.schema.named))
        return self._loaded

    def _plan(self, kind: pa.DataType) -> ColumnPlan:
        """Returns the plan for columns of a type. It is made once, with the first column."""
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = self._written().fit(kind)
        return plan


@dataclass(frozen=True, slots=True)
class ResolvedSchema(SameVersion):
    """A schema with its id. It holds all that a task needs to write, and no secret.

    Attributes:
        part: key or value.
        format: the format's name, such as avro.
        subject: the subject in the registry; empty for a schema that was named by its id alone.
        schema_id: the id that goes before the data.
        text: the schema, as its format prepares it for tasks.
        named: texts of the schemas that it refers to, by the name of the reference.
        guid: the globally unique id that is in a header in place of the id before the data; None: the id is before the data.
    """

    part: str
    format: str
    subject: str
    schema_id: int
    text: str
    named: tuple[tuple[str, str], ...] = ()
    guid: str | None = None

    def __str__(self) -> str:
        return f"schema {self.schema_id}" + (f" of subject {self.subject}" if self.subject else "")


_PREFIX: Final = struct.Struct(">bI")


def id_prefix(schema_id: int) -> bytes:
    """Returns the five bytes before a key or a value: 0 for an id, and the id."""
    return _PREFIX.pack(0, schema_id)


def id_header_name(part: str) -> str:
    """Returns the name of the header that may have the id. Readers prefer it to the bytes before the data."""
    return f"__{part}_schema_id"


def id_header(part: str, guid: str, after_id: bytes) -> tuple[str, bytes]:
    """Returns the header of a record: 1 for a guid, and the guid.

    Args:
        part: key or value.
        guid: the schema's globally unique id.
        after_id: bytes after the id, such as Protobuf's indexes of the message.

    Raises:
        ValueError: the guid is not valid.
    """
    return id_header_name(part), b"\1" + uuid.UUID(guid).bytes + after_id
