"""Records by columns (KafkaProducer.doSend, for many at once): intercepted, serialized, checked, given partitions, appended."""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.appender import ROWS_PER_PARTITION, Appender, ThunkOf
from spark_kafka_sink.producer.accumulator.send_scope import SendScope
from spark_kafka_sink.producer.callbacks import NO_WAIT, in_callback
from spark_kafka_sink.producer.column_checks import check_columns, check_shapes, check_topic
from spark_kafka_sink.producer.interceptors import ColumnsInterception, ProducerInterceptors
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.partitioners.partitioner import Partitioner, Partitions
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.serializers.serialization import Serialization
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

Chosen = Callable[[Partitions], None]


class ColumnSender:
    """Any thread may append; it has no state of its own."""

    def __init__(
        self,
        config: ProducerConfig,
        interceptors: ProducerInterceptors,
        serialization: Serialization,
        metadata: ProducerMetadata,
        partitioner: Partitioner,
        appender: Appender,
        metrics: SenderMetrics,
        wakeup: Callable[[], None],
        check_usable: Callable[[], None],
    ) -> None:
        """wakeup: makes the sender's thread look at what is to be asked. check_usable: raises why the producer takes nothing."""
        self._max_block_s = config.max_block_ms / 1000
        self._interceptors = interceptors
        self._serialization = serialization
        self._metadata = metadata
        self._partitioner = partitioner
        self._appender = appender
        self._metrics = metrics
        self._wakeup = wakeup
        self._check_usable = check_usable

    def append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None:
        """As SendScope.append says."""
        check_topic(topic)
        check_shapes(topic, columns)
        if not self._interceptors:
            self._append_counted(scope, topic, columns, None)
            return
        columns = self._interceptors.on_send_columns(topic, columns)
        interception = ColumnsInterception(self._interceptors, topic, columns.num_records)
        try:
            check_shapes(topic, columns)
            self._append_counted(scope, topic, columns, interception.thunk_of)
        except BaseException as error:
            interception.failed(error)
            raise

    def append_gathered(
        self, scope: SendScope, topic: str, columns: RecordColumns, deadline: float, thunk_of: ThunkOf, chosen: Chosen
    ) -> None:
        """Of records sent one by one: intercepted and serialized already, counted where they fail. `deadline`: of every wait.
        `chosen` is told the partitions before anything is appended."""
        self._append(scope, topic, columns, deadline, thunk_of, chosen)

    def rows_per_append(self, topic: str) -> int:
        """From how many rows on an append to this topic costs little a row; 0 while the topic is not known."""
        return ROWS_PER_PARTITION * (self._metadata.fetch().partition_count(topic) or 0)

    def _append_counted(self, scope: SendScope, topic: str, columns: RecordColumns, thunk_of: ThunkOf | None) -> None:
        self._check_usable()
        try:
            columns = self._serialization.columns(topic, columns)
            self._append(scope, topic, columns, None, thunk_of)
        except KafkaSinkError as error:
            self._metrics.append_refused(topic, columns.num_records - error.facts.get("buffered", 0), error)
            raise

    def _append(
        self,
        scope: SendScope,
        topic: str,
        columns: RecordColumns,
        until: float | None,
        thunk_of: ThunkOf | None,
        chosen: Chosen | None = None,
    ) -> None:
        """`until`: when every wait ends; None: each after max.block.ms, and that for metadata in all."""
        if columns.num_records == 0:
            return
        if until is None and in_callback():
            until = NO_WAIT
        check_columns(topic, columns)
        sizes = self._appender.sizes(scope, topic, columns)
        deadline = time.monotonic() + self._max_block_s if until is None else until
        largest = NO_PARTITION if columns.partition is None else int(columns.partition.max())
        cluster = self._metadata.wait_on(topic, largest, deadline, self._wakeup)
        count = cluster.partition_count(topic)
        assert count is not None
        partitions = self._partitioner.partition(topic, columns, sizes, cluster)
        if chosen is not None:
            chosen(partitions)
        self._appender.append(scope, topic, columns, sizes, partitions, count, deadline=until, thunk_of=thunk_of)
