"""The producer: what a task, or a program without Spark, holds. It puts the parts of a producer together."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Mapping
from threading import TIMEOUT_MAX
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.config import ProducerConfig, check_transactional, producer_config
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, SerializationError, UsageError
from spark_kafka_sink.producer.accumulator.appender import Appender
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.column_appender import ColumnAppender, UserClasses
from spark_kafka_sink.producer.identity.idempotent import IdempotentIdentity
from spark_kafka_sink.producer.identity.identity import Identity
from spark_kafka_sink.producer.interceptors import ProducerInterceptors
from spark_kafka_sink.producer.lifecycle import NO_WAIT, Lifecycle, in_callback, process
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics, SenderMetrics, snapshot
from spark_kafka_sink.producer.partitioners.registry import partitioner_of
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.producer_record import OnDelivery, PartitionInfo
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.sender.produce_requests import ProduceRequests
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.serializers.registry import serializers_of
from spark_kafka_sink.producer.serializers.serialization import Serialization
from spark_kafka_sink.producer.single_records.record_appender import (
    AnyHeaders,
    RecordAppender,
    Send,
    in_transaction,
    intercepted,
)
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.records.columns import NO_PARTITION
from spark_kafka_sink.security_config import security_warnings

if TYPE_CHECKING:
    from spark_kafka_sink.producer.scopes.transaction_scope import TransactionScope
    from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, Offsets
    from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls

logger = logging.getLogger(__name__)

# A chunk is what an open batch holds idle on average half of: 1,000 open partitions hold 16 MB of 32. Chunks of 64 KiB would
# take all of it; smaller ones cost more copies a batch and more buffers a request (sendmsg takes 1,024).
CHUNK_SIZE = 16 * 1024
# To close sockets and tell whoever waits takes no network.
ABORT_TIMEOUT_S = 10.0
# Of a program that ends: long enough for brokers that are there; it must not hang because of those that are not.
EXIT_TIMEOUT_S = 5.0


class Producer:
    """Sends records to Kafka, one by one or in columns, from a memory of its own, through one background thread. In a `with` it
    is closed at the end; after an exception what is not finished fails. Java's KafkaProducer.

    settings: Kafka's producer option names and values, or a ProducerConfig; `config` has them as they are in force.
    idle_close_ms: the producer closes itself when it has had no open scope for so long, in ms; None: never.
    transactional: it writes in transactions only, each with an id of its own (`transaction`); for one id set transactional.id.

    Raises OptionError for a setting.

    Threads: any thread may open scopes, append and flush; the sender's thread owns sockets and sequences (see Sender). A producer
    belongs to the process that made it: in a forked child every call says so.
    """

    def __init__(
        self, settings: ProducerConfig | Mapping[str, object], *, idle_close_ms: int | None = None, transactional: bool = False
    ) -> None:
        self.config = config = settings if isinstance(settings, ProducerConfig) else producer_config(settings)
        if transactional:
            check_transactional(config)
        serializers = serializers_of(config)
        self._metrics = metrics = SenderMetrics(config)
        chunk_size = min(CHUNK_SIZE, max(config.buffer_memory, 1))
        pool = BufferPool(config.buffer_memory, chunk_size, on_wait=metrics.waited_for_memory)
        self._accumulator = accumulator = RecordAccumulator(config, pool)
        partitioner = partitioner_of(config, accumulator)
        self._user_classes = UserClasses(ProducerInterceptors.of(config), Serialization(*serializers), partitioner)
        self._metadata = metadata = ProducerMetadata(config, on_wait=metrics.waited_for_metadata)
        self._client = client = NetworkClient(config, metadata)
        self._lifecycle = lifecycle = Lifecycle(client.wakeup, idle_close_ms=idle_close_ms)
        appender = Appender(config, accumulator, lifecycle.wake_sender)
        self._columns = ColumnAppender(config, lifecycle, self._user_classes, metadata, appender, metrics)
        self._transactions: TransactionCalls | None = None
        if transactional or config.transactional_id is not None:
            from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls
            from spark_kafka_sink.producer.transactions.transactional_identity import TransactionalIdentity

            identity = TransactionalIdentity(config, client, metadata, accumulator)
            self._transactions = TransactionCalls(config, lifecycle, identity)
            self._identity: Identity = identity
        elif config.enable_idempotence:
            self._identity = IdempotentIdentity(config, client, accumulator)
        else:
            self._identity = Identity()
        self._record_buffer = RecordBuffer(config, lifecycle, self._columns, accumulator, self._identity, metrics)
        self._send: Send = RecordAppender(config, lifecycle, serializers, self._record_buffer, metadata, metrics).send
        if self._user_classes.interceptors:
            self._send = intercepted(self._send, self._user_classes.interceptors, lifecycle)
        if self._transactions is not None:
            self._send = in_transaction(self._send, self._identity)
        requests = ProduceRequests(config, client, metadata, accumulator, self._identity, metrics)
        self._sender = Sender(lifecycle, accumulator, self._record_buffer, self._identity, requests, self._user_classes)
        for text in security_warnings(config.security):
            logger.warning("%s", text)
        lifecycle.start(self._run, f"kafka-producer-network-thread | {config.client_id}")
        if not _open_producers:
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _open_producers.add(self)

    @property
    def failed(self) -> KafkaSinkError | None:
        """Why the producer cannot go on, or None."""
        return self._lifecycle.failure

    @property
    def closed(self) -> bool:
        """Whether it takes no more records: closed, failed, idle for too long, or another process's."""
        return self.failed is not None or not self._lifecycle.is_usable

    def scope(self) -> SendScope:
        """A share of this producer for columns of records, with errors and counts of its own, to be used in a `with`.

        UsageError when the producer is closed.
        """
        self._lifecycle.scope_opened()
        return SendScope(self._lifecycle, self._columns, self._accumulator, self._identity, self._metrics)

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
            self._transactional().commit(timeout, self._record_buffer.flush)

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
        from spark_kafka_sink.producer.scopes.transaction_scope import TransactionScope

        transactions = self._transactional()
        self._lifecycle.scope_opened(alone=True)
        try:
            with self._metrics.timing("txn-init"):
                transactions.open(transactional_id)
            identity = transactions.identity
            return TransactionScope(self._lifecycle, self._columns, self._accumulator, identity, self._metrics, transactions)
        except BaseException:
            self._lifecycle.scope_closed()
            raise

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """A topic's partitions, in order. Java's KafkaProducer.partitionsFor.

        Waits for metadata at most max.block.ms, then MetadataTimeoutError; UsageError when the producer is closed.
        """
        self._lifecycle.check_usable()
        deadline = NO_WAIT if in_callback() else time.monotonic() + self.config.max_block_ms / 1000
        cluster = self._metadata.wait_on(topic, NO_PARTITION, deadline, self._lifecycle.wake_sender)
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
        lifecycle = self._lifecycle
        if process.pid != lifecycle.pid or (lifecycle.closed and not self._user_classes.interceptors):
            lifecycle.check_usable()
        try:
            return self._send((topic, value, key, partition, timestamp, headers), on_delivery)
        except SerializationError as error:
            self._metrics.append_refused(str(topic), 1, error)
            raise

    def flush(self, timeout: float | None = None) -> None:
        """Send what is waiting and return once all that was sent before is acked or failed, which the futures tell.

        timeout: in seconds; FlushTimeoutError after it. None: delivery.timeout.ms is the bound.

        What scopes have appended is for them to flush. Java's KafkaProducer.flush. UsageError in a delivery callback, where
        waiting would be for ever, and in a forked child.
        """
        self._lifecycle.check_may_wait()
        begun_ns = time.monotonic_ns()
        try:
            self._record_buffer.flush(timeout)
        finally:
            self._metrics.flushed(time.monotonic_ns() - begun_ns)

    def metrics(self) -> ProducerMetrics:
        """Returns what Java's KafkaProducer.metrics() gives, under the same names (docs/metrics.md), as of now; also after close.

        From any thread. Rates and averages are of the last metrics.num.samples windows of metrics.sample.window.ms; an average or
        a maximum of nothing is NaN. UsageError in a forked child.
        """
        self._lifecycle.check_process()
        return snapshot(self._metrics, self._client, self._metadata, self._accumulator.pool)

    def close(self, timeout: float | None = None) -> None:
        """Send what is there and end. Java's KafkaProducer.close.

        timeout: in seconds; FlushTimeoutError after it, and what is left then fails. None: delivery.timeout.ms is the bound,
        as no batch stays unfinished longer than that.

        In a delivery callback it only begins to close. A second call does nothing but wait. A program that ends without it is
        told so in its log, and waits for what is left, but 5 s at most.
        """
        lifecycle = self._lifecycle
        if lifecycle.is_forked:
            return  # the parent's threads and sockets are not this process's to end
        lifecycle.close()
        self._record_buffer.close()
        self._sender.close()
        if lifecycle.must_not_wait or lifecycle.join(TIMEOUT_MAX if timeout is None else min(max(timeout, 0), TIMEOUT_MAX)):
            return
        unfinished = self.unfinished()
        self._abort()
        if unfinished:
            raise FlushTimeoutError(f"close: {unfinished} records were not acked within {timeout} s; they failed")

    def close_when_idle(self) -> None:
        """Close itself as soon as it has no open scope and nothing to send, without being waited for."""
        self._lifecycle.close_when_idle()

    def unfinished(self) -> int:
        """The number of records that are neither acked nor failed."""
        if self._lifecycle.is_forked:
            return 0
        return self._accumulator.incomplete_records() + self._record_buffer.unsent()

    def _abort(self) -> None:
        """End now. What is not finished fails, and whoever waits is told."""
        self._lifecycle.close()
        self._sender.force_close()
        if not self._lifecycle.must_not_wait:
            self._lifecycle.join(ABORT_TIMEOUT_S)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif not self._lifecycle.is_forked:
            if self._transactions is not None and not self.closed:
                self._transactions.abort_quietly()
            self._abort()

    def _run(self) -> None:
        """The sender's thread. It keeps the producer alive: a program may let go of one that has records to send."""
        self._sender.run()

    def _transactional(self) -> TransactionCalls:
        if self._transactions is None:
            raise UsageError("the producer is not transactional: set transactional.id, and call init_transactions()")
        return self._transactions


# Producers that nobody has closed.
_open_producers: WeakSet[Producer] = WeakSet()


def _close_all() -> None:
    """At the end of a program: what is on its way is waited for a little, and told. Java's producer loses it in silence, as its
    daemon thread ends with the program."""
    for producer in list(_open_producers):
        unfinished = producer.unfinished()
        if not unfinished:
            continue
        logger.error(
            "the program ends with %d records not acked, in a producer that was not closed: use it in a `with`, or call close();"
            " waiting %.0f s for them",
            unfinished,
            EXIT_TIMEOUT_S,
        )
        try:
            producer.close(EXIT_TIMEOUT_S)
        except Exception as error:
            logger.error("%s", error)
