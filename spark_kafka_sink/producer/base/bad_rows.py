"""Bad rows: finds the rows that cannot be delivered, so that the others can. It has no thread, clock or socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

T = TypeVar("T")

# Rows of the first piece behind a bad row. An attempt has a fixed cost of 50 to 500 us, which is about what so many rows cost.
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
