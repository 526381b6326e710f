"""Appends records by columns (KafkaProducer.doSend for many rows): intercept, serialize, check, partition, append."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.append_plan import Sizes
from spark_kafka_sink.producer.accumulator.appender import MAX_BYTES, ROWS_PER_PARTITION, Append, Appender
from spark_kafka_sink.producer.base.bad_rows import (
    BadRow,
    BadRows,
    OnBadRows,
    RowNumbers,
    check_columns,
    check_shapes,
    check_topic,
    concerns_one_row,
    forget_frames,
    good_pieces,
)
from spark_kafka_sink.producer.base.lifecycle import NO_WAIT, Lifecycle, in_callback
from spark_kafka_sink.producer.interceptors import ColumnsInterception, ProducerInterceptors
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.partitioners.interface import ClosablePartitioner, Partitions
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata, Retention
from spark_kafka_sink.producer.serializers.serialization import Serialization
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns, concatenated
from spark_kafka_sink.records.timestamps import in_ms


class UserClasses(NamedTuple):
    """User-supplied classes that see records: everything that the producer's options can name."""

    interceptors: ProducerInterceptors
    serialization: Serialization
    partitioner: ClosablePartitioner

    def close(self) -> None:
        self.interceptors.close()
        self.serialization.close()
        self.partitioner.close()


class _Partitioned(NamedTuple):
    """Serialized and checked rows with their sizes, partitions, and positions in the columns of the append."""

    columns: RecordColumns
    sizes: Sizes
    partitions: Partitions
    partition_count: int
    positions: NDArray[np.intp]


class ColumnAppender:
    """Appends columns from scopes and single records to the accumulator. Any thread may append."""

    def __init__(
        self,
        config: ProducerConfig,
        lifecycle: Lifecycle,
        user_classes: UserClasses,
        metadata: ProducerMetadata,
        appender: Appender,
        metrics: SenderMetrics,
        retention: Retention,
    ) -> None:
        self._max_block_s = config.max_block_ms / 1000
        self._timestamp_unit = config.timestamp_unit
        self._retention = retention
        self._lifecycle = lifecycle
        self._interceptors, self._serialization, self._partitioner = user_classes
        self._metadata = metadata
        self._appender = appender
        self._metrics = metrics
        self._rows_per_append: dict[str, int] = {}  # for topics that were appended to

    def append(self, rows: Append, on_bad_rows: OnBadRows | None = None) -> None:
        """Appends columns; see SendScope.append."""
        topic = rows.topic
        check_topic(topic)
        check_shapes(topic, rows.columns)
        if rows.columns.timestamp is not None and self._timestamp_unit is not None:
            rows = rows._replace(columns=replace(rows.columns, timestamp=in_ms(rows.columns.timestamp, self._timestamp_unit)))
        given = rows.columns
        interception: ColumnsInterception | None = None
        if self._interceptors:
            columns = self._interceptors.on_send_columns(topic, given)
            interception = ColumnsInterception(self._interceptors, topic, columns.num_records)
            rows = rows._replace(columns=columns, completion_for=interception.completion_for)
            if columns is not given:  # the interceptor may have added, removed or reordered rows
                rows = rows._replace(row_numbers=None)
        try:
            if interception is not None:
                check_shapes(topic, rows.columns)
            self._lifecycle.check_usable()
            try:
                serialized = rows._replace(columns=self._serialization.columns(topic, rows.columns))
                if serialized.columns.num_records:
                    self._appender.append(*self._placed(serialized))
                return
            except KafkaSinkError as error:
                if on_bad_rows is None or not concerns_one_row(error):
                    self._refused(rows, error)
                    raise
                first_error = error
            self._append_good_rows(rows, given, first_error, on_bad_rows, interception)
        except BaseException as error:
            if interception is not None:
                interception.failed(error)
            if isinstance(error, UsageError):  # only after its facts have been read
                self._lifecycle.raise_true_cause(error)
            raise

    def _append_good_rows(
        self,
        rows: Append,
        given: RecordColumns,
        first_error: KafkaSinkError,
        on_bad_rows: OnBadRows,
        interception: ColumnsInterception | None,
    ) -> None:
        """Passes bad rows to `on_bad_rows`, then appends the others. given: before interceptors. first_error: of all columns."""
        topic = rows.topic
        left = rows.columns.num_records
        buffered = 0
        try:
            good: list[_Partitioned] = []
            for piece in self._pieces(rows, first_error):
                if not isinstance(piece, BadRow):
                    good.append(piece)
                    continue
                left -= 1
                self._metrics.append_refused(topic, 1, piece.error)
                if interception is not None:
                    interception.refused(piece.error)
                on_bad_rows(_as_given(topic, given, rows.columns, piece))
                forget_frames(piece.error)
            deadline = NO_WAIT if in_callback() else None
            for part in _joined(good):
                numbers = None if rows.row_numbers is None else partial(_numbers_at, rows.row_numbers, part.positions)
                good_rows = rows._replace(columns=part.columns, deadline=deadline, row_numbers=numbers)
                self._count_old(good_rows)
                self._appender.append(good_rows, *part[1:4])
                buffered += part.columns.num_records
        except KafkaSinkError as error:
            if buffered:
                error.facts["buffered"] = buffered + error.facts.get("buffered", 0)
            self._metrics.append_refused(topic, left - error.facts.get("buffered", 0), error)
            raise

    def _pieces(self, rows: Append, first_error: KafkaSinkError) -> Iterator[_Partitioned | BadRow]:
        topic = rows.topic
        # Once for all pieces: each partition that does not exist would otherwise cost a request for metadata.
        cluster, count = self._cluster(topic, rows.columns, NO_WAIT if in_callback() else None)

        def attempt(start: int, stop: int) -> _Partitioned:
            piece = self._serialization.columns(topic, rows.columns.slice(start, stop - start))
            check_columns(topic, piece, checks_unit=self._timestamp_unit is None)
            sizes = self._appender.sizes(rows._replace(columns=piece))
            partitions = self._partitioner.partition(topic, piece, sizes, cluster)
            return _Partitioned(piece, sizes, partitions, count, np.arange(start, stop))

        for found in good_pieces(rows.columns.num_records, attempt, first_error):
            yield found if isinstance(found, BadRow) else found.result

    def append_bytes(self, rows: Append) -> None:
        """Appends columns of bytes past interceptors and serializers; see SendScope.append_serialized."""
        check_topic(rows.topic)
        check_shapes(rows.topic, rows.columns)
        self._lifecycle.check_usable()
        try:
            self.append_serialized(rows)
        except KafkaSinkError as error:
            self._refused(rows, error)
            raise

    def _refused(self, rows: Append, error: KafkaSinkError) -> None:
        self._metrics.append_refused(rows.topic, rows.columns.num_records - error.facts.get("buffered", 0), error)

    def append_serialized(self, rows: Append) -> None:
        """Appends rows that are already intercepted and serialized. The caller counts failures."""
        if rows.columns.num_records:
            try:
                self._appender.append(*self._placed(rows))
            except UsageError as error:
                self._lifecycle.raise_true_cause(error)

    def _placed(self, rows: Append) -> tuple[Append, Sizes, Partitions, int]:
        """Returns checked rows, at least one, with their sizes and partitions, and the number of the topic's partitions."""
        topic, columns = rows.topic, rows.columns
        if rows.deadline is None and in_callback():
            rows = rows._replace(deadline=NO_WAIT)
        check_columns(topic, columns, checks_unit=self._timestamp_unit is None)
        sizes = self._appender.sizes(rows)
        cluster, count = self._cluster(topic, columns, rows.deadline)
        partitions = self._partitioner.partition(topic, columns, sizes, cluster)
        if rows.on_partitioned is not None:
            rows.on_partitioned(partitions)
        self._count_old(rows)
        return rows, sizes, partitions, count

    def _cluster(self, topic: str, columns: RecordColumns, deadline: float | None) -> tuple[Cluster, int]:
        """Returns the cluster once it has the topic and the highest partition, and the number of the topic's partitions."""
        until = time.monotonic() + self._max_block_s if deadline is None else deadline
        largest = NO_PARTITION if columns.partition is None else int(columns.partition.max())
        cluster = self._metadata.wait_on(topic, largest, until, self._lifecycle.wake_sender)
        count = cluster.partition_count(topic)
        assert count is not None
        self._rows_per_append[topic] = ROWS_PER_PARTITION * count
        return cluster, count

    def _count_old(self, rows: Append) -> None:
        if rows.columns.timestamp is not None and (old := self._retention.count(rows.topic, rows.columns.timestamp)):
            rows.tally.older_than_retention(old)

    def request_topics(self, topics: Iterable[str]) -> None:
        """Requests metadata of topics together, without waiting for it; see SendScope.request_topics."""
        if True in {self._metadata.add(topic, monotonic_ms()) for topic in topics}:
            self._lifecycle.wake_sender()

    def rows_per_append(self, topic: str) -> int:
        """See SendScope.rows_per_append."""
        rows = self._rows_per_append.get(topic)  # called for each Arrow batch
        return ROWS_PER_PARTITION * (self._metadata.fetch().partition_count(topic) or 0) if rows is None else rows


def _as_given(topic: str, given: RecordColumns, columns: RecordColumns, bad: BadRow) -> BadRows:
    if given is not columns:  # an interceptor may have added, removed or reordered rows
        return BadRows(topic, columns.slice(bad.row, 1), bad.error, None)
    return BadRows(topic, given.slice(bad.row, 1), bad.error, np.array([bad.row], np.intp))


def _joined(parts: Sequence[_Partitioned]) -> Iterator[_Partitioned]:
    """Joins neighbours with the same columns, because each append has a fixed cost, up to the bytes that are encoded at once."""
    start = 0
    while start < len(parts):
        first = parts[start]
        stop, size = start + 1, int(first.sizes.sum())
        while stop < len(parts) and first.columns.is_like(parts[stop].columns):
            size += int(parts[stop].sizes.sum())
            if size > MAX_BYTES:
                break
            stop += 1
        columns, sizes, partitions, _, positions = zip(*parts[start:stop], strict=True)
        yield _Partitioned(
            concatenated(columns),
            np.concatenate(sizes),
            np.concatenate(partitions),
            first.partition_count,
            np.concatenate(positions),
        )
        start = stop


def _numbers_at(row_numbers: RowNumbers, positions: NDArray[np.intp], places: NDArray[np.intp]) -> NDArray[np.int64]:
    return row_numbers(positions[places])
