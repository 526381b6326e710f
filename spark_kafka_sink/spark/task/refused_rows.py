"""Rows of a task that were not delivered, with what their dead letters need. They come from the task's own checks, from the
producer, and from brokers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.base.bad_rows import BadRows, RowNumbers
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

_ROW: Final = re.compile(r"\brow (\d{1,18})\b(?: of \d+\b)?")  # one pattern: a new one takes 100 us to compile


@dataclass(frozen=True, slots=True, eq=False)
class RefusedRows:
    """Rows that were not delivered.

    Attributes:
        columns: the rows, as the task had them. Timestamps and partitions may be invalid.
        topics: the topic of each row; None: null.
        errors: the reason of each row.
        rows: the number of each row in the task, from 0; None: unknown.
        partition: the partition of the broker that rejected them, or -1.
        formats: by `key` and `value`, how the bytes of each row were made, if they are not the row's own.
        is_sent: whether a broker rejected them, so that the columns are as they were sent.
    """

    columns: RecordColumns
    topics: Sequence[str | None]
    errors: Sequence[KafkaSinkError]
    rows: Sequence[int] | None
    partition: int = NO_PARTITION
    formats: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_sent: bool = False

    @classmethod
    def of(cls, bad: BadRows, rows_in_task: RowNumbers | None = None) -> RefusedRows:
        """Returns rows that the producer passes on.

        rows_in_task: returns the task's rows of rows of the append. None: a broker rejected the rows, which have these numbers
            already.
        """
        count, rows = bad.columns.num_records, bad.rows
        if rows is not None and rows_in_task is not None:
            rows = rows_in_task(rows)
        known = None if rows is None else rows.tolist()
        return cls(bad.columns, [bad.topic] * count, [bad.error] * count, known, bad.partition, is_sent=rows_in_task is None)

    def message(self, row: int) -> str:
        """Returns the error's text of one of these rows. It names the row of the task, and not that of an append."""
        error = self.errors[row]
        named = error.facts.get("row")
        if self.rows is None or not isinstance(named, int):
            return error.message
        found = f"row {self.rows[row]} of the task"
        return _ROW.sub(lambda match: found if int(match[1]) == named else match[0], error.message, count=1)

    def in_task(self, first_row: int) -> RefusedRows:
        """Returns the same rows, of which `rows` are positions in a batch. first_row: the number of its first row in the task."""
        return replace(self, rows=None if self.rows is None else [first_row + row for row in self.rows])
