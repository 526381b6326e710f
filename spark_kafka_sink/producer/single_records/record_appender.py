"""Sends single records (KafkaProducer.doSend): intercept, serialize, check, and buffer as rows of columns."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping
from typing import Any

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.counts import partition_range
from spark_kafka_sink.errors import KafkaSinkError, RecordError, RecordTooLargeError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.option import INT64_MAX
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.base.bad_rows import is_text, too_large
from spark_kafka_sink.producer.base.lifecycle import NO_WAIT, Lifecycle, in_callback
from spark_kafka_sink.producer.base.producer_record import Headers, OnCompletion, ProducerRecord, not_stored
from spark_kafka_sink.producer.base.rate_limit import RateLimit
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.interceptors import ProducerInterceptors, as_ours
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata, Retention
from spark_kafka_sink.producer.serializers.serialization import prepare_both, serialized_value
from spark_kafka_sink.producer.serializers.serializer import Serializer, call_deadline, is_default
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.producer.single_records.topic_buffer import TopicBuffer
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.columns import NO_PARTITION
from spark_kafka_sink.records.encoder import MAX_RECORD_OVERHEAD, record_size_upper_bound
from spark_kafka_sink.records.timestamps import PER_SECOND, likely_unit, time_problem

# More than record_size_upper_bound and a batch header add to key and value.
_MORE_THAN_OVERHEAD = 128

AnyHeaders = Headers | Mapping[str, bytes | None] | None


Record = tuple[str, Any, Any, int | None, int | None, AnyHeaders]
"""The arguments of Producer.send: topic, value, key, partition, timestamp, headers."""

Send = Callable[[Record, OnCompletion | None], RecordFuture]
"""The function to which Producer.send passes a record and its callback."""


class RecordAppender:
    """Sends single records. Any thread may send; the appender has no mutable state."""

    def __init__(
        self,
        config: ProducerConfig,
        lifecycle: Lifecycle,
        serializers: tuple[Serializer, Serializer],
        record_buffer: RecordBuffer,
        metadata: ProducerMetadata,
        metrics: SenderMetrics,
        retention: Retention,
        rate_limit: RateLimit | None = None,
    ) -> None:
        self._key, self._value = serializers
        self._key_is_made, self._value_is_made = (not is_default(serializer) for serializer in serializers)
        self._adds_headers = any(serializer.adds_headers for serializer in serializers)
        self._own_headers = frozenset(name for serializer in serializers for name in serializer.own_headers)
        self._record_buffer = record_buffer
        self._metadata = metadata
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._max_block_s = config.max_block_ms / 1000
        self._limits = {"max.request.size": config.max_request_size, "buffer.memory": config.buffer_memory}
        self._timestamp_unit = config.timestamp_unit
        self._retention = retention
        self._rate_limit = rate_limit
        # With a rate limit no record is surely small, so that `_checked_size` sees each: without one, `send` pays nothing for it.
        self._surely_small = min(self._limits.values()) - _MORE_THAN_OVERHEAD if rate_limit is None else -1

    def send(self, record: Record, on_completion: OnCompletion | None) -> RecordFuture:  # noqa: PLR0912
        """Sends a record; see Producer.send. Takes 1.5 us, so its code is inlined here."""
        topic, value, key, partition, timestamp, headers = record
        pairs = header_pairs(topic, headers) if headers else ()
        if self._key_is_made or (type(key) is not bytes and key is not None):
            key = serialized_value(self._key, "key", topic, key, pairs)
        if self._value_is_made or (type(value) is not bytes and value is not None):
            value = serialized_value(self._value, "value", topic, value, pairs)
        if self._adds_headers or self._own_headers:
            pairs = self._with_headers(topic, key, value, pairs)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        else:
            timestamp = _checked_timestamp(topic, timestamp, self._timestamp_unit)
        if partition is not None:
            partition = _checked_partition(topic, partition)
        if on_completion is not None and not callable(on_completion):
            raise UsageError(
                f"topic {topic}: on_completion is {type(on_completion).__name__}, must be a function(metadata, error)"
            )
        buffer = self._record_buffer.topic_buffer(topic)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        try:
            if partition is not None or buffer.known_in is not self._metadata.fetch():
                buffer = self._known(buffer, topic, NO_PARTITION if partition is None else partition)
            if record[4] is not None:
                self._retention.learn(topic, timestamp)
            size = key_size + value_size + MAX_RECORD_OVERHEAD
            if pairs or size > self._surely_small:
                size = self._checked_size(topic, key, value_size, pairs)
        except KafkaSinkError as error:
            self._lifecycle.check_usable()  # if the producer has failed, that is the cause
            self._metrics.append_refused(topic, 1, error)
            future = RecordFuture(buffer.waiter, timestamp, key_size, value_size, on_completion)
            future.fail(error)
            return future
        future = RecordFuture(buffer.waiter, timestamp, key_size, value_size, on_completion)
        try:
            first, full = buffer.add(value, key, partition, timestamp, pairs, future, size, on_completion is not None)
            if first or full:
                self._record_buffer.added(buffer, first=first, full=full)
        except BaseException as error:
            self._lifecycle.broken_by(error)
            raise
        return future

    def _with_headers(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> Headers:
        """Returns the headers with those of the serializers in place of others with their names. A null part gets none."""
        added = [
            pair
            for serializer, part in ((self._key, key), (self._value, value))
            if part is not None and serializer.adds_headers
            for pair in serializer.headers_of(topic, None)
        ]
        return (*(pair for pair in headers if pair[0] not in self._own_headers), *added)

    def _known(self, buffer: TopicBuffer, topic: str, partition: int) -> TopicBuffer:
        """Waits for the topic and the partition. Only then is the buffer kept: the number of misspelled names is unbounded."""
        cluster = self._cluster_with(topic, partition)
        buffer = self._record_buffer.keep(buffer)
        buffer.known_in = cluster
        return buffer

    def _cluster_with(self, topic: str, partition: int) -> Cluster | None:
        """Returns the cluster; None for an unknown topic in a callback, which must not wait: then the record waits for it."""
        if in_callback():
            self._metadata.add(topic, monotonic_ms())
            if self._metadata.fetch().partition_count(topic) is None:
                return None
        deadline = NO_WAIT if in_callback() else time.monotonic() + self._max_block_s
        cluster = self._metadata.wait_on(topic, partition, deadline, self._lifecycle.wake_sender)
        count = cluster.partition_count(topic) or 0
        if partition < count:
            return cluster
        raise RecordError(
            f"topic {topic}: partition is {partition}, but {partition_range(count)}; None lets the partitioner choose",
            topic=topic,
            partition=partition,
            partition_count=count,
        )

    def _checked_size(self, topic: str, key: bytes | None, value_size: int, headers: Headers) -> int:
        """Returns the approximate number of bytes that a record takes in a batch, when the rate limit lets it pass."""
        size = record_size_upper_bound(-1 if key is None else len(key), value_size, headers) + HEADER_SIZE
        if size > min(self._limits.values()):
            raise RecordTooLargeError(f"topic {topic}: {too_large(size, key, self._limits)}", topic=topic)
        if self._rate_limit is not None:
            if self._lifecycle.must_not_wait:
                self._rate_limit.take(1, size - HEADER_SIZE)  # later records wait for it
            else:
                self._rate_limit.wait(topic, 1, size - HEADER_SIZE, self._lifecycle.check_usable)
        return size


def wrapped(
    send: Send,
    config: ProducerConfig,
    lifecycle: Lifecycle,
    serializers: tuple[Serializer, Serializer],
    interceptors: ProducerInterceptors,
    identity: Identity,
) -> Send:
    """Returns `RecordAppender.send` with what only some producers need, for which the others pay nothing."""
    if any(serializer.reads_schema_options for serializer in serializers):
        send = _with_registry(send, serializers, config.max_block_ms / 1000)
    if interceptors:
        send = intercepted(send, interceptors, lifecycle)
    if identity.is_transactional:
        send = _in_transaction(send, identity)
    return send


def _with_registry(send: Send, serializers: tuple[Serializer, Serializer], limit_s: float) -> Send:
    """Limits how long serializers wait for a registry. Both are prepared before either registers a schema."""
    both = all(serializer.reads_schema_options for serializer in serializers)

    def send_with_registry(record: Record, on_completion: OnCompletion | None) -> RecordFuture:
        topic, value, key, *_ = record
        with call_deadline(limit_s):
            if both and key is not None and value is not None:
                prepare_both(*serializers, topic)
            return send(record, on_completion)

    return send_with_registry


def intercepted(send: Send, interceptors: ProducerInterceptors, lifecycle: Lifecycle) -> Send:
    """Wraps `send` with interceptors: they see each record first, and learn its outcome before its callback."""

    def intercepted_send(record: Record, on_completion: OnCompletion | None) -> RecordFuture:
        topic, value, key, partition, timestamp, headers = record
        pairs = header_pairs(topic, headers) if headers else ()
        seen = ProducerRecord(topic, value, key, partition=partition, timestamp=timestamp, headers=pairs)
        seen = interceptors.on_send(seen)
        told = interceptors.ahead_of(on_completion)
        try:
            lifecycle.check_usable()
            return send((seen.topic, seen.value, seen.key, seen.partition, seen.timestamp, seen.headers), told)
        except Exception as error:
            interceptors.on_acknowledgement(not_stored(seen.topic), as_ours(error, seen.topic))
            raise

    return intercepted_send


def _in_transaction(send: Send, identity: Identity) -> Send:
    """Wraps `send` for records that may be sent only inside a transaction."""

    def send_in_transaction(record: Record, on_completion: OnCompletion | None) -> RecordFuture:
        identity.check_may_send()
        future = send(record, on_completion)
        if future.done() and (error := future.exception(0)) is not None:
            identity.missed(error)
        return future

    return send_in_transaction


def _checked_partition(topic: str, partition: Any) -> int:
    number = _whole(partition)
    if number is None or number < 0:
        raise RecordError(f"topic {topic}: partition is {partition!r}, must be a non-negative integer or None", topic=topic)
    return number


def _checked_timestamp(topic: str, timestamp: Any, unit: str | None) -> int:
    """Returns ms. unit: of the timestamp; None: ms, and a time in another unit is refused."""
    number = _whole(timestamp)
    if number is None:
        text = f"topic {topic}: timestamp is {timestamp!r}, must be non-negative milliseconds since the epoch, or None"
        raise RecordError(text, topic=topic)
    number = number * 1000 // PER_SECOND[unit or "ms"]
    if not 0 <= number <= INT64_MAX or (unit is None and likely_unit(number) not in ("ms", None)):
        raise RecordError(f"topic {topic}: timestamp {time_problem(number)}", topic=topic)
    return number


def _whole(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def header_pairs(topic: str, headers: AnyHeaders) -> Headers:
    """Returns headers as (key, value) pairs of str and bytes or None. A header needs a key (Java's RecordHeader)."""
    if not headers:
        return ()
    try:
        pairs: list[Any] = list(headers.items() if isinstance(headers, Mapping) else headers)
    except TypeError:
        kind = type(headers).__name__
        raise RecordError(f"topic {topic}: headers is {kind}, must be (key, value) pairs or a mapping", topic=topic) from None
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise RecordError(f"topic {topic}: headers must be pairs of a str key and a value, not {pair!r}", topic=topic)
        if not pair[0].isascii() and not is_text(pair[0]):
            raise RecordError(f"topic {topic}: header key {pair[0]!r} cannot be encoded as UTF-8", topic=topic)
        if pair[1] is not None and not isinstance(pair[1], bytes):
            kind = type(pair[1]).__name__
            raise RecordError(f"topic {topic}: header {pair[0]!r} has a value of type {kind}, must be bytes or None", topic=topic)
    return pairs
