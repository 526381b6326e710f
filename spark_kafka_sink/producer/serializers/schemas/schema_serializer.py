"""The serializer that writes with a resolved schema. Tasks do not connect to the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import null_column
from spark_kafka_sink.producer.serializers.avro.avro_fit import fit
from spark_kafka_sink.producer.serializers.avro.avro_schema import AvroType, parse
from spark_kafka_sink.producer.serializers.avro.avro_single import encode_value
from spark_kafka_sink.producer.serializers.schemas.framing import id_prefix
from spark_kafka_sink.producer.serializers.schemas.resolved_schema import ResolvedSchema
from spark_kafka_sink.producer.serializers.serializer import Serializer

if TYPE_CHECKING:
    from spark_kafka_sink.producer.serializers.avro.avro_fit import AvroPlan


class SchemaSerializer(SameVersion, Serializer):
    """Writes columns and single values as Avro after the schema's id. Null rows stay null.

    Equal schemas make equal serializers, and pickles hold the schema alone.

    Attributes:
        schema: the schema and its id.
    """

    wanted = "columns that fit the schema"

    def __init__(self, schema: ResolvedSchema) -> None:
        self.schema = schema
        self._tree: AvroType | None = None
        self._plans: dict[pa.DataType, AvroPlan] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"schema": self.schema}

    def __setstate__(self, state: dict[str, ResolvedSchema]) -> None:
        self.schema = state["schema"]
        self._tree = None
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
        return self._plan(column.type).encode(column, id_prefix(self.schema.schema_id))

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return encode_value(self._parsed(), value, id_prefix(self.schema.schema_id))

    def _parsed(self) -> AvroType:
        if self._tree is None:
            self._tree = parse(self.schema.text, dict(self.schema.named))
        return self._tree

    def _plan(self, kind: pa.DataType) -> AvroPlan:
        """Returns the plan for columns of a type. It is made once, with the first column."""
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = fit(self._parsed(), kind)
        return plan
