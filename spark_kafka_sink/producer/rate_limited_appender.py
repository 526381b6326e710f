"""An appender that holds the rows of scopes back for a rate limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.append_plan import Partitions, Sizes
from spark_kafka_sink.producer.accumulator.appender import Appender, CompletionFactory, parts
from spark_kafka_sink.producer.accumulator.produce_result import Thunk
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.bad_rows import RowNumbers
from spark_kafka_sink.producer.base.lifecycle import NO_WAIT, Lifecycle
from spark_kafka_sink.producer.base.rate_limit import RateLimit
from spark_kafka_sink.records.columns import RecordColumns


class RateLimitedAppender(Appender):
    """Appends rows in slices, each when the rate limit lets it pass. Between slices it holds nothing that others wait for.

    Rows are checked, serialized and partitioned before, all at once. Single records have waited in `send`, and pass.
    """

    def __init__(
        self, config: ProducerConfig, accumulator: RecordAccumulator, lifecycle: Lifecycle, rate_limit: RateLimit
    ) -> None:
        super().__init__(config, accumulator, lifecycle)
        self._rate_limit = rate_limit

    def append(
        self,
        tally: Tally,
        topic: str,
        columns: RecordColumns,
        sizes: Sizes,
        partitions: Partitions,
        count: int,
        *,
        deadline: float | None = None,
        completion_for: CompletionFactory | None = None,
        row_numbers: RowNumbers | None = None,
    ) -> None:
        """Appends rows as Appender does, but waits for the rate limit first, which `deadline` does not end except for NO_WAIT."""
        check = tally.check_wait
        if check is None:
            super().append(
                tally,
                topic,
                columns,
                sizes,
                partitions,
                count,
                deadline=deadline,
                completion_for=completion_for,
                row_numbers=row_numbers,
            )
            return
        limit, done = self._rate_limit, 0
        try:
            for start, stop in parts(sizes, limit.max_records, limit.max_bytes):
                rows, size = stop - start, int(sizes[start:stop].sum())
                if deadline == NO_WAIT:
                    limit.take(rows, size)  # later appends wait for it
                else:
                    tally.rate_limited(limit.wait(topic, rows, size, check))
                super().append(
                    tally,
                    topic,
                    columns.slice(start, rows),
                    sizes[start:stop],
                    partitions[start:stop],
                    count,
                    deadline=deadline,
                    completion_for=None if completion_for is None else partial(_completion_from, completion_for, start),
                    row_numbers=None if row_numbers is None else partial(_numbers_from, row_numbers, start),
                )
                done = stop
        except KafkaSinkError as error:
            error.facts["buffered"] = done + error.facts.get("buffered", 0)
            raise


def _completion_from(completion_for: CompletionFactory, start: int, places: Sequence[int]) -> Thunk:
    """Returns the completion of rows of a slice that begins with row `start`."""
    return completion_for([place + start for place in places])


def _numbers_from(row_numbers: RowNumbers, start: int, positions: NDArray[np.intp]) -> NDArray[np.int64]:
    """Returns the numbers of rows of such a slice."""
    return row_numbers(positions + start)
