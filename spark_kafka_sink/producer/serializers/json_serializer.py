"""JSON of whole columns and of single values: a convenience that Kafka itself does not have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.serializers.binary_arrays import null_column
from spark_kafka_sink.producer.serializers.json_columns import BadRowError, json_texts, why_not_json
from spark_kafka_sink.producer.serializers.json_values import json_text
from spark_kafka_sink.producer.serializers.serializer import Serializer


class JsonSerializer(Serializer):
    """JSON without spaces, as UTF-8. A null row stays null, so that a tombstone is one.

    Columns: struct (fields that are null are left out, as Spark's to_json does), list, map with string keys (both keep nulls),
    text, numbers (decimals with all their digits), bool, binary as base64, dates and timestamps as ISO 8601 (those with a zone in
    UTC, with Z), UUIDs as text. Single values: dict (keeps None), named tuple or Row (as a struct), list, tuple, and Python's
    classes for the same; a datetime without a zone is local time. NaN and infinity are SerializationErrors: JSON has neither.
    """

    wanted = "what JSON can hold"

    def accepts(self, kind: pa.DataType) -> None:
        problem = why_not_json(kind)
        if problem is not None:
            raise SerializationError(f"a column of type {kind}, {problem}", type=str(kind))

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return None if value is None else json_text(value).encode()

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        try:
            return json_texts(column)
        except BadRowError as bad:
            raise SerializationError(f"row {bad.row}: {bad}", row=bad.row) from None
