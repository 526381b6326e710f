"""The producer: what a task, or a program without Spark, holds. It ties the stations of a record's way together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import TIMEOUT_MAX, Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.config import ProducerConfig, check_transactional, producer_config
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, SerializationError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.appender import Appender
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.send_scope import SendScope
from spark_kafka_sink.producer.callbacks import NO_WAIT, in_callback
from spark_kafka_sink.producer.column_sender import ColumnSender
from spark_kafka_sink.producer.exit import close_at_exit
from spark_kafka_sink.producer.interceptors import ProducerInterceptors
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics, SenderMetrics, snapshot
from spark_kafka_sink.producer.partitioners.partitioner_class import partitioner_of
from spark_kafka_sink.producer.process import process
from spark_kafka_sink.producer.producer_inside import ProducerInside
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.producer_record import PartitionInfo
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.serializers.registry import serializers_of
from spark_kafka_sink.producer.serializers.serialization import Serialization
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from spark_kafka_sink.producer.single_records.record_future import OnDelivery, RecordFuture
from spark_kafka_sink.producer.single_records.record_sender import AnyHeaders, AnyRecordSender, InterceptedSender, RecordSender
from spark_kafka_sink.records.columns import NO_PARTITION

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, Offsets
    from spark_kafka_sink.producer.transactions.transaction_scope import TransactionScope
    from spark_kafka_sink.producer.transactions.transaction_sender import TransactionSender
    from spark_kafka_sink.producer.transactions.transactions import Transactions

# A chunk is what an open batch holds idle on average half of: 1,000 open partitions hold 16 MB of 32. Chunks of 64 KiB would
# take all of it; smaller ones cost more copies a batch and more buffers a request (sendmsg takes 1,024).
CHUNK_SIZE = 16 * 1024
# To close sockets and tell whoever waits takes no network.
ABORT_TIMEOUT_S = 10.0


class Producer(ProducerInside):
    """Sends records to Kafka, one by one or in columns, from a memory of its own, through one background thread. In a `with` it
    is closed at the end; after an exception what is not finished fails. Java's KafkaProducer.

    settings: Kafka's producer option names and values, or a ProducerConfig; `config` has them as they are in force.
    idle_close_ms: the producer closes itself when it has had no open scope for so long, in ms; None: never.
    transactional: it writes in transactions only, each with an id of its own (`transaction`); for one id set transactional.id.

    Raises OptionError for a setting.

    Threads: any thread may open scopes, append and flush; the sender's thread owns sockets and sequences (see Sender). `_lock`
    guards the count of open scopes. A producer belongs to the process that made it: in a forked child every call says so.
    """

    def __init__(
        self, settings: ProducerConfig | Mapping[str, object], *, idle_close_ms: int | None = None, transactional: bool = False
    ) -> None:
        self.config = settings if isinstance(settings, ProducerConfig) else producer_config(settings)
        if transactional:
            check_transactional(self.config)
        serializers = serializers_of(self.config)
        self._serialization = Serialization(*serializers)
        self._pid = process.pid
        self._lock = Lock()
        self._scopes = 0
        self._idle_close_ms = idle_close_ms
        self._idle_since_ms = monotonic_ms()
        self._closed = False
        self._metrics = SenderMetrics(self.config)
        self._accumulator = RecordAccumulator(self.config)
        self._partitioner = partitioner_of(self.config, self._accumulator)
        self._interceptors = ProducerInterceptors.of(self.config)
        chunk_size = min(CHUNK_SIZE, max(self.config.buffer_memory, 1))
        self._pool = BufferPool(self.config.buffer_memory, chunk_size, on_wait=self._metrics.waited_for_memory)
        self._metadata = ProducerMetadata(self.config, on_wait=self._metrics.waited_for_metadata)
        self._client = NetworkClient(self.config, self._metadata)
        appender = Appender(self.config, self._accumulator, self._pool, self.wake_sender)
        self._columns = ColumnSender(
            self.config,
            self._interceptors,
            self._serialization,
            self._metadata,
            self._partitioner,
            appender,
            self._metrics,
            self.wake_sender,
            self.check_usable,
        )
        self._gathered = RecordBuffer(self, self.config, self._accumulator, self.wake_sender, self._metrics)
        records = RecordSender(
            self.config, serializers, self._gathered, self._metadata, self._metrics, self.wake_sender, self.check_usable
        )
        self._records: AnyRecordSender = InterceptedSender(self._interceptors, records) if self._interceptors else records
        self._transactions = None
        self._sender = Sender(
            self.config,
            self._client,
            self._metadata,
            self._accumulator,
            self._pool,
            self._gathered,
            self._metrics,
            idle_since_ms=self._ms_until_idle_close,
            ended=self._close_plugins,
            transactions=self._make_transactional() if transactional or self.config.transactional_id is not None else None,
        )
        self._sender.start()
        close_at_exit(self)

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

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id for transactional.id, once and first: an open transaction of the producer that had the id before is
        aborted, and that producer is fenced. Java's KafkaProducer.initTransactions.

        This and the other calls about transactions raise TransactionTimeoutError after `timeout` seconds (None: max.block.ms);
        the same call again goes on: ProducerFencedError when another producer has the id now; TransactionError for what the
        transaction cannot go on after; UsageError where its state does not allow the call, with what to call instead.
        """
        with self._metrics.timing("txn-init"):
            self._transactional().init(timeout)

    def begin(self) -> None:
        """Open a transaction; what is sent until its end belongs to it. Java's KafkaProducer.beginTransaction."""
        with self._metrics.timing("txn-begin"):
            self._transactional().begin()

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Commit a consumer group's offsets with the transaction. Java's KafkaProducer.sendOffsetsToTransaction.

        offsets: (topic, partition) -> the offset of the next record to be read, or (offset, metadata), or an OffsetAndMetadata.
        group: its id, or a ConsumerGroupMetadata: then a consumer that was put out of its group is refused.
        """
        with self._metrics.timing("txn-send-offsets"):
            self._transactional().send_offsets(offsets, group)

    def commit(self, timeout: float | None = None) -> None:
        """Send what is waiting, and make the transaction visible once all of it is acked. Java's KafkaProducer.commitTransaction.

        timeout: as in init_transactions. TransactionAbortableError when something of it failed: call abort().
        """
        with self._metrics.timing("txn-commit"):
            self._transactional().commit(timeout)

    def abort(self, timeout: float | None = None) -> None:
        """Make the transaction void; what was not sent yet fails. Java's KafkaProducer.abortTransaction.

        timeout: as in init_transactions.
        """
        with self._metrics.timing("txn-abort"):
            self._transactional().abort(timeout)

    def transaction(self, transactional_id: str) -> TransactionScope:
        """A transaction of its own for columns of records, to be used in a `with`; `prepare()` leaves it open for others to end.

        Only of a producer made with transactional=True, one at a time. Whoever had the id before is fenced, its open transaction
        aborted. Waits at most max.block.ms, then TransactionTimeoutError. TransactionError when a broker refuses;
        UnsupportedVersionError for a coordinator before Kafka 3.8, where a task that goes on after somebody else's abort is not
        fenced (a leader before 3.8 fails the records); UsageError when the producer is closed.
        """
        from spark_kafka_sink.producer.transactions.transaction_scope import TransactionScope

        transactions = self._transactional()
        self.check_usable()
        with self._lock:
            self._check_open()
            if self._scopes:
                raise UsageError("the producer has an open transaction: leave its `with` before the next begins")
            self._scopes += 1
        try:
            with self._metrics.timing("txn-init"):
                manager = transactions.open(transactional_id)
            return TransactionScope(self, self._scope_closed, manager, transactions.abort_quietly)
        except BaseException:
            self._scope_closed()
            raise

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """A topic's partitions, in order. Java's KafkaProducer.partitionsFor.

        Waits for metadata at most max.block.ms, then MetadataTimeoutError; UsageError when the producer is closed.
        """
        self.check_usable()
        deadline = NO_WAIT if in_callback() else time.monotonic() + self.config.max_block_ms / 1000
        cluster = self._metadata.wait_on(topic, NO_PARTITION, deadline, self.wake_sender)
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
        closed producer or a forked child are raised. Waits at most max.block.ms for metadata, and as long for memory; but not in
        `on_delivery`, which runs in the sender's thread, or in this one for a record that fails at once: a record that is sent
        there to a topic that is not known yet waits for that by itself.
        """
        if process.pid != self._pid or (self._closed and not self._interceptors):
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
        self.check_process()
        return snapshot(self._metrics, self._client, self._metadata, self._pool)

    def close(self, timeout: float | None = None) -> None:
        """Send what is there and end. Java's KafkaProducer.close.

        timeout: in seconds; FlushTimeoutError after it, and what is left then fails. None: delivery.timeout.ms is the bound,
        as no batch stays unfinished longer than that.

        In a delivery callback it only begins to close. A second call does nothing but wait. A program that ends without it is
        told so in its log, and waits for what is left, but 5 s at most.
        """
        if process.pid != self._pid:
            return  # the parent's threads and sockets are not this process's to end
        with self._lock:
            self._closed = True
        self._gathered.close()
        self._sender.close()
        if self._must_not_wait() or self._sender.join(TIMEOUT_MAX if timeout is None else min(max(timeout, 0), TIMEOUT_MAX)):
            return
        unfinished = self.unfinished()
        self._abort()
        if unfinished:
            raise FlushTimeoutError(f"close: {unfinished} records were not acked within {timeout} s; they failed")

    def close_when_idle(self) -> None:
        """Close itself as soon as it has no open scope and nothing to send, without being waited for."""
        self._idle_close_ms = 0
        self._sender.wakeup()

    def unfinished(self) -> int:
        """How many records are neither acked nor failed."""
        if process.pid != self._pid:
            return 0
        return self._accumulator.incomplete_records() + self._gathered.unsent()

    def _abort(self) -> None:
        """End now. What is not finished fails, and whoever waits is told."""
        with self._lock:
            self._closed = True
        self._sender.force_close()
        if not self._must_not_wait():
            self._sender.join(ABORT_TIMEOUT_S)

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
            if self._transactions is not None and not self.closed:
                self._transactions.abort_quietly()
            self._abort()

    # Inside

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise UsageError("the producer is not transactional: set transactional.id, and call init_transactions()")
        return self._transactions

    def _make_transactional(self) -> TransactionSender:
        from spark_kafka_sink.producer.transactions.transaction_sender import TransactionSender
        from spark_kafka_sink.producer.transactions.transactions import TransactionalRecords, Transactions

        sender = TransactionSender(self.config, self._client, self._metadata, self._accumulator)
        self._transactions = Transactions(self, self.config, sender, self._client)
        self._records = TransactionalRecords(self._records, self._transactions)
        self._gathered.on_refused = self._transactions.refused
        self._gathered.ends_are_awaited = True
        return sender

    def _scope_closed(self, scope: SendScope | None = None) -> None:
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
            return None
