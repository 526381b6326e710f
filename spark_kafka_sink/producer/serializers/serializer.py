"""The serializer interface. Programs inherit from `Serializer`; Kafka's own serializers are next to this file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, holds_bytes
from spark_kafka_sink.records.columns import FixedHeaders


class Serializer:
    """Turns keys or values into bytes. Java's Serializer. [Serializers](serializers.md#your-own) has an example.

    Inherit and override `serialize`, `serialize_column` or both; each is implemented by the other. With only `serialize`,
    columns take Python per row (some 1 us plus the call). With only `serialize_column`, a single value becomes a column of one
    row, with the type that Arrow infers.

    Any thread may call, several at once. Exceptions reach the caller of send() or append() as SerializationError, and none of
    those rows is sent. A serializer named in the options is instantiated without arguments and configured. An object is used as
    it is, as in Java; in Spark it is pickled to the tasks.

    Attributes:
        wanted: description of the accepted values, for error messages.
        reads_schema_options: whether `configure` also gets the options of schemas and their registry, which may be secret.
    """

    wanted: ClassVar[str] = "any value"  # accepted values, for error messages
    reads_schema_options: ClassVar[bool] = False

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        """Called once, before any other method, with the values of all producer options by name.

        Args:
            settings: values by option name.
            is_key: whether it serializes keys.
        """

    def accepts(self, kind: pa.DataType) -> None:
        """Raises SerializationError if columns of the Arrow type `kind` are not supported. Called before there are any rows."""

    def prepare(self, topic: str, kind: pa.DataType | None) -> None:
        """Gets ready for rows of a topic. It may read from other systems, and changes nothing there.

        If both serializers have `reads_schema_options`, both are prepared before either serializes. So a schema that does not
        fit the values is found before that of the keys is registered.

        Args:
            topic: topic of the records.
            kind: type of the column; None for a single value that is not null.
        """

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        """Returns the bytes of `value`, of a record of `topic` with these `headers`. None is a null, and is sent as one."""
        column = self.serialize_column(topic, pa.array([value]))
        found = column[0].as_py()
        return found.encode() if isinstance(found, str) else found

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        """Returns the bytes of each row, null for null.

        Args:
            topic: topic of all rows.
            column: array of n rows.

        Returns:
            An array of n rows of binary, large_binary, string or large_string.
        """
        rows = [self._row(topic, row, value) for row, value in enumerate(column.to_pylist())]
        try:
            return array_of_bytes(rows)
        except TypeError:
            return pa.array(rows, pa.binary())  # accepts text too, and names the class of an unsupported value

    @property
    def own_headers(self) -> tuple[str, ...]:
        """Names of headers that only this serializer adds. Those that records bring are removed, such as a source's schema id."""
        return ()

    @property
    def adds_headers(self) -> bool:
        """Whether records get the headers of `headers_of`. It does not change after `configure`."""
        return False

    def headers_of(self, topic: str, kind: pa.DataType | None) -> FixedHeaders:
        """Returns headers of each record whose key or value this serializer made, unless that is null.

        Called after the rows of `topic` were serialized, if `adds_headers`. `kind` is the type of the column; None for a single
        value.
        """
        return ()

    def close(self) -> None:
        """Releases resources. Called once, when the producer is closed."""

    def _row(self, topic: str, row: int, value: Any) -> bytes | None:
        try:
            return self.serialize(topic, value)
        except SerializationError as error:
            raise SerializationError(f"row {row}: {error.message}", **{**error.facts, "row": row}) from error
        except Exception as error:
            text = f"row {row}: {type(self).__qualname__} failed: {type(error).__name__}: {error}"
            raise SerializationError(text, row=row) from error


def refused_type(kind: pa.DataType, expected: str, cast: str | None = None) -> SerializationError:
    """Returns the error for a column of an unsupported type. `cast` is the type to cast it to."""
    hint = "" if cast is None else f"; cast it to {cast}"
    return SerializationError(f"a column of type {kind} is not supported, must be {expected}{hint}", type=str(kind))


def refused_value(value: object, expected: str) -> SerializationError:
    """Returns the error for a single value of an unsupported class. It does not show the value, which may be secret."""
    return SerializationError(
        f"a value of type {type(value).__name__} is not supported, must be {expected}", type=type(value).__name__
    )


class DefaultSerializer(Serializer):
    """The default: bytes stay as they are, text becomes UTF-8. Byte and text columns are passed through unchecked."""

    wanted = "bytes or text"

    def accepts(self, kind: pa.DataType) -> None:
        if not holds_bytes(kind) and not pa.types.is_null(kind):
            raise refused_type(kind, "binary or string (no serializer is set)")

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise SerializationError(f"text with a lone surrogate at {error.start} cannot be encoded as UTF-8") from None
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise refused_value(value, "bytes or str (the option key.serializer or value.serializer is not set)")

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        return column


def is_default(serializer: Serializer) -> bool:
    """Returns whether columns are sent as they are."""
    return type(serializer) is DefaultSerializer


# The deadline of a call of send() or append(), for serializers that ask a registry


class _Call(threading.local):
    deadline: float | None = None


_call = _Call()


@contextmanager
def call_deadline(limit_s: float) -> Iterator[None]:
    """Limits how long serializers may wait in this thread, all of them together: until `limit_s` from now."""
    before, _call.deadline = _call.deadline, time.monotonic() + limit_s
    try:
        yield
    finally:
        _call.deadline = before


def call_time_left_s(limit_s: float) -> float:
    """Returns how long a serializer may wait now, in s. limit_s: the most that it waits outside of a producer's calls, too."""
    return limit_s if _call.deadline is None else min(limit_s, _call.deadline - time.monotonic())
