"""The producer: what a task, or a program without Spark, holds. It ties the stations of a record's way together."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from threading import Lock
from types import TracebackType

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.config import ProducerConfig, producer_config
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.appender import ROWS_PER_PARTITION, Appender
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.partitioners import DefaultPartitioner
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.send_scope import SendScope
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.records.columns import RecordColumns

# A chunk is what an open batch holds idle on average half of: 1,000 open partitions hold 16 MB of 32. Chunks of 64 KiB would
# take all of it; smaller ones cost more copies a batch and more buffers a request (sendmsg takes 1,024).
CHUNK_SIZE = 16 * 1024
# To close sockets and tell whoever waits takes no network.
ABORT_TIMEOUT_S = 10.0


class Producer:
    """Sends columns of records to Kafka from a memory of its own, through one background thread.

    Threads: any thread may open scopes, append and flush; the sender's thread owns sockets and sequences (see Sender). `_lock`
    guards the count of open scopes. A producer belongs to the process that made it: in a forked child every call says so.

    settings: Kafka's producer option names and values, or a ProducerConfig. idle_close_ms: the producer closes itself when it has
    had no open scope for so long; None: never.
    """

    def __init__(self, settings: ProducerConfig | Mapping[str, object], *, idle_close_ms: int | None = None) -> None:
        self.config = settings if isinstance(settings, ProducerConfig) else producer_config(settings)
        self._pid = os.getpid()
        self._lock = Lock()
        self._scopes = 0
        self._idle_close_ms = idle_close_ms
        self._idle_since_ms = monotonic_ms()
        self._closed = False
        self._pool = BufferPool(self.config.buffer_memory, min(CHUNK_SIZE, max(self.config.buffer_memory, 1)))
        self._metadata = ProducerMetadata(self.config)
        self._client = NetworkClient(self.config, self._metadata)
        self._accumulator = RecordAccumulator(self.config)
        self._sender = Sender(
            self.config, self._client, self._metadata, self._accumulator, self._pool, idle_since_ms=self._ms_until_idle_close
        )
        self._appender = Appender(self.config, self._accumulator, self._pool, self._sender.wakeup)
        self._partitioner = DefaultPartitioner(self.config)
        self._sender.start()

    @property
    def failed(self) -> KafkaSinkError | None:
        """Why the producer cannot go on, or None."""
        return self._sender.failure

    @property
    def closed(self) -> bool:
        """Whether it takes no more records: closed, failed, idle for too long, or another process's."""
        return self._closed or self.failed is not None or os.getpid() != self._pid or not self._sender.is_alive()

    def scope(self) -> SendScope:
        """A task's share of this producer, for a `with`. UsageError when the producer is closed."""
        self.check_usable()
        with self._lock:
            self._check_open()
            self._scopes += 1
        return SendScope(self, self._scope_closed)

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits for its metadata at most max.block.ms."""
        self.check_usable()
        count = self._cluster_with(topic, self._block_deadline()).partition_count(topic)
        assert count is not None
        return count

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is there and end. FlushTimeoutError when that takes longer than `timeout_s`: what is left then fails.

        Without a timeout delivery.timeout.ms is the bound: no batch stays unfinished longer than that.
        """
        if os.getpid() != self._pid:
            return  # the parent's threads and sockets are not this process's to end
        with self._lock:
            self._closed = True
        self._sender.close()
        if self._sender.join(timeout_s):
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

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif os.getpid() == self._pid:
            self._abort()

    # What a scope asks for (ScopeOwner)

    def append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None:
        self.check_usable()
        if columns.num_records == 0:
            return
        try:
            self._append(scope, topic, columns)
        except UsageError as error:
            # The pool and the metadata only know that they were closed; why is the producer's to say.
            if self.failed is not None:
                raise self.failed from error
            raise

    def _append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None:
        sizes = self._appender.sizes(scope, topic, columns)
        deadline = self._block_deadline()  # one for all of its waits for metadata, as Java's waitOnMetadata
        cluster = self._cluster_with(topic, deadline)
        if columns.partition is not None and int(columns.partition.max()) >= (cluster.partition_count(topic) or 0):
            self._metadata.refresh_topic(topic, deadline, self._sender.wakeup)  # some may have been added
            cluster = self._cluster_with(topic, deadline)
        count = cluster.partition_count(topic)
        assert count is not None
        partitions = self._partitioner.partition(topic, columns, sizes, cluster)
        self._appender.append(scope, topic, columns, sizes, partitions, count)

    def rows_per_append(self, topic: str) -> int:
        return ROWS_PER_PARTITION * (self._metadata.fetch().partition_count(topic) or 0)

    def flush_scope(self, scope: SendScope) -> None:
        self.check_alive()
        self._accumulator.flush(scope)
        self._sender.wakeup()

    def discard_scope(self, scope: SendScope) -> None:
        if os.getpid() != self._pid:
            return  # a fork may have copied a lock that a thread of the parent held
        with scope.appending:
            for batch in self._accumulator.discard(scope):
                batch.memory.give_back(self._pool)

    def check_usable(self) -> None:
        """Raise what stands in the way of new records, if anything does."""
        self.check_alive()
        self._check_open()

    def check_alive(self) -> None:
        """Raise why nothing that was appended can be acked any more, if that is so."""
        if os.getpid() != self._pid:
            raise UsageError(f"this producer belongs to process {self._pid}; a forked child must make its own")
        if self.failed is not None:
            raise self.failed
        if not self._sender.is_alive():
            raise UsageError("the producer is closed")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the producer is closed")

    # Inside

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
        if os.getpid() != self._pid:
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
