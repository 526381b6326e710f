"""Calls a user's own partitioner and validates what it returns."""

from __future__ import annotations

import logging
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.counts import counted, partition_range
from spark_kafka_sink.errors import KafkaSinkError, OptionError, RecordError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.base.plugins import configured, full_name, plugin
from spark_kafka_sink.producer.partitioners.interface import Partitions, Sizes, optional_method, partition_count
from spark_kafka_sink.records.arrow_arrays import byte_column
from spark_kafka_sink.records.columns import RecordColumns

logger = logging.getLogger(__name__)

OPTION = "partitioner.class"


def custom_partitioner(value: object, config: ProducerConfig) -> CustomPartitioner:
    """Returns the configured partitioner for a dotted name, class or object.

    Raises:
        OptionError: if the value is not a partitioner or cannot be loaded.
    """
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
