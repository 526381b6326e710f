"""The hook on_new_batch over columns: where rows would begin a new batch, a partitioner may send them elsewhere (KIP-480)."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.accumulator.append_plan import group
from spark_kafka_sink.producer.partitioners.built_in import Queues
from spark_kafka_sink.producer.partitioners.partitioner import ClosablePartitioner, OnNewBatch, Partitions, Sizes, partition_count
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

# Bytes in the open batch of each partition that has one.
Filled = dict[int, int]
# Batches' worth of rows that are asked about at once.
BATCHES_AHEAD = 2


class NewBatches:
    """Tells a partitioner of each batch that its rows have to begin, and asks once more from that row on (KafkaProducer.doSend
    of Kafka 3, with abortOnNewBatch).

    Batches are foreseen from what is open now; one that the sender takes meanwhile is told of at the next append. A row for which
    the partitioner was asked again stays where it says, in a new batch or not. Holds no state.
    """

    def __init__(self, partitioner: ClosablePartitioner, on_new_batch: OnNewBatch, queues: Queues, batch_size: int) -> None:
        self._partitioner = partitioner
        self._on_new_batch = on_new_batch
        self._queues = queues
        self._batch_size = batch_size

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        """Asks and looks ahead for a few batches' rows at once: each new batch costs two looks at those, some 0.1 ms."""
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
        """Partitions of rows, and what is in the open batches after them."""
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
            asked = slice(start, row + 1)  # this row too: where it says now it stays
            _, filled = deal(partitions[asked], sizes[asked], filled, self._batch_size, count)
            start = row + 1

    def close(self) -> None:
        self._partitioner.close()

    def _changed(
        self, topic: str, columns: RecordColumns, partitions: Partitions, cluster: Cluster, rows: list[int]
    ) -> int | None:
        """The first of these rows, each the first of a batch, from which on the partitioner would choose otherwise."""
        for row in rows:
            asked = columns.partition is not None and columns.partition[row] != NO_PARTITION
            if not asked and self._on_new_batch(topic, cluster, int(partitions[row])) is not False:
                return row
        return None


def deal(partitions: Partitions, sizes: Sizes, filled: Filled, batch_size: int, count: int) -> tuple[list[int], Filled]:
    """The rows that begin a new batch, ascending, and what is in the open batches after all of the rows.

    Loops over batches, not rows.
    """
    groups = group(partitions, count)
    ends = np.concatenate([[0], np.cumsum(sizes if groups.order is None else sizes[groups.order])])
    filled, begins = dict(filled), list[int]()
    for partition, first, last in zip(groups.partition_ids, groups.starts, groups.starts[1:], strict=False):
        position = first
        size = filled.get(partition, batch_size + 1)  # as much as if it were full
        while position < last:
            stop = int(np.searchsorted(ends, ends[position] + batch_size - size, side="right")) - 1
            if stop <= position:
                begins.append(position)
                size = 0
                stop = int(np.searchsorted(ends, ends[position] + batch_size, side="right")) - 1
                stop = max(stop, position + 1)  # a row larger than a batch has one of its own
            stop = min(stop, last)
            size += int(ends[stop] - ends[position])
            position = stop
        filled[partition] = size
    if groups.order is not None:
        begins = groups.order[begins].tolist()
    return sorted(begins), filled
