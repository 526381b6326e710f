"""Combines small Arrow batches, because an append has a fixed cost, and another one for each partition."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.records.columns import RecordColumns, concatenated, copied
from spark_kafka_sink.spark.python_workers import row_name
from spark_kafka_sink.spark.task.columns import BatchRows, TopicRecords

# The most that is held, over all topics. 40,000 rows of 100 bytes fit.
MAX_BYTES = 8 * 1024 * 1024
# An append costs half a millisecond however few rows it has, and combining rows costs 0.1 ms per MB. With Arrow batches of 1,000
# rows (8 partitions), four at a time took 0.25 us of CPU per row of 100 B instead of 0.66, and 0.63 per row of 1 KB instead of
# 0.91; twelve were no better. Batches of 3,000 rows of 1 KB, or of 300 of 10 KB, gained nothing.
WORTHWHILE_ROWS = 4_000
WORTHWHILE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RowsInTask:
    """Numbers in the task, from 0, of the rows of one append.

    The producer holds it until the rows are acknowledged, so it has no columns. It takes 8 bytes per row if the rows are some of
    an Arrow batch, because there are several topics or bad rows; otherwise a few bytes.

    starts: the number of rows before each part. first: the position of the append's first row in the parts.
    """

    starts: list[int]
    parts: list[BatchRows]
    first: int = 0

    def __call__(self, positions: NDArray[np.intp]) -> NDArray[np.int64]:
        """Returns the numbers of rows, given by their positions in the append."""
        return np.array([self.row_in_task(row) for row in positions.tolist()], np.int64)

    def row_in_task(self, row: int) -> int:
        """Returns the number of a row, given by its position in the append."""
        place = self.first + row
        part = bisect_right(self.starts, place) - 1
        return self.parts[part].row_in_task(place - self.starts[part])


@dataclass(slots=True)
class CoalescedRecords:
    """One topic's rows for one append. starts: the number of rows before each part. since: the time of the first part."""

    topic: str
    since: float
    parts: list[TopicRecords] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    num_records: int = 0
    nbytes: int = 0

    def add(self, records: TopicRecords) -> None:
        self.parts.append(records)
        self.starts.append(self.num_records)
        self.num_records += records.columns.num_records
        self.nbytes += records.columns.nbytes

    def takes(self, columns: RecordColumns) -> bool:
        return self.parts[0].columns.is_like(columns) and columns.nbytes < MAX_BYTES

    def columns(self) -> RecordColumns:
        return concatenated([part.columns for part in self.parts])

    def add_row_of_task(self, error: KafkaSinkError) -> None:
        """Adds a note with the row of the task, because the producer counts the rows of one append only."""
        row = error.facts.get("row")
        if row is not None:
            error.add_note(f"That is {row_name(self.rows_in_task().row_in_task(row))}, counted from 0.")

    def rows_in_task(self, first: int = 0) -> RowsInTask:
        """Returns the numbers in the task of the rows of `columns()`, from row `first` on."""
        return RowsInTask(self.starts, [part.batch_rows for part in self.parts], first)


class ArrowBatchCoalescer:
    """Combines a task's records and keeps the order within each topic. Only the task's thread uses it.

    A batch with enough rows for its topic's partitions is yielded at once if it is a topic's first one, so that connections open
    early, or if it is worth an append by its rows or bytes. With 1,000 partitions a batch of 10,000 rows has 10 rows for each,
    and most of the cost is per partition: 40,000 rows at once take 0.6 of the CPU, copies included. Rows that are a small part of
    their Arrow batch are held as copies, because a slice would keep all of it alive, with other topics' rows and unused columns.
    Rows are held for at most `linger_ms`, which is checked whenever a batch arrives. With 0 no rows are held.
    """

    def __init__(
        self, rows_per_append: Callable[[str], int], linger_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """rows_per_append: returns how many rows of a topic are enough, or 0 while that is not known, as in SendScope."""
        self._rows_per_append = rows_per_append
        self._linger_s = linger_ms / 1000
        self._clock = clock
        self._held: dict[str, CoalescedRecords] = {}  # the longest held first
        self._begun: set[str] = set()  # topics of which something was yielded

    def coalesced(self, records: Iterable[TopicRecords]) -> Iterator[CoalescedRecords]:
        """Yields all rows, in groups for one append each. The caller releases each group before it asks for the next."""
        for each in records:
            topic, columns = each.topic, each.columns
            if topic in self._held and not self._held[topic].takes(columns):
                yield self._held.pop(topic)
            if self._add(each):
                yield self._held.pop(topic)
            if self._holds_too_much():
                yield from self._rest()
        yield from self._rest()

    def _add(self, records: TopicRecords) -> bool:
        """Returns whether there are enough rows of the topic now."""
        topic, columns = records.topic, records.columns
        held = self._held.setdefault(topic, CoalescedRecords(topic, self._clock()))
        enough = self._is_enough(topic, held.num_records + columns.num_records, held.nbytes, columns.nbytes)
        if enough:
            self._begun.add(topic)
        elif not records.is_most_of_batch:
            records = replace(records, columns=copied(columns), rows=None if records.rows is None else records.rows.copy())
        held.add(records)
        return enough

    def _is_enough(self, topic: str, rows: int, held_bytes: int, new_bytes: int) -> bool:
        if not self._linger_s or new_bytes >= MAX_BYTES:
            return True
        if rows < self._rows_per_append(topic):
            return False
        if topic not in self._begun or rows >= WORTHWHILE_ROWS:
            return True
        return new_bytes >= WORTHWHILE_BYTES // 2 or held_bytes + new_bytes >= WORTHWHILE_BYTES

    def _rest(self) -> Iterator[CoalescedRecords]:
        for topic in list(self._held):
            yield self._held.pop(topic)

    def _holds_too_much(self) -> bool:
        for held in self._held.values():
            return self._clock() - held.since >= self._linger_s or sum(each.nbytes for each in self._held.values()) >= MAX_BYTES
        return False
