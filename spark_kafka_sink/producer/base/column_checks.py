"""Checks for values that no Kafka record can have. They name the row before any row of the append is buffered or sent.

Java's ProducerRecord and RecordHeader reject the same values in their constructors. A broker would reject the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import RecordError, SchemaError
from spark_kafka_sink.options.option import topic_problem
from spark_kafka_sink.records.arrow_arrays import holds_bytes
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.records.timestamps import in_other_unit, time_problem

_SHOWN: Final = 40
"""Bytes of a key in an error."""


def check_topic(topic: object) -> None:
    """Raises RecordError for an invalid topic name."""
    problem = "topic is null" if topic is None else topic_problem(topic)
    if problem is not None:
        raise RecordError(problem, topic=topic)


def check_shapes(topic: str, columns: RecordColumns) -> None:
    """Raises SchemaError for a column of the wrong class or length. Takes 1 us. Serializers check the types of keys and
    values.
    """
    if not isinstance(columns, RecordColumns):
        raise SchemaError(f"topic {topic}: columns are {type(columns).__name__}, must be RecordColumns", topic=topic)
    for name in ("key", "value", "headers"):
        column = getattr(columns, name)
        if column is not None:
            if not isinstance(column, pa.Array):
                advice = ": use combine_chunks()" if isinstance(column, pa.ChunkedArray) else ""
                raise _bad_column(topic, name, f"is {type(column).__name__}, must be an Arrow array{advice}")
            _check_rows(topic, name, len(column), columns.num_records)
    for name in ("timestamp", "partition"):
        numbers = getattr(columns, name)
        if numbers is not None:
            if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "i" or numbers.ndim != 1:
                raise _bad_column(topic, name, "must be a one-dimensional numpy array of integers")
            _check_rows(topic, name, len(numbers), columns.num_records)
    if columns.fixed_headers:
        _check_fixed_headers(topic, columns.fixed_headers)


def _check_fixed_headers(topic: str, headers: Sequence[tuple[object, object]]) -> None:
    for key, value in headers:
        if not isinstance(key, str) or not is_text(key):
            raise _bad_column(topic, "fixed_headers", "has a key that is not text")
        if value is not None and not isinstance(value, bytes):
            raise _bad_column(topic, "fixed_headers", f"has a value of type {type(value).__name__}, must be bytes or None")


def _check_rows(topic: str, name: str, rows: int, num_records: int) -> None:
    if rows != num_records:
        raise _bad_column(topic, name, f"has {counted(rows, 'row')}, but num_records is {num_records:,}")


def check_columns(topic: str, columns: RecordColumns, *, checks_unit: bool = False) -> None:
    """Checks serialized columns.

    checks_unit: whether to refuse timestamps that are times of the years 2001 to 2100 in another unit only.

    Raises SchemaError if a column's type does not hold bytes or headers. Raises RecordError for the first row with a negative
    timestamp, one in another unit, a null header, or a header key that is null or not valid UTF-8.
    """
    for name, column in (("key", columns.key), ("value", columns.value)):
        if column is not None and not holds_bytes(column.type):
            raise _bad_column(topic, name, f"is {column.type}, must be binary or string: cast it, or set {name}.serializer")
    if columns.timestamp is not None:
        wrong = columns.timestamp < NO_TIMESTAMP if columns.timestamp.min(initial=0) < NO_TIMESTAMP else None
        if wrong is None and checks_unit:
            wrong = in_other_unit(columns.timestamp)
        if wrong is not None:
            row = int(np.argmax(wrong))
            raise _bad_row(topic, columns, row, f"timestamp {time_problem(int(columns.timestamp[row]))}", "timestamp")
    if columns.headers is not None:
        _check_headers(topic, columns, columns.headers)


def _check_headers(topic: str, columns: RecordColumns, headers: pa.Array) -> None:
    if not _holds_headers(headers.type):
        raise _bad_column(topic, "headers", f"is {headers.type}, must be list<struct<key: string, value: binary>>")
    elements = headers.flatten()
    keys = elements.field("key")
    if elements.null_count or keys.null_count:
        element = pc.or_(elements.is_null(), keys.is_null()).index(True).as_py()
        problem = "a header has a null key" if elements[element].is_valid else "a header is null"
        raise _bad_row(topic, columns, _row_of(headers, element), problem, "headers")
    try:
        # Takes 10 ns per key. Consumers handle such keys differently, and some stop at them (confluent-kafka).
        keys.validate(full=True)
    except pa.ArrowInvalid:
        element = next(i for i, key in enumerate(keys.cast(pa.large_binary()).to_pylist()) if not is_text(key))
        raise _bad_row(topic, columns, _row_of(headers, element), "a header key is not valid UTF-8", "headers") from None


def _holds_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return False
    pair = kind.value_type
    if not pa.types.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        return False
    key = pair.field("key").type
    return (pa.types.is_string(key) or pa.types.is_large_string(key)) and holds_bytes(pair.field("value").type)


def _row_of(headers: pa.Array, element: int) -> int:
    row: int = headers.value_parent_indices()[element].as_py()
    return row


def too_large(size: int, key: bytes | None, limits: Mapping[str, int]) -> str:
    """Returns why a record of this size cannot be sent, and what to do. limits: in bytes, by option."""
    option = min(limits, key=limits.__getitem__)
    beginning = (key or b"")[:_SHOWN].decode(errors="backslashreplace")
    named = "" if key is None else f" with key {beginning!r}{'...' if len(key) > _SHOWN else ''}"
    return (
        f"the record{named} takes {size} bytes before compression, more than {option} allows ({limits[option]}); raise it (in"
        f" Spark: kafka.{option}). The topic's max.message.bytes applies after compression"
    )


def is_text(data: bytes | str) -> bool:
    """Returns whether bytes are valid UTF-8, or whether a str can be encoded (one with a lone surrogate cannot)."""
    try:
        _ = data.decode() if isinstance(data, bytes) else data.encode()
    except UnicodeError:
        return False
    return True


def _bad_row(topic: str, columns: RecordColumns, row: int, problem: str, column: str) -> RecordError:
    return RecordError(f"topic {topic}: row {row} of {columns.num_records}: {problem}", topic=topic, row=row, column=column)


def _bad_column(topic: str, column: str, problem: str) -> SchemaError:
    return SchemaError(f"topic {topic}: column {column} {problem}", topic=topic, column=column)
