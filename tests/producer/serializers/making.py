"""Serializers as options make them, and columns of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.producer.serializers.serializer_table import serializers_of


def serializers(**settings: object) -> tuple[Serializer, Serializer]:
    """Those of keys and of values; `__` stands for a dot."""
    options = {option.replace("__", "."): value for option, value in settings.items()}
    return serializers_of(producer_config({"bootstrap.servers": "localhost:9092", **options}))


def serializer(name: object, /, **settings: object) -> Serializer:
    """A producer's serializer of values."""
    return serializers(value__serializer=name, **settings)[1]


def key_serializer(name: object, /, **settings: object) -> Serializer:
    return serializers(key__serializer=name, **settings)[0]


def column_bytes(made: Serializer, column: pa.Array) -> list[bytes | None]:
    found = made.serialize_column("topic", column)
    found.validate(full=True)
    return [row.encode() if isinstance(row, str) else row for row in found.to_pylist()]


def single_bytes(made: Serializer, values: Sequence[Any]) -> list[bytes | None]:
    return [made.serialize("topic", value) for value in values]


def slices(column: pa.Array) -> list[pa.Array]:
    """The same column whole and in parts that begin and end inside of a byte of validity bits."""
    return [column, column.slice(1), column.slice(0, max(len(column) - 1, 0)), column.slice(3, 4), column.slice(len(column))]
