"""Delivery reports as tables of Arrow, a row for each topic-partition, without a Python object for each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET, PartitionReports

PARTITION_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
    ]
)
TASK_SCHEMA = pa.schema([pa.field("spark_partition", pa.int32(), nullable=False), *PARTITION_SCHEMA])


def partition_table(reports: PartitionReports) -> pa.Table:
    """Returns a row of PARTITION_SCHEMA for each topic-partition, sorted by both."""
    topics, numbers = reports.columns()
    return pa.Table.from_arrays(_arrays(topics, numbers), schema=PARTITION_SCHEMA)


def task_table(tasks: Sequence[tuple[int, PartitionReports]]) -> pa.Table:
    """Returns a row of TASK_SCHEMA for each Spark partition and topic-partition, in the order of `tasks`, then sorted by both."""
    columns = [(number, *reports.columns()) for number, reports in tasks]
    topics = sorted({topic for _, named, _ in columns for topic in named})
    place = {topic: index for index, topic in enumerate(topics)}
    parts = [np.zeros((6, 0), np.int64)]
    for _, named, numbers in columns:
        part = numbers.copy()
        part[0] = np.array([place[topic] for topic in named], np.int64)[numbers[0]] if named else numbers[0]
        parts.append(part)
    rows = [numbers.shape[1] for _, _, numbers in columns]
    of_tasks = np.repeat(np.array([number for number, _, _ in columns], np.int32), rows)
    arrays = [array_of_numbers(of_tasks), *_arrays(topics, np.concatenate(parts, axis=1))]
    return pa.Table.from_arrays(arrays, schema=TASK_SCHEMA)


def _arrays(topics: Sequence[str], numbers: NDArray[np.int64]) -> list[pa.Array]:
    topic, partition, records, size, first, last = numbers
    names = array_of_bytes([name.encode(errors="backslashreplace") for name in topics], pa.string())
    return [
        names.take(array_of_numbers(topic)),
        array_of_numbers(partition.astype(np.int32), partition != ALL_PARTITIONS),
        array_of_numbers(records),
        array_of_numbers(size),
        array_of_numbers(first, first != NO_OFFSET),
        array_of_numbers(last, last != NO_OFFSET),
    ]
