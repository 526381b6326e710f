"""JSON serializer for whole columns (json_columns.py) and single values. Kafka itself has none.

A single value is written like json.dumps without spaces; this also holds for types that json.dumps does not support.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import null_column
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.encodings import whole_pairs
from spark_kafka_sink.producer.serializers.json_columns import json_texts, why_not_json
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_value


class JsonSerializer(Serializer):
    """Writes JSON without spaces, as UTF-8. A null row stays null, so that it can be a tombstone.

    Columns: struct (null fields are omitted, like Spark's to_json), list, map with string keys (both keep nulls), text, numbers
    (decimals with all digits), bool, binary as base64, dates and timestamps as ISO 8601 (those with a zone in UTC, with Z), and
    UUIDs as text.

    Single values: dict (keeps None), named tuple or Row (like a struct), list, tuple, and the Python classes for the types above.
    A datetime without a zone is local time.

    NaN, infinity and text with a lone surrogate raise SerializationError, because JSON has neither and UTF-8 not the last.
    """

    wanted = "a type that JSON can represent"

    def accepts(self, kind: pa.DataType) -> None:
        problem = why_not_json(kind)
        if problem is not None:
            raise SerializationError(f"a column of type {kind}, {problem}", type=str(kind))

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return None if value is None else json_bytes(value)

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        try:
            return json_texts(column)
        except BadRowError as bad:
            raise SerializationError(f"row {bad.row}: {bad}", row=bad.row) from None


def json_bytes(value: Any) -> bytes:
    """Returns a value's JSON in UTF-8. Raises SerializationError for what JSON cannot represent."""
    try:
        return _json_text(value).encode()
    except RecursionError:
        raise SerializationError("the value is nested too deeply, or contains itself") from None


def _json_text(value: Any) -> str:
    """Returns a value's JSON. Raises SerializationError for NaN, infinity, keys that are not text, and unsupported classes."""
    writer = _OF_CLASS.get(type(value)) or _writer(value)
    return writer(value)


def _writer(value: Any) -> Callable[[Any], str]:
    for kinds, writer in _WRITERS:
        if isinstance(value, kinds):
            return writer
    raise refused_value(value, "a type that JSON can represent")


def _string(value: str) -> str:
    return encode_basestring(whole_pairs(value, "UTF-8"))


def _object(pairs: Mapping[Any, Any]) -> str:
    return "{" + ",".join(f"{_key(key)}:{_json_text(value)}" for key, value in pairs.items()) + "}"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise refused_value(key, "text for a JSON key")
    return _string(key)


def _sequence(values: Sequence[Any]) -> str:
    """Returns a sequence's JSON. A tuple with field names (Spark's Row, namedtuple) is a struct: fields that are None are
    omitted.
    """
    names = getattr(values, "__fields__", None) or getattr(values, "_fields", None)
    if names is None:
        return "[" + ",".join(map(_json_text, values)) + "]"
    return _object({name: value for name, value in zip(names, values, strict=True) if value is not None})


def _float(value: float) -> str:
    if not isfinite(value):
        raise SerializationError(f"{value}, which JSON cannot represent")
    return repr(float(value))


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise SerializationError(f"{value}, which JSON cannot represent")
    return str(value)


def _datetime(value: datetime.datetime) -> str:
    in_utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return f'"{in_utc.isoformat(timespec="microseconds")}Z"'


def _time(value: datetime.time) -> str:
    return f'"{value.isoformat(timespec="microseconds")}"'


def _blob(value: bytes | bytearray | memoryview) -> str:
    return f'"{base64.b64encode(value).decode()}"'


# The first match counts: bool is a subclass of int, datetime of date.
_WRITERS: Sequence[tuple[Any, Callable[[Any], str]]] = (
    (str, _string),
    (type(None), lambda _: "null"),
    ((bool, np.bool_), lambda value: "true" if value else "false"),
    ((int, np.integer), lambda value: str(int(value))),
    (np.float32, lambda value: _float(float(str(value)))),  # the shortest digits, as in a float column
    ((float, np.floating), _float),
    (Mapping, _object),
    ((list, tuple), _sequence),
    (Decimal, _decimal),
    (datetime.datetime, _datetime),
    (datetime.date, lambda value: f'"{value.isoformat()}"'),
    (datetime.time, _time),
    ((bytes, bytearray, memoryview), _blob),
    (UUID, lambda value: f'"{value}"'),
)

# Looks up most values without testing each class in turn, in half the time.
_OF_CLASS: Mapping[type, Callable[[Any], str]] = {
    kind: _writer(example)
    for kind, example in ((str, ""), (int, 0), (float, 0.0), (bool, True), (dict, {}), (list, []), (type(None), None))
}
