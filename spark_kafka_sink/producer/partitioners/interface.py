"""The interface of partitioners and what calls them: the partition column first, the hook on_new_batch (KIP-480), users' own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from numbers import Integral
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.counts import counted, partition_range
from spark_kafka_sink.errors import KafkaSinkError, OptionError, RecordError, UsageError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.append_plan import group
from spark_kafka_sink.producer.base.plugins import configured, full_name, plugin
from spark_kafka_sink.records.arrow_arrays import byte_column
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

logger = logging.getLogger(__name__)

Partitions = NDArray[np.int32]
Sizes = NDArray[np.int64]
OnNewBatch = Callable[[str, Cluster, int], object]


class Partitioner(Protocol):
    """Chooses partitions for columns. A custom partitioner need not inherit from this class. Java's Partitioner.

    Any thread may call it, and several at once. The append raises its errors.

    Optional methods:
    - on_new_batch(topic, cluster, prev_partition): called before a row assigned to prev_partition begins a new batch there. From
      that row on, partitions are chosen again (Java's Partitioner.onNewBatch), unless it returns False to keep the choice.
    - partition_record(topic, key, value, cluster): replaces `partition`; takes bytes or None and returns one partition. It runs
      Python code per row, which costs about 0.5 us per row in calls alone, as much as everything else together.
    - configure(settings): called once, before anything else, with the producer's options by Kafka's names.
    - close(): called once, when the producer is closed.
    """

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        """Returns a partition for each row.

        Args:
            topic: Name of the topic.
            columns: The serialized columns to send.
            sizes: Size of each record in a batch, in bytes: int64 of shape (num_records,), read-only.
            cluster: A snapshot that has the topic's partitions.

        Returns:
            int32 of shape (num_records,). The caller does not modify it.

        Raises:
            RecordError: A row cannot be assigned to a partition.
        """
        ...


class ClosablePartitioner(Partitioner, Protocol):
    """A partitioner that the producer closes."""

    def close(self) -> None: ...


class Queues(Protocol):
    """Queries to the accumulator. Thread-safe."""

    def queue_sizes(self, topic: str, count: int) -> tuple[list[int], list[int]] | None:
        """Returns the available partitions and the number of batches waiting for each. None until all `count` have had one."""
        ...

    def open_size(self, topic: str, partition: int) -> int | None:
        """Returns the number of bytes in the partition's open batch; None without an open batch."""
        ...

    def open_sizes(self, topic: str) -> dict[int, int]:
        """Returns the number of bytes in each open batch of the topic, by partition."""
        ...


def optional_method(partitioner: object, name: str) -> Callable[..., Any] | None:
    method = getattr(partitioner, name, None)
    return method if callable(method) else None


def partition_count(topic: str, cluster: Cluster) -> int:
    """Returns the partition count of a topic. Raises UsageError if it is unknown."""
    count = cluster.partition_count(topic)
    if count is None:
        raise UsageError(f"topic {topic}: wait for its metadata before partitioning", topic=topic)
    return count


class PartitionColumnFirst:
    """Uses the partition column if a row has one; other rows go to another partitioner.

    whole_rows: whether the other partitioner also reads values and headers; otherwise these are not copied for mixed rows.
    """

    def __init__(self, partitioner: Partitioner, *, whole_rows: bool = False) -> None:
        self._partitioner = partitioner
        self._whole_rows = whole_rows
        self.on_new_batch = optional_method(partitioner, "on_new_batch")
        self._close = optional_method(partitioner, "close")

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        count = partition_count(topic, cluster)
        if columns.partition is None:
            return self._partitioner.partition(topic, columns, sizes, cluster)
        _check_range(topic, columns.partition, count)
        open_ = columns.partition == NO_PARTITION
        if not open_.any():
            return columns.partition
        if open_.all():
            return self._partitioner.partition(topic, columns, sizes, cluster)
        rest = columns if self._whole_rows else RecordColumns(columns.num_records, key=columns.key)
        partitions = columns.partition.copy()
        partitions[open_] = self._partitioner.partition(topic, rest.filter(open_), sizes[open_], cluster)
        return partitions

    def close(self) -> None:
        if self._close is not None:
            self._close()


def _check_range(topic: str, partitions: Partitions, count: int) -> None:
    wrong = (partitions < NO_PARTITION) | (partitions >= count)
    if wrong.any():
        row = int(np.argmax(wrong))
        partition = int(partitions[row])
        raise RecordError(
            f"topic {topic}: row {row} of {len(partitions)}: column partition is {partition}, but {partition_range(count)};"
            " null lets the partitioner choose",
            topic=topic,
            row=row,
            partition=partition,
            partition_count=count,
        )


# Bytes in the open batch of each partition that has one.
Filled = dict[int, int]
# Number of batches whose rows are partitioned at once.
BATCHES_AHEAD = 2


class NewBatches:
    """Notifies a partitioner of each batch that its rows would begin, and calls it again from that row on (KafkaProducer.doSend
    of Kafka 3, with abortOnNewBatch).

    New batches are predicted from the batches that are open now. If the sender takes one meanwhile, the partitioner learns of it
    at the next append. The second choice for a row is final, whether it begins a batch or not. Holds no state.
    """

    def __init__(self, partitioner: ClosablePartitioner, on_new_batch: OnNewBatch, queues: Queues, batch_size: int) -> None:
        self._partitioner = partitioner
        self._on_new_batch = on_new_batch
        self._queues = queues
        self._batch_size = batch_size

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        """Partitions the rows of a few batches at once. Each new batch costs two passes over those rows, about 0.1 ms."""
        partition_count(topic, cluster)
        filled = self._queues.open_sizes(topic)
        ends = np.cumsum(sizes)
        partitions = [np.empty(0, np.int32)]
        start = 0
        while start < columns.num_records:
            done = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, done + BATCHES_AHEAD * self._batch_size, side="right"))
            stop = max(stop, start + 1)
            part = columns.slice(start, stop - start)
            chosen, filled = self._ahead(topic, part, sizes[start:stop], cluster, filled)
            partitions.append(chosen)
            start = stop
        return np.concatenate(partitions)

    def _ahead(
        self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster, filled: Filled
    ) -> tuple[Partitions, Filled]:
        """Returns the partitions of rows, and the sizes of the open batches after them."""
        count = partition_count(topic, cluster)
        partitions = self._partitioner.partition(topic, columns, sizes, cluster)
        start, end = 0, columns.num_records
        while True:
            begins, after = deal(partitions[start:], sizes[start:], filled, self._batch_size, count)
            row = self._changed(topic, columns, partitions, cluster, [start + begin for begin in begins])
            if row is None:
                return partitions, after
            rest = self._partitioner.partition(topic, columns.slice(row, end - row), sizes[row:], cluster)
            partitions = np.concatenate([partitions[:row], rest])
            asked = slice(start, row + 1)  # includes this row, whose second choice is final
            _, filled = deal(partitions[asked], sizes[asked], filled, self._batch_size, count)
            start = row + 1

    def close(self) -> None:
        self._partitioner.close()

    def _changed(
        self, topic: str, columns: RecordColumns, partitions: Partitions, cluster: Cluster, rows: list[int]
    ) -> int | None:
        """Returns the first of `rows`, each of which begins a batch, from which on the partitioner may choose differently."""
        for row in rows:
            asked = columns.partition is not None and columns.partition[row] != NO_PARTITION
            if not asked and self._on_new_batch(topic, cluster, int(partitions[row])) is not False:
                return row
        return None


def deal(partitions: Partitions, sizes: Sizes, filled: Filled, batch_size: int, count: int) -> tuple[list[int], Filled]:
    """Returns the ascending rows that begin a new batch, and the sizes of the open batches after all rows, by a loop over
    batches.
    """
    groups = group(partitions, count)
    ends = np.concatenate([[0], np.cumsum(sizes if groups.order is None else sizes[groups.order])])
    filled, begins = dict(filled), list[int]()
    for partition, first, last in zip(groups.partition_ids, groups.starts, groups.starts[1:], strict=False):
        position = first
        size = filled.get(partition, batch_size + 1)  # counts as full
        while position < last:
            stop = int(np.searchsorted(ends, ends[position] + batch_size - size, side="right")) - 1
            if stop <= position:
                begins.append(position)
                size = 0
                stop = int(np.searchsorted(ends, ends[position] + batch_size, side="right")) - 1
                stop = max(stop, position + 1)  # a row larger than a batch fills one alone
            stop = min(stop, last)
            size += int(ends[stop] - ends[position])
            position = stop
        filled[partition] = size
    if groups.order is not None:
        begins = groups.order[begins].tolist()
    return sorted(begins), filled


OPTION = "partitioner.class"


def custom_partitioner(value: object, config: ProducerConfig) -> CustomPartitioner:
    """Returns the configured partitioner for a dotted name, class or object. Raises OptionError if it is none."""
    partitioner = plugin(value, OPTION)
    custom = CustomPartitioner(partitioner)
    configure = optional_method(partitioner, "configure")
    if configure is not None:
        configured(partitioner, OPTION, configure, config.settings())
    return custom


class CustomPartitioner:
    """Wraps an object with `partition(topic, columns, sizes, cluster)`, as in the protocol Partitioner, or with
    `partition_record(topic, key, value, cluster)`, which gets bytes or None and returns one partition.

    partition_record runs Python code for every row. The calls alone take about 0.5 us per row, as much as the rest of the path.
    An exception from either method becomes a RecordError. For single records only the record in question fails. Thread-safe:
    several threads may call it at once.
    """

    def __init__(self, partitioner: Any) -> None:
        self.name = full_name(type(partitioner))
        self.on_new_batch = optional_method(partitioner, "on_new_batch")
        self._close = optional_method(partitioner, "close")
        self._by_column = optional_method(partitioner, "partition")
        by_record = optional_method(partitioner, "partition_record")
        if self._by_column is None and by_record is None:
            text = f"option {OPTION}: {self.name} has neither partition(topic, columns, sizes, cluster)"
            raise OptionError(f"{text} nor partition_record(topic, key, value, cluster)", option=OPTION)
        self._by_record = by_record

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        count = partition_count(topic, cluster)
        if self._by_column is None:
            return self._each(topic, columns, cluster, count)
        try:
            answer = self._by_column(topic, columns, sizes, cluster)
        except Exception as error:
            self._failed(topic, "partition", error)
        return self._checked(topic, answer, columns.num_records, count)

    def close(self) -> None:
        """Closes the wrapped object once, if it has `close`. An error is only logged."""
        close, self._close = self._close, None
        if close is not None:
            try:
                close()
            except Exception:
                logger.warning("partitioner %s: close failed", self.name, exc_info=True)

    def _each(self, topic: str, columns: RecordColumns, cluster: Cluster, count: int) -> Partitions:
        assert self._by_record is not None
        partitions = np.empty(columns.num_records, np.int32)
        pairs = zip(_values(columns.key, columns), _values(columns.value, columns), strict=True)
        for row, (key, value) in enumerate(pairs):
            try:
                partition = self._by_record(topic, key, value, cluster)
            except Exception as error:
                self._failed(topic, f"row {row} of {len(partitions)}: partition_record", error, row=row)
            if not isinstance(partition, Integral):
                self._refuse(topic, f"row {row} of {len(partitions)}: returned {partition!r}, not an int", row=row)
            if not 0 <= int(partition) < count:
                self._refuse_partition(topic, row, len(partitions), int(partition), count)
            partitions[row] = partition
        return partitions

    def _checked(self, topic: str, answer: object, rows: int, count: int) -> Partitions:
        if not isinstance(answer, np.ndarray):
            self._refuse(topic, f"returned {type(answer).__name__}, not a numpy array of int32")
        if answer.shape != (rows,):
            self._refuse(topic, f"returned shape {answer.shape} for {counted(rows, 'row')}, not ({rows},)")
        if answer.dtype.kind not in "iu":
            self._refuse(topic, f"returned {answer.dtype}, not int32")
        wrong = (answer < 0) | (answer >= count)
        if wrong.any():
            row = int(np.argmax(wrong))
            self._refuse_partition(topic, row, rows, int(answer[row]), count)
        return answer.astype(np.int32, copy=False)

    def _failed(self, topic: str, what: str, error: Exception, **facts: int) -> NoReturn:
        if isinstance(error, KafkaSinkError):
            raise error
        text = f"topic {topic}: partitioner {self.name}: {what} failed: {type(error).__name__}: {error}"
        raise RecordError(text, topic=topic, partitioner=self.name, **facts) from error

    def _refuse_partition(self, topic: str, row: int, rows: int, partition: int, count: int) -> NoReturn:
        text = f"row {row} of {rows}: returned {partition}, but {partition_range(count)}"
        self._refuse(topic, text, row=row, partition=partition, partition_count=count)

    def _refuse(self, topic: str, text: str, **facts: int) -> NoReturn:
        raise RecordError(f"topic {topic}: partitioner {self.name}: {text}", topic=topic, partitioner=self.name, **facts)


def _values(column: pa.Array | None, columns: RecordColumns) -> list[bytes | None]:
    if column is None:
        return [None] * columns.num_records
    values: list[bytes | None] = byte_column(column).to_pylist()
    return values
