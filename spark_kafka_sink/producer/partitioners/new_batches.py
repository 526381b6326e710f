"""Calls the hook on_new_batch for columns: a partitioner may redirect rows that would begin a new batch (KIP-480)."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.producer.accumulator.append_plan import group
from spark_kafka_sink.producer.partitioners.built_in import Queues
from spark_kafka_sink.producer.partitioners.interface import ClosablePartitioner, OnNewBatch, Partitions, Sizes, partition_count
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

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
    """Returns the rows that begin a new batch, ascending, and the sizes of the open batches after all rows.

    Loops over batches, not rows.
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
