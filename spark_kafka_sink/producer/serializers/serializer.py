"""Serializers make bytes of keys or values. Programs inherit `Serializer`; Kafka's own are beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, holds_bytes


class Serializer:
    """Makes bytes of keys or values. Java's Serializer.

    Inherit, and override `serialize`, `serialize_column` or both: each one does for the other when only one is there. `wanted`
    says in error texts what it takes.

    Only `serialize`: columns work too, with Python for each row (some 1 us and what the call itself costs). Only
    `serialize_column`: single values become columns of one row, of the type that Arrow sees in them.

    Any thread may call, several at once. Whatever is raised reaches the caller of send() or append() as a SerializationError,
    and nothing of those rows is sent. A serializer that the options name is made without arguments and configured; an object
    that a program hands over is taken as it is, as Java does. In Spark such an object, or a function, is pickled to the tasks.
    Tasks of a worker share a producer and the object if the object was pickled to the same bytes.
    """

    wanted: ClassVar[str] = "any value"  # what it takes, for error texts

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        """Called once, before anything else. settings: the value of each of the producer's options by its name.

        is_key: whether it is for keys.
        """

    def accepts(self, kind: pa.DataType) -> None:
        """SerializationError when columns of the Arrow type `kind` cannot be serialized; asked before there are any rows."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        """The bytes of one value; None for None, or to make a null of something else. topic, headers: of its record."""
        column = self.serialize_column(topic, pa.array([value]))
        found = column[0].as_py()
        return found.encode() if isinstance(found, str) else found

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        """The bytes of each row of `column`, as binary, large_binary, string or large_string, as many rows; null for null.

        topic: of all of them.
        """
        rows = [self._row(topic, row, value) for row, value in enumerate(column.to_pylist())]
        try:
            return array_of_bytes(rows)
        except TypeError:
            return pa.array(rows, pa.binary())  # takes text too, and names the class of what it does not take

    def close(self) -> None:
        """The producer is closed. Called once."""

    def _row(self, topic: str, row: int, value: Any) -> bytes | None:
        try:
            return self.serialize(topic, value)
        except SerializationError as error:
            raise SerializationError(f"row {row}: {error.message}", **{**error.facts, "row": row}) from error
        except Exception as error:
            text = f"row {row}: {type(self).__qualname__} failed: {type(error).__name__}: {error}"
            raise SerializationError(text, row=row) from error


def refused_type(kind: pa.DataType, expected: str, cast: str | None = None) -> SerializationError:
    """The error for a column of a type that a serializer does not take; `cast`: the type to cast it to."""
    hint = "" if cast is None else f"; cast it to {cast}"
    return SerializationError(f"a column of type {kind}, where {expected} is wanted{hint}", type=str(kind))


def refused_value(value: object, expected: str) -> SerializationError:
    """The error for a single value of a class that a serializer does not take. Values may be secret: only the class is told."""
    return SerializationError(f"a value of type {type(value).__name__}, where {expected} is wanted", type=type(value).__name__)


class DefaultSerializer(Serializer):
    """Without the option: bytes stay as they are, text becomes UTF-8. Byte and text columns are not even looked at."""

    wanted = "bytes or text"

    def accepts(self, kind: pa.DataType) -> None:
        if not holds_bytes(kind) and not pa.types.is_null(kind):
            raise refused_type(kind, "binary or string (no serializer is set)")

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return _utf8(value)
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise refused_value(value, "bytes or str (the option key.serializer or value.serializer is not set)")

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        return column


def is_default(serializer: Serializer) -> bool:
    """Whether columns are sent as they are."""
    return type(serializer) is DefaultSerializer


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(f"text with half of a surrogate pair at {error.start}, which UTF-8 cannot hold") from None
