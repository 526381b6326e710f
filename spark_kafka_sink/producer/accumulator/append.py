"""The rows of one append, on their way into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.producer.accumulator.append_plan import Partitions
from spark_kafka_sink.producer.accumulator.produce_result import Thunk
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.bad_rows import RowNumbers
from spark_kafka_sink.records.columns import RecordColumns

CompletionFactory = Callable[[Sequence[int]], Thunk]
"""Makes a completion for some of an append's rows, given by their positions in its columns."""

OnPartitioned = Callable[[Partitions], None]
"""Callback that receives the partitions of an append's rows before any row is appended."""


class Append(NamedTuple):
    """Rows of one topic that a caller appends at once.

    Attributes:
        tally: counts them.
        topic: their topic.
        columns: keys, values and the rest.
        deadline: end of every wait, but not of one for a rate limit. With NO_WAIT some memory is borrowed at once instead. None:
            at most max.block.ms for metadata in total and for each wait for memory, so a slow broker that does accept rows may be
            waited for longer in total.
        completion_for: called once for each batch that receives rows.
        on_partitioned: as the type says.
        row_numbers: numbers the rows that brokers may reject.
        check_wait: raises if they must not wait for a rate limit any longer. None: they have waited before, or need not.
        may_be_large: see SendScope.append_serialized.
    """

    tally: Tally
    topic: str
    columns: RecordColumns
    deadline: float | None = None
    completion_for: CompletionFactory | None = None
    on_partitioned: OnPartitioned | None = None
    row_numbers: RowNumbers | None = None
    check_wait: Callable[[], None] | None = None
    may_be_large: bool = False

    def part(self, start: int, stop: int) -> Append:
        """Returns an append of the rows from `start` to `stop`."""
        return self._replace(
            columns=self.columns.slice(start, stop - start),
            completion_for=None if self.completion_for is None else partial(_completion_from, self.completion_for, start),
            row_numbers=None if self.row_numbers is None else partial(_numbers_from, self.row_numbers, start),
        )


def _completion_from(completion_for: CompletionFactory, start: int, places: Sequence[int]) -> Thunk:
    return completion_for([place + start for place in places])


def _numbers_from(row_numbers: RowNumbers, start: int, positions: NDArray[np.intp]) -> NDArray[np.int64]:
    return row_numbers(positions + start)
