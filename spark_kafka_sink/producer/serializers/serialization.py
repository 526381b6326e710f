"""Runs a producer's two serializers on columns and single values, and names the one that fails."""

from __future__ import annotations

import logging
import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import InstallationError, OptionError, RegistryError, SchemaError, SerializationError, UsageError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.serializer import Serializer, call_deadline, is_default
from spark_kafka_sink.records.arrow_arrays import holds_bytes, validity
from spark_kafka_sink.records.columns import RecordColumns, with_headers, without_headers

logger = logging.getLogger(__name__)

# They name the subject or the columns, a missing library, or a serializer that is closed. A program may have to tell them from a
# bad row.
_OF_SCHEMAS = (InstallationError, OptionError, RegistryError, SchemaError, UsageError)

_NO_DEADLINE: Final = nullcontext()


class Serialization:
    """Runs the serializers. Any thread may call, several at once; the only state is whether it was closed."""

    def __init__(self, key: Serializer, value: Serializer, limit_s: float = math.inf) -> None:
        self._key = key
        self._value = value
        self._nothing_to_do = is_default(key) and is_default(value)
        self._limit_s = limit_s
        self._may_ask = key.reads_schema_options or value.reads_schema_options
        self._both_ask = key.reads_schema_options and value.reads_schema_options
        self._adds_headers = key.adds_headers or value.adds_headers
        self._own_headers = (*key.own_headers, *value.own_headers)
        self._closed = False

    def columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        """Returns the columns with serialized keys and values. SerializationError names the topic, key or value, and the row."""
        if self._nothing_to_do or columns.num_records == 0:
            return columns
        with call_deadline(self._limit_s) if self._may_ask else _NO_DEADLINE:
            if self._both_ask and columns.key is not None and columns.value is not None:
                _prepare(self._key, "key", topic, columns.key.type)
                _prepare(self._value, "value", topic, columns.value.type)
            key = _serialized_column(self._key, "key", topic, columns.key)
            value = _serialized_column(self._value, "value", topic, columns.value)
        found = replace(columns, key=key, value=value)
        if self._own_headers and (columns.headers is not None or columns.fixed_headers):
            found = _without_headers(found, self._own_headers)
        if self._adds_headers:
            found = _with_headers(found, self._key, topic, columns.key, key)
            found = _with_headers(found, self._value, topic, columns.value, value)
        return found

    def close(self) -> None:
        """Closes both serializers once. Errors are logged and ignored."""
        if self._closed:
            return
        self._closed = True
        for serializer in (self._key, self._value):
            try:
                serializer.close()
            except Exception:
                logger.warning("serializer %s: close failed", type(serializer).__qualname__, exc_info=True)


def prepare_both(key: Serializer, value: Serializer, topic: str) -> None:
    """Prepares the serializers for a single record with a key and a value. Raises as `serialized_value`."""
    _prepare(key, "key", topic, None)
    _prepare(value, "value", topic, None)


def serialized_value(serializer: Serializer, part: str, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
    """Returns one key or value as bytes. SerializationError names the topic and `part`."""
    try:
        found: Any = serializer.serialize(topic, value, headers)
    except _OF_SCHEMAS:
        raise
    except Exception as error:
        raise _named(error, serializer, part, topic) from error
    if found is None or isinstance(found, bytes):
        return found
    if isinstance(found, bytearray | memoryview):
        return bytes(found)
    raise _named(TypeError(f"returned {type(found).__name__}, not bytes"), serializer, part, topic)


def _prepare(serializer: Serializer, part: str, topic: str, kind: pa.DataType | None) -> None:
    try:
        serializer.prepare(topic, kind)
    except _OF_SCHEMAS:
        raise
    except Exception as error:
        raise _named(error, serializer, part, topic) from error


def _serialized_column(serializer: Serializer, part: str, topic: str, column: pa.Array | None) -> pa.Array | None:
    if column is None or is_default(serializer):
        return column
    try:
        found = serializer.serialize_column(topic, column)
        _check(found, len(column))
    except _OF_SCHEMAS:
        raise
    except Exception as error:
        raise _named(error, serializer, part, topic) from error
    return found


def _without_headers(columns: RecordColumns, names: tuple[str, ...]) -> RecordColumns:
    """Removes headers that the serializers alone add: readers prefer them, such as an old schema's id, to the right ones."""
    return replace(
        columns,
        headers=None if columns.headers is None else without_headers(columns.headers, names),
        fixed_headers=tuple(pair for pair in columns.fixed_headers if pair[0] not in names),
    )


def _with_headers(
    columns: RecordColumns, serializer: Serializer, topic: str, given: pa.Array | None, made: pa.Array | None
) -> RecordColumns:
    """Returns the columns with the serializer's headers in rows that are not null. Null rows get none, as from Confluent's."""
    if given is None or made is None or made.null_count == len(made) or not serializer.adds_headers:
        return columns
    added = serializer.headers_of(topic, given.type)
    if not made.null_count:
        return replace(columns, fixed_headers=(*added, *columns.fixed_headers))
    return replace(columns, headers=with_headers(columns.headers, added, validity(made)))


def _check(found: Any, rows: int) -> None:
    if not isinstance(found, pa.Array) or not holds_bytes(found.type):
        kind = found.type if isinstance(found, pa.Array) else type(found).__name__
        raise TypeError(f"returned {kind}, not an Arrow array of binary or string")
    if len(found) != rows:
        raise ValueError(f"returned {counted(len(found), 'row')} for {rows:,}")


def _named(error: Exception, serializer: Serializer, part: str, topic: str) -> SerializationError:
    where = f"topic {topic}: {part}: "
    if isinstance(error, SerializationError):
        return SerializationError(where + error.message, **{**error.facts, "topic": topic, "part": part})
    text = f"{where}{type(serializer).__qualname__} failed: {type(error).__name__}: {error}"
    return SerializationError(text, topic=topic, part=part)
