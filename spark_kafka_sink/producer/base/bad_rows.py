"""Bad rows: finds the rows that cannot be delivered, so that the others can. It has no thread, clock or socket.

The checks name a row before any row of its append is buffered or sent. Java's ProducerRecord and RecordHeader reject the same
values in their constructors. A broker would reject the whole batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import KafkaSinkError, RecordError, SchemaError
from spark_kafka_sink.options.option import topic_problem
from spark_kafka_sink.records.arrow_arrays import holds_bytes
from spark_kafka_sink.records.columns import NO_PARTITION, NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.records.timestamps import in_other_unit, time_problem

T = TypeVar("T")

# Rows of the first piece behind a bad row. An attempt has a fixed cost of 50 to 500 us, which is about what 64 rows cost.
FIRST_PIECE: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class BadRows:
    """Rows of one topic that were not delivered, for one reason.

    Attributes:
        topic: name of the topic.
        columns: the rows, at least one. If `append` refused them, they are as it got them, or as an interceptor returned them,
            and share the memory of those columns. If a broker rejected them, they are as they were sent: binary keys and
            values, with all headers and the timestamps.
        error: the reason. If `append` refused the rows and `rows` is set, the fact `row` is a position in the columns of the
            append call.
        rows: positions in the columns of the append call; for rows that a broker rejected, the numbers that `row_numbers`
            returned. None without `row_numbers`, or if an interceptor returned other columns.
        partition: the partition that a broker rejected them for, else -1.
    """

    topic: str
    columns: RecordColumns
    error: KafkaSinkError
    rows: NDArray[np.intp] | None
    partition: int = NO_PARTITION


OnBadRows = Callable[[BadRows], None]
"""Callback that receives refused rows."""

RowNumbers = Callable[[NDArray[np.intp]], NDArray[np.int64]]
"""Returns the caller's numbers of some rows of an append, given by their positions in its columns."""


@dataclass(frozen=True, slots=True)
class GoodPiece(Generic[T]):
    """Rows `start` to `stop`, for which an attempt returned `result`."""

    start: int
    stop: int
    result: T


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that an attempt refused. `error` names it as a row of all rows."""

    row: int
    error: KafkaSinkError


def concerns_one_row(error: BaseException) -> bool:
    """Returns whether an error is about one row, and nothing was buffered. Other errors concern all rows of a call."""
    return isinstance(error, KafkaSinkError) and _row_in(error) is not None and "buffered" not in error.facts


def good_pieces(
    count: int, attempt: Callable[[int, int], T], failed: KafkaSinkError | None = None
) -> Iterator[GoodPiece[T] | BadRow]:
    """Splits rows into good pieces and single bad rows, in order.

    With k bad rows of n it takes at most some attempts for each bad row, over O(n) rows in total: the rows before a bad one are
    tried alone, and the pieces behind it are small and double while they are good.

    Args:
        count: number of rows.
        attempt: called with the first row of a piece and the end of its rows. An error that `concerns_one_row` names the first
            bad row that some check found, relative to the piece.
        failed: error of `attempt(0, count)`, if that attempt was made already.

    Raises:
        KafkaSinkError: What an attempt raised about all of its rows.
    """
    start, size = 0, count
    known: list[BadRow] = []  # found bad behind `start`, the first one last
    if failed is not None:
        known.append(_bad_row(failed, 0, count, count))
    while start < count:
        if known and known[-1].row == start:
            yield known.pop()
            start, size = start + 1, FIRST_PIECE
            continue
        stop = min(start + size, known[-1].row if known else count)
        try:
            result = attempt(start, stop)
        except KafkaSinkError as error:
            if not concerns_one_row(error):
                raise
            known.append(_bad_row(error, start, stop, count))
            continue
        yield GoodPiece(start, stop, result)
        start, size = stop, size * 2


def _row_in(error: KafkaSinkError) -> int | None:
    row = error.facts.get("row")
    return row if isinstance(row, int) and not isinstance(row, bool) else None


def _bad_row(error: KafkaSinkError, start: int, stop: int, count: int) -> BadRow:
    """Returns the bad row of a piece. Raises `error` if it names a row outside of the piece: a serializer of the user did."""
    found = _row_in(error)
    if found is None or not 0 <= found < stop - start:
        raise error
    row = start + found
    if start or stop != count:
        error.message = _renamed(error.message, found, stop - start, row, count)
        error.args = (error.message,)
        error.facts["row"] = row
    return BadRow(row, error)


def _renamed(message: str, found: int, rows: int, row: int, count: int) -> str:
    """Returns a message with the row's number, and the number of rows, of the whole instead of the piece."""

    def renamed(text: re.Match[str]) -> str:
        return f"row {row}" if text[1] is None else f"row {row} of {count}"

    return re.sub(rf"\brow {found}\b( of {rows}\b)?", renamed, message, count=1)


def forget_frames(error: BaseException) -> None:
    """Removes the tracebacks of an error and its causes, which would keep the columns of the call in memory."""
    cleared: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in cleared:
        cause.__traceback__ = None
        cleared.append(cause)
        cause = cause.__cause__ or cause.__context__


_SHOWN: Final = 40
"""Bytes of a key in an error."""


def check_topic(topic: object) -> None:
    """Raises RecordError for an invalid topic name."""
    problem = "topic is null" if topic is None else topic_problem(topic)
    if problem is not None:
        raise RecordError(problem, topic=topic)


def check_shapes(topic: str, columns: RecordColumns) -> None:
    """Raises SchemaError for a column of the wrong class or length, in 1 us. Serializers check types of keys and values."""
    if not isinstance(columns, RecordColumns):
        raise SchemaError(f"topic {topic}: columns are {type(columns).__name__}, must be RecordColumns", topic=topic)
    for name in ("key", "value", "headers"):
        column = getattr(columns, name)
        if column is not None:
            if not isinstance(column, pa.Array):
                advice = ": use combine_chunks()" if isinstance(column, pa.ChunkedArray) else ""
                raise _column_error(topic, name, f"is {type(column).__name__}, must be an Arrow array{advice}")
            _check_rows(topic, name, len(column), columns.num_records)
    for name in ("timestamp", "partition"):
        numbers = getattr(columns, name)
        if numbers is not None:
            if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "i" or numbers.ndim != 1:
                raise _column_error(topic, name, "must be a one-dimensional numpy array of integers")
            _check_rows(topic, name, len(numbers), columns.num_records)
    if columns.fixed_headers:
        _check_fixed_headers(topic, columns.fixed_headers)


def _check_fixed_headers(topic: str, headers: Sequence[tuple[object, object]]) -> None:
    for key, value in headers:
        if not isinstance(key, str) or not is_text(key):
            raise _column_error(topic, "fixed_headers", "has a key that is not text")
        if value is not None and not isinstance(value, bytes):
            raise _column_error(topic, "fixed_headers", f"has a value of type {type(value).__name__}, must be bytes or None")


def _check_rows(topic: str, name: str, rows: int, num_records: int) -> None:
    if rows != num_records:
        raise _column_error(topic, name, f"has {counted(rows, 'row')}, but num_records is {num_records:,}")


def check_columns(topic: str, columns: RecordColumns, *, checks_unit: bool = False) -> None:
    """Checks serialized columns.

    checks_unit: whether to refuse timestamps that are times of the years 2001 to 2100 in another unit only.

    Raises SchemaError if a column's type does not hold bytes or headers. Raises RecordError for the first row with a negative
    timestamp, one in another unit, a null header, or a header key that is null or not valid UTF-8.
    """
    for name, column in (("key", columns.key), ("value", columns.value)):
        if column is not None and not holds_bytes(column.type):
            raise _column_error(topic, name, f"is {column.type}, must be binary or string: cast it, or set {name}.serializer")
    if columns.timestamp is not None:
        wrong = columns.timestamp < NO_TIMESTAMP if columns.timestamp.min(initial=0) < NO_TIMESTAMP else None
        if wrong is None and checks_unit:
            wrong = in_other_unit(columns.timestamp)
        if wrong is not None:
            row = int(np.argmax(wrong))
            raise _row_error(topic, columns, row, f"timestamp {time_problem(int(columns.timestamp[row]))}", "timestamp")
    if columns.headers is not None:
        _check_headers(topic, columns, columns.headers)


def _check_headers(topic: str, columns: RecordColumns, headers: pa.Array) -> None:
    if not _holds_headers(headers.type):
        raise _column_error(topic, "headers", f"is {headers.type}, must be list<struct<key: string, value: binary>>")
    elements = headers.flatten()
    keys = elements.field("key")
    if elements.null_count or keys.null_count:
        element = pc.or_(elements.is_null(), keys.is_null()).index(True).as_py()
        problem = "a header has a null key" if elements[element].is_valid else "a header is null"
        raise _row_error(topic, columns, _row_of(headers, element), problem, "headers")
    try:
        # Takes 10 ns per key. Consumers handle such keys differently, and some stop at them (confluent-kafka).
        keys.validate(full=True)
    except pa.ArrowInvalid:
        element = next(i for i, key in enumerate(keys.cast(pa.large_binary()).to_pylist()) if not is_text(key))
        raise _row_error(topic, columns, _row_of(headers, element), "a header key is not valid UTF-8", "headers") from None


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


def _row_error(topic: str, columns: RecordColumns, row: int, problem: str, column: str) -> RecordError:
    return RecordError(f"topic {topic}: row {row} of {columns.num_records}: {problem}", topic=topic, row=row, column=column)


def _column_error(topic: str, column: str, problem: str) -> SchemaError:
    return SchemaError(f"topic {topic}: column {column} {problem}", topic=topic, column=column)
