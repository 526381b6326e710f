"""The producer: what a task, or a program without Spark, holds. It ties the stations of a record's way together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import TIMEOUT_MAX, Lock
from types import TracebackType
from typing import Any

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.config import ProducerConfig, producer_config
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, RecordError, SerializationError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.appender import ROWS_PER_PARTITION, Appender, ThunkOf
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.column_checks import check_columns
from spark_kafka_sink.producer.gathered_records import GatheredRecords
from spark_kafka_sink.producer.interceptors import ColumnsInterception, ProducerInterceptors
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.metrics.snapshot import ProducerMetrics, snapshot
from spark_kafka_sink.producer.partitioners.partitioner_class import partitioner_of
from spark_kafka_sink.producer.process import process
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.producer_record import PartitionInfo
from spark_kafka_sink.producer.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.record_future import OnDelivery, RecordFuture
from spark_kafka_sink.producer.record_scope import RecordScope
from spark_kafka_sink.producer.record_sender import AnyHeaders, InterceptedSender, RecordSender
from spark_kafka_sink.producer.send_scope import SendScope
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.serializers.registry import serializers_of
from spark_kafka_sink.producer.serializers.serialization import Serialization
from spark_kafka_sink.records.columns import RecordColumns

# A chunk is what an open batch holds idle on average half of: 1,000 open partitions hold 16 MB of 32. Chunks of 64 KiB would
# take all of it; smaller ones cost more copies a batch and more buffers a request (sendmsg takes 1,024).
CHUNK_SIZE = 16 * 1024
# To close sockets and tell whoever waits takes no network.
ABORT_TIMEOUT_S = 10.0


class Producer:
    """Sends records to Kafka, one by one or in columns, from a memory of its own, through one background thread. In a `with` it
    is closed at the end; after an exception what is not finished fails. Java's KafkaProducer.

    settings: Kafka's producer option names and values, or a ProducerConfig; `config` has them as they are in force.
    idle_close_ms: the producer closes itself when it has had no open scope for so long, in ms; None: never.

    Raises OptionError for a setting.

    Threads: any thread may open scopes, append and flush; the sender's thread owns sockets and sequences (see Sender). `_lock`
    guards the count of open scopes. A producer belongs to the process that made it: in a forked child every call says so.
    """

    def __init__(self, settings: ProducerConfig | Mapping[str, object], *, idle_close_ms: int | None = None) -> None:
        self.config = settings if isinstance(settings, ProducerConfig) else producer_config(settings)
        serializers = serializers_of(self.config)
        self._serialization = Serialization(*serializers)
        self._pid = process.pid
        self._lock = Lock()
        self._scopes = 0
        self._idle_close_ms = idle_close_ms
        self._idle_since_ms = monotonic_ms()
        self._closed = False
        self._accumulator = RecordAccumulator(self.config)
        self._partitioner = partitioner_of(self.config, self._accumulator)
        self._metrics = SenderMetrics(self.config)
        chunk_size = min(CHUNK_SIZE, max(self.config.buffer_memory, 1))
        self._pool = BufferPool(self.config.buffer_memory, chunk_size, on_wait=self._metrics.waited_for_memory)
        self._metadata = ProducerMetadata(self.config, on_wait=self._metrics.waited_for_metadata)
        self._client = NetworkClient(self.config, self._metadata)
        self._interceptors = ProducerInterceptors.of(self.config)
        self._gathered = GatheredRecords(self, self.config, self._accumulator, self._client.wakeup, self._metrics)
        records = RecordSender(self.config, serializers, self._gathered, self._metadata, self._check_topic, self._metrics)
        self._records = InterceptedSender(self._interceptors, records) if self._interceptors else records
        self._sender = Sender(
            self.config,
            self._client,
            self._metadata,
            self._accumulator,
            self._pool,
            self._gathered,
            self._metrics,
            idle_since_ms=self._ms_until_idle_close,
        )
        self._appender = Appender(self.config, self._accumulator, self._pool, self._sender.wakeup)
        self._sender.start()

    @property
    def failed(self) -> KafkaSinkError | None:
        """Why the producer cannot go on, or None."""
        return self._sender.failure

    @property
    def closed(self) -> bool:
        """Whether it takes no more records: closed, failed, idle for too long, or another process's."""
        return self._closed or self.failed is not None or process.pid != self._pid or not self._sender.is_alive()

    def scope(self) -> SendScope:
        """A share of this producer for columns of records, with errors and counts of its own, to be used in a `with`.

        UsageError when the producer is closed.
        """
        self.check_usable()
        with self._lock:
            self._check_open()
            self._scopes += 1
        return SendScope(self, self._scope_closed)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """A topic's partitions, in order. Java's KafkaProducer.partitionsFor.

        Waits for metadata at most max.block.ms, then MetadataTimeoutError; UsageError when the producer is closed.
        """
        self.check_usable()
        cluster = self._cluster_with(topic, self._block_deadline())
        leaders = (cluster.leader(topic, partition) for partition in range(cluster.partition_count(topic) or 0))
        nodes = (None if leader is None else cluster.nodes.get(leader) for leader in leaders)
        return [PartitionInfo(topic, partition, node) for partition, node in enumerate(nodes)]

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: AnyHeaders = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """One record on its way; what becomes of it is told by the future, and before that to `on_delivery(metadata, error)`.

        value, key: what their serializers take; without those bytes, text (as UTF-8) or None. partition: None lets the
        partitioner decide. timestamp: ms since the epoch, None: now. headers: (key, value) pairs or a mapping.

        As in Java's KafkaProducer.send: what the topic, the cluster or the record's size is to blame for fails the future
        (RecordError, BrokerError, DeadlineError); SerializationError, RecordError for a malformed call, and UsageError for a
        closed producer or a forked child are raised. Waits at most max.block.ms for metadata and for memory, but not in
        `on_delivery`, which runs in the sender's thread.
        """
        if process.pid != self._pid or self._closed:
            self.check_usable()
        try:
            return self._records.send(topic, value, key, partition, timestamp, headers, on_delivery)
        except SerializationError as error:
            self._metrics.append_refused(str(topic), 1, error)
            raise

    def flush(self, timeout: float | None = None) -> None:
        """Send what is waiting and return once all that was sent before is acked or failed, which the futures tell.

        timeout: in seconds; FlushTimeoutError after it. None: delivery.timeout.ms is the bound.

        What scopes have appended is for them to flush. Java's KafkaProducer.flush. UsageError in a delivery callback, where
        waiting would be for ever, and in a forked child.
        """
        self.check_may_wait()
        begun_ns = time.monotonic_ns()
        try:
            self._gathered.flush(timeout)
        finally:
            self.flushed(time.monotonic_ns() - begun_ns)

    def metrics(self) -> ProducerMetrics:
        """What Java's KafkaProducer.metrics() gives, under the same names (docs/metrics.md), as of now; also after close.

        From any thread. Rates and averages are of the last metrics.num.samples windows of metrics.sample.window.ms; an average or
        a maximum of nothing is NaN. UsageError in a forked child.
        """
        self._check_process()
        return snapshot(self._metrics, self._client, self._metadata, self._pool)

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is there and end. Java's KafkaProducer.close.

        timeout_s: in seconds; FlushTimeoutError after it, and what is left then fails. None: delivery.timeout.ms is the bound,
        as no batch stays unfinished longer than that.

        In a delivery callback it only begins to close. A second call does nothing but wait.
        """
        if process.pid != self._pid:
            return  # the parent's threads and sockets are not this process's to end
        with self._lock:
            self._closed = True
        if self._sender.is_current_thread():
            self._sender.close()
            return
        deadline = time.monotonic() + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        self._gathered.close(deadline)
        self._sender.close()
        if self._sender.join(min(max(deadline - time.monotonic(), 0), TIMEOUT_MAX)):
            self._close_plugins()
            return
        unfinished = self._accumulator.incomplete_records()
        self._abort()
        if unfinished:
            raise FlushTimeoutError(f"close: {unfinished} records were not acked within {timeout_s} s; they failed")

    def _abort(self) -> None:
        """End now. What is not finished fails, and whoever waits is told."""
        with self._lock:
            self._closed = True
        self._sender.force_close()
        self._sender.join(ABORT_TIMEOUT_S)
        self._close_plugins()

    def _close_plugins(self) -> None:
        self._interceptors.close()
        self._serialization.close()
        self._partitioner.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif process.pid == self._pid:
            self._abort()

    # What a scope asks for (ScopeOwner)

    def append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None:
        self.check_usable()
        if not self._interceptors:
            self._append(scope, topic, self._serialized(topic, columns))
            return
        columns = self._interceptors.on_send_columns(topic, columns)
        interception = ColumnsInterception(self._interceptors, topic, columns.num_records)
        try:
            columns = self._serialized(topic, columns)
            self._append(scope, topic, columns, thunk_of=interception.thunk_of)
        except KafkaSinkError as error:
            interception.failed(error)
            raise

    def _serialized(self, topic: str, columns: RecordColumns) -> RecordColumns:
        try:
            return self._serialization.columns(topic, columns)
        except SerializationError as error:
            self._metrics.append_refused(topic, columns.num_records, error)
            raise

    def append_gathered(self, scope: RecordScope, topic: str, columns: RecordColumns, deadline: float, thunk_of: ThunkOf) -> None:
        """Of records sent one by one: serialized and intercepted already. `deadline`: of every wait."""
        self._append(scope, topic, columns, deadline=deadline, thunk_of=thunk_of)

    def _append(
        self,
        scope: SendScope,
        topic: str,
        columns: RecordColumns,
        *,
        deadline: float | None = None,
        thunk_of: ThunkOf | None = None,
    ) -> None:
        if columns.num_records == 0:
            return
        try:
            self._append_or_raise(scope, topic, columns, deadline, thunk_of)
        except KafkaSinkError as error:
            if deadline is None:  # single records may be tried again; they are counted where they fail
                self._metrics.append_refused(topic, columns.num_records - error.facts.get("buffered", 0), error)
            # The pool and the metadata only know that they were closed; why is the producer's to say.
            if isinstance(error, UsageError) and self.failed is not None:
                raise self.failed from error
            raise

    def _append_or_raise(
        self, scope: SendScope, topic: str, columns: RecordColumns, until: float | None, thunk_of: ThunkOf | None
    ) -> None:
        check_columns(topic, columns)
        sizes = self._appender.sizes(scope, topic, columns)
        deadline = self._block_deadline() if until is None else until  # one for all of its waits for metadata, as waitOnMetadata
        cluster = self._cluster_with(topic, deadline)
        if columns.partition is not None and int(columns.partition.max()) >= (cluster.partition_count(topic) or 0):
            self._metadata.refresh_topic(topic, deadline, self._sender.wakeup)  # some may have been added
            cluster = self._cluster_with(topic, deadline)
        count = cluster.partition_count(topic)
        assert count is not None
        partitions = self._partitioner.partition(topic, columns, sizes, cluster)
        self._appender.append(scope, topic, columns, sizes, partitions, count, deadline=until, thunk_of=thunk_of)

    def rows_per_append(self, topic: str) -> int:
        return ROWS_PER_PARTITION * (self._metadata.fetch().partition_count(topic) or 0)

    def flush_scope(self, scope: SendScope) -> None:
        self.check_alive()
        self._accumulator.flush(scope)
        self._sender.wakeup()

    def flushed(self, waited_ns: int) -> None:
        self._metrics.flushed(waited_ns)

    def discard_scope(self, scope: SendScope) -> None:
        if process.pid != self._pid:
            return  # a fork may have copied a lock that a thread of the parent held
        with scope.appending:
            dropped = self._accumulator.discard(scope)
            for batch in dropped:
                batch.memory.give_back(self._pool)
                batch.failed(UsageError("the records were discarded with their send scope before they were sent"))

    def check_usable(self) -> None:
        """Raise what stands in the way of new records, if anything does."""
        self.check_alive()
        self._check_open()

    def check_alive(self) -> None:
        """Raise why nothing that was appended can be acked any more, if that is so."""
        self._check_process()
        if self.failed is not None:
            raise self.failed
        if not self._sender.is_alive():
            raise UsageError("the producer is closed")

    def check_may_wait(self) -> None:
        """Raise why waiting for an answer would be for ever, if it would."""
        if process.pid != self._pid:
            raise UsageError(
                f"this producer belongs to process {self._pid}; in a forked child nothing more is known of its records"
            )
        if self._sender.is_current_thread():
            raise UsageError("a delivery callback must not wait for records: it runs in the thread that would answer")

    def on_sender_thread(self) -> bool:
        return self._sender.is_current_thread()

    def _check_process(self) -> None:
        if process.pid != self._pid:
            raise UsageError(f"this producer belongs to process {self._pid}; a forked child must make its own")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the producer is closed")

    # Inside

    def _check_topic(self, topic: str, partition: int | None) -> Cluster:
        """Wait until the topic, and the partition if one is asked for, is known."""
        # A delivery callback runs in the thread that everybody waits for, and must not wait itself.
        deadline = 0.0 if self.on_sender_thread() else self._block_deadline()
        cluster = self._cluster_with(topic, deadline)
        if partition is None or partition < (cluster.partition_count(topic) or 0):
            return cluster
        cluster = self._metadata.refresh_topic(topic, deadline, self._sender.wakeup)  # some may have been added
        count = cluster.partition_count(topic) or 0
        if partition < count:
            return cluster
        raise RecordError(
            f"topic {topic}: partition is {partition}, but there are {count} partitions, 0 to {count - 1};"
            " None lets the partitioner decide",
            topic=topic,
            partition=partition,
            partition_count=count,
        )

    def _cluster_with(self, topic: str, deadline: float) -> Cluster:
        now_ms = monotonic_ms()
        self._metadata.add(topic, now_ms)
        cluster = self._metadata.fetch()
        if cluster.partition_count(topic) is not None:
            return cluster
        return self._metadata.wait_for_topic(topic, deadline, self._sender.wakeup)

    def _block_deadline(self) -> float:
        return time.monotonic() + self.config.max_block_ms / 1000

    def _scope_closed(self, scope: SendScope) -> None:
        if process.pid != self._pid:
            return
        with self._lock:
            self._scopes -= 1
            self._idle_since_ms = monotonic_ms()
        self._sender.wakeup()

    def _ms_until_idle_close(self, now_ms: int) -> int | None:
        """For the sender: how long until it may end for want of use; None: it ends now, and takes no more scopes."""
        if self._idle_close_ms is None:
            return 2**62
        with self._lock:
            if self._scopes or self._accumulator.has_incomplete():
                return 2**62  # what ends them wakes the sender
            left = self._idle_since_ms + self._idle_close_ms - now_ms
            if left > 0:
                return left
            self._closed = True
        self._close_plugins()
        return None
