"""The producer's public class, which assembles the parts of a producer."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from functools import partial
from threading import TIMEOUT_MAX
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, SerializationError, UsageError
from spark_kafka_sink.options.producer_options import ProducerConfig, check_transactional, producer_config
from spark_kafka_sink.options.security_config import security_warnings
from spark_kafka_sink.producer.accumulator.appender import Appender
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import NO_WAIT, Lifecycle, close_at_exit, in_callback, process
from spark_kafka_sink.producer.base.producer_record import OnCompletion, PartitionInfo
from spark_kafka_sink.producer.base.rate_limit import RateLimit
from spark_kafka_sink.producer.column_appender import ColumnAppender, UserClasses
from spark_kafka_sink.producer.identity import IdempotentIdentity, Identity
from spark_kafka_sink.producer.interceptors import ProducerInterceptors
from spark_kafka_sink.producer.metrics.client_telemetry_sender import ClientTelemetrySender
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics, SenderMetrics, snapshot
from spark_kafka_sink.producer.partitioners.partitioner_table import partitioner_of
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata, Retention
from spark_kafka_sink.producer.scopes.send_scope import SendScope, TransactionScope
from spark_kafka_sink.producer.sender.produce_requests import ProduceRequests
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.serializers.serialization import Serialization
from spark_kafka_sink.producer.serializers.serializer_table import serializers_of
from spark_kafka_sink.producer.single_records.record_appender import AnyHeaders, RecordAppender, wrapped
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.records.columns import NO_PARTITION

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, Offsets
    from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls

logger = logging.getLogger(__name__)

# An open batch wastes half a chunk on average: 1,000 open partitions waste 8 MB of 32 and hold 16 MB. Chunks of 64 KiB would take
# all of it; smaller ones cost more copies per batch and more buffers per request (sendmsg takes 1,024).
CHUNK_SIZE = 16 * 1024
# Closing sockets and notifying waiting threads needs no network.
ABORT_TIMEOUT_S = 10.0


class Producer:
    """Sends single records or Arrow columns to Kafka from a bounded buffer and one background thread. Java's KafkaProducer.

    Use it as a context manager: leaving it flushes and closes; leaving it on an exception fails unsent records. Any thread may
    open scopes, append and flush. In a forked child every call raises UsageError.

    Args:
        settings: values by Kafka's producer option names, or a ProducerConfig. The effective settings are in `config`.
        idle_close_ms: time without an open scope after which the producer closes itself, in ms. None never closes it.
        transactional: whether all records are sent in transactions, each with its own id (see `transaction`). To use a single
            id, set transactional.id instead.

    Raises:
        OptionError: A setting is invalid.
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

        def outages() -> str:
            return client.outages()  # which has sockets, so it is made after the user's classes

        pool = BufferPool(config.buffer_memory, chunk_size, on_wait=metrics.waited_for_memory, outages=outages)
        self._accumulator = accumulator = RecordAccumulator(config, pool)
        partitioner = partitioner_of(config, accumulator)
        self._user_classes = UserClasses(
            ProducerInterceptors.of(config), Serialization(*serializers, config.max_block_ms / 1000), partitioner
        )
        self._metadata = metadata = ProducerMetadata(config, on_wait=metrics.waited_for_metadata)
        self._client = client = NetworkClient(config, metadata)
        self._lifecycle = lifecycle = Lifecycle(client.wakeup, idle_close_ms=idle_close_ms, outages=client.outages)
        rate_limit = RateLimit.of(config, metrics.waited_for_rate_limit)
        # Of a producer that closes itself when idle, the tasks of a cluster have one each: their driver warns once for all.
        retention = Retention(config, lifecycle, metadata, warns=idle_close_ms is None)
        self._columns = ColumnAppender(
            config,
            lifecycle,
            self._user_classes,
            metadata,
            Appender(config, accumulator, lifecycle, rate_limit),
            metrics,
            retention,
        )
        self._transactions: TransactionCalls | None = None
        if transactional or config.transactional_id is not None:
            from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls

            self._transactions = TransactionCalls(config, lifecycle, client, metadata, accumulator, metrics.timing)
            self._identity: Identity = self._transactions.identity
        elif config.enable_idempotence:
            self._identity = IdempotentIdentity(config, client, accumulator)
        else:
            self._identity = Identity()
        self._scope_parts = (lifecycle, self._columns, accumulator, self._identity, metrics)
        self._record_buffer = RecordBuffer(config, lifecycle, self._columns, accumulator, self._identity, metrics)
        records = RecordAppender(config, lifecycle, serializers, self._record_buffer, metadata, metrics, retention, rate_limit)
        self._send = wrapped(records.send, config, lifecycle, serializers, self._user_classes.interceptors, self._identity)
        requests = ProduceRequests(config, client, metadata, accumulator, self._identity, metrics)
        self._telemetry = ClientTelemetrySender(config, client, partial(snapshot, metrics, client, metadata, pool))
        self._sender = Sender(
            lifecycle, client, accumulator, self._record_buffer, self._identity, requests, self._user_classes, self._telemetry
        )
        for text in security_warnings(config.security):
            logger.warning("%s", text)
        lifecycle.start(self._run, f"kafka-producer-network-thread | {config.client_id}")
        close_at_exit(self)

    def __repr__(self) -> str:
        servers = ",".join(self.config.bootstrap_servers[:3]) + (",..." if len(self.config.bootstrap_servers) > 3 else "")
        parts = [f"client.id={self.config.client_id!r}", f"bootstrap.servers={servers!r}"]
        if self.config.transactional_id is not None:
            parts.append(f"transactional.id={self.config.transactional_id!r}")
        state = f"failed with [{self.failed.code}]" if self.failed is not None else "closed" if self.closed else "open"
        return f"<Producer {' '.join(parts)}, {state}>"

    @property
    def failed(self) -> KafkaSinkError | None:
        """The error that stopped the producer, or None."""
        return self._lifecycle.failure

    @property
    def closed(self) -> bool:
        """Whether the producer accepts no more records: it was closed, failed, timed out idle, or belongs to another process."""
        return self.failed is not None or not self._lifecycle.is_usable

    def scope(self, *, keeps_rejected: bool = False) -> SendScope:
        """Returns a share of this producer for columns of records, with its own errors and counts. Use it as a context manager.

        Args:
            keeps_rejected: whether a record that a broker rejects is kept for `SendScope.take_rejected` instead of failing the
                scope: one that is invalid, has an invalid timestamp or is too large. At most buffer.memory bytes are kept until
                they are taken; one more fails the scope.

        Raises:
            UsageError: The producer is closed.
        """
        self._lifecycle.scope_opened()
        return SendScope(*self._scope_parts, rejected_limit=self.config.buffer_memory if keeps_rejected else None)

    def init_transactions(self, timeout: float | None = None) -> None:
        """Gets a producer id for transactional.id. Call it once, before any other transaction call.

        Fences the previous producer with the same id and aborts its open transaction. Java's KafkaProducer.initTransactions.

        Args:
            timeout: maximum wait in seconds; defaults to max.block.ms.

        Raises:
            TransactionTimeoutError: The call timed out. Make the same call again to wait for its end.
            ProducerFencedError: Another producer now uses the id.
            TransactionError: The producer cannot continue with this id.
            UsageError: The producer's state does not allow the call. The message says what to call instead.
        """
        self._transactional().init(timeout)

    def begin_transaction(self) -> None:
        """Begins a transaction, to which all records belong until it ends. Java's KafkaProducer.beginTransaction.

        Raises:
            KafkaSinkError: As in `init_transactions`.
        """
        self._transactional().begin()

    def send_offsets_to_transaction(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Commits a consumer group's offsets with the transaction. Java's KafkaProducer.sendOffsetsToTransaction.

        Args:
            offsets: next offset to read by (topic, partition): a number, (offset, metadata), or an OffsetAndMetadata.
            group: group id, or a ConsumerGroupMetadata. With the latter, a consumer that was removed from its group is rejected.

        Raises:
            TransactionAbortableError: The coordinator rejected the offsets: call abort_transaction().
            TransactionTimeoutError, ProducerFencedError, TransactionError, UsageError: As in `init_transactions`.
        """
        self._transactional().send_offsets(offsets, group)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Sends waiting records and commits the transaction once all are acknowledged. Java's KafkaProducer.commitTransaction.

        Args:
            timeout: maximum wait in seconds; defaults to max.block.ms.

        Raises:
            TransactionAbortableError: A record of the transaction failed: call abort_transaction().
            KafkaSinkError: As in `init_transactions`.
        """
        self._transactional().commit(timeout, self._record_buffer.flush)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Aborts the transaction and fails its unsent records. Java's KafkaProducer.abortTransaction.

        Args:
            timeout: maximum wait in seconds; defaults to max.block.ms.

        Raises:
            KafkaSinkError: As in `init_transactions`.
        """
        self._transactional().abort(timeout)

    def transaction(self, transactional_id: str, *, keeps_rejected: bool = False) -> TransactionScope:
        """Begins a transaction with its own id for columns of records. Use it as a context manager.

        Requires a producer made with transactional=True, which has one transaction at a time. The scope's `prepare()` leaves the
        transaction open, so that another process can end it. A previous producer with the same id is fenced and its open
        transaction aborted.

        Args:
            transactional_id: id of this transaction.
            keeps_rejected: as in `scope`. The transaction goes on without the rejected records, unless an earlier attempt to send
                them, or records behind them, was not answered: then it can only be aborted.

        Raises:
            TransactionTimeoutError: The coordinator did not respond within max.block.ms.
            TransactionError: A broker rejected a request.
            UnsupportedVersionError: The coordinator is older than Kafka 3.8, which does not fence a task that continues after
                another process aborted it. With an older leader the records fail.
            UsageError: The producer is closed or not transactional, or it has an open transaction.
        """
        transactions = self._transactional()
        self._lifecycle.scope_opened(alone=True)
        try:
            transactions.open(transactional_id)
            limit = self.config.buffer_memory if keeps_rejected else None
            return TransactionScope(*self._scope_parts, transactions, rejected_limit=limit)
        except BaseException:
            self._lifecycle.scope_closed()
            raise

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Returns the partitions of `topic` in order. Waits for metadata at most max.block.ms. Java's
        KafkaProducer.partitionsFor.

        Raises:
            MetadataTimeoutError: Timed out waiting for metadata.
            BrokerError: The brokers will never return metadata of this topic.
            UsageError: The producer is closed.
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
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: AnyHeaders = None,
        on_completion: OnCompletion | None = None,
    ) -> RecordFuture:
        """Sends one record. The result is reported to `on_completion` and then to the returned future. Java's KafkaProducer.send.

        Waits at most max.block.ms for metadata, then for a rate limit, then again at most max.block.ms for memory. Inside
        `on_completion` it never waits: a record sent there to an unknown topic waits in the background. Errors of the topic, the
        cluster or the record's size fail the future.

        Args:
            topic: name of the topic.
            value: value that its serializer accepts; without a serializer bytes, text (sent as UTF-8) or None.
            key: likewise.
            partition: partition number; None lets the partitioner choose.
            timestamp: ms since the epoch, or the unit of timestamp.unit; None is the current time.
            headers: (key, value) pairs or a mapping.
            on_completion: callback `on_completion(metadata, error)`. Callbacks of confluent-kafka take the error first. It
                runs in the sender thread, or in this thread if the record fails at once.

        Raises:
            SerializationError: A serializer rejected the key or the value.
            RecordError: An argument is malformed.
            UsageError: The producer is closed, or this is a forked child.
        """
        lifecycle = self._lifecycle
        if process.pid != lifecycle.pid or (lifecycle.closed and not self._user_classes.interceptors):
            lifecycle.check_usable()
        try:
            return self._send((topic, value, key, partition, timestamp, headers), on_completion)
        except SerializationError as error:
            self._metrics.append_refused(str(topic), 1, error)
            raise

    def flush(self, timeout: float | None = None) -> None:
        """Sends waiting records, and returns once all single records sent so far are acknowledged or failed. Java's
        KafkaProducer.flush.

        Failures are reported by the futures. Records appended through scopes are flushed by their scopes.

        Args:
            timeout: maximum wait in seconds; None waits for at most delivery.timeout.ms.

        Raises:
            FlushTimeoutError: The flush timed out.
            UsageError: Called in a delivery callback, where it would wait forever, or in a forked child.
        """
        self._lifecycle.check_may_wait()
        begun_ns = time.monotonic_ns()
        try:
            self._record_buffer.flush(timeout)
        finally:
            self._metrics.flushed(time.monotonic_ns() - begun_ns)

    def metrics(self) -> ProducerMetrics:
        """Returns current values under the names of Java's KafkaProducer.metrics(); see docs/metrics.md.

        Any thread may call it, also after close. Rates and averages span the last metrics.num.samples windows of
        metrics.sample.window.ms. An average or maximum without values is NaN.

        Raises:
            UsageError: Called in a forked child.
        """
        self._lifecycle.check_process()
        return snapshot(self._metrics, self._client, self._metadata, self._accumulator.pool)

    def client_instance_id(self, timeout: float | None = None) -> uuid.UUID | None:
        """Returns the id under which brokers know this producer's client metrics. Java's KafkaProducer.clientInstanceId.

        A broker with a telemetry receiver gives the id soon after the first connection. It stays the same afterwards. Kafka's
        tools and logs write it as base64: `base64.urlsafe_b64encode(id.bytes)` without the `==`.

        Args:
            timeout: maximum wait in seconds; defaults to max.block.ms. In a delivery callback it does not wait.

        Returns:
            The id, or None if no broker has given one within the timeout.

        Raises:
            UsageError: enable.metrics.push is false, or this is a forked child.
        """
        self._lifecycle.check_process()
        if not self.config.enable_metrics_push:
            raise UsageError("the producer has no client instance id: set enable.metrics.push=true")
        timeout = self.config.max_block_ms / 1000 if timeout is None else min(max(timeout, 0), TIMEOUT_MAX)
        return self._telemetry.client_instance_id(NO_WAIT if self._lifecycle.must_not_wait else timeout)

    def close(self, timeout: float | None = None) -> None:
        """Sends waiting records and closes the producer. Java's KafkaProducer.close.

        In a delivery callback it starts closing and returns at once. Further calls only wait. If a program exits without
        closing, the producer logs a warning and waits up to 5 s for unacknowledged records.

        Args:
            timeout: maximum wait in seconds, after which unfinished records fail. None waits for at most delivery.timeout.ms.

        Raises:
            FlushTimeoutError: The timeout expired before all records were acknowledged.
        """
        lifecycle = self._lifecycle
        if lifecycle.is_forked:
            return  # the threads and sockets belong to the parent process
        lifecycle.close()
        self._record_buffer.close()
        self._sender.close()
        if lifecycle.must_not_wait or lifecycle.join(TIMEOUT_MAX if timeout is None else min(max(timeout, 0), TIMEOUT_MAX)):
            return
        unfinished = self.unfinished()
        self._abort()
        if unfinished:
            raise FlushTimeoutError(
                f"close: {counted(unfinished, 'record was', 'records were')} not acknowledged within {timeout} s and failed"
            )

    def close_when_idle(self) -> None:
        """Closes the producer in the background once it has no open scope and nothing to send."""
        self._lifecycle.close_when_idle()

    def unfinished(self) -> int:
        """Number of records that are neither acknowledged nor failed."""
        if self._lifecycle.is_forked:
            return 0
        return self._accumulator.incomplete_records() + self._record_buffer.unsent()

    def _abort(self) -> None:
        """Closes now: fails unfinished records and notifies waiting threads."""
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
        """Runs the sender thread, which keeps the producer alive: a program may drop one that still has records to send."""
        self._sender.run()

    def _transactional(self) -> TransactionCalls:
        if self._transactions is None:
            raise UsageError("the producer is not transactional: set transactional.id and call init_transactions()")
        return self._transactions
