"""How tests ask a partitioner."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.producer.partitioners.interface import Partitioner
from spark_kafka_sink.records.columns import RecordColumns
from tests.producer.clusters import cluster_of

TOPIC = "orders"


def config(**options: object) -> ProducerConfig:
    """Options are Kafka's names with underscores for dots."""
    return producer_config({"bootstrap.servers": "a:1", **{name.replace("_", "."): value for name, value in options.items()}})


def available(partitions: int, *without_leader: int) -> Cluster:
    return cluster_of({TOPIC: partitions}, leaderless=[(TOPIC, partition) for partition in without_leader])


def rows(count: int, size: int = 100) -> NDArray[np.int64]:
    return np.full(count, size, np.int64)


def ask(partitioner: Partitioner, columns: RecordColumns | int | pa.Array, cluster: Cluster, size: int = 100) -> list[int]:
    """Where rows go: those of columns, of a column of keys, or so many without a key. Each is of `size` bytes."""
    if isinstance(columns, int):
        columns = RecordColumns(columns)
    elif not isinstance(columns, RecordColumns):
        columns = RecordColumns(len(columns), key=columns)
    partitions = partitioner.partition(TOPIC, columns, rows(columns.num_records, size), cluster)
    assert (partitions.dtype.name, partitions.shape) == ("int32", (columns.num_records,))
    chosen: list[int] = partitions.tolist()
    return chosen
