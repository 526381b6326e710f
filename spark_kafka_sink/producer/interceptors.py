"""ProducerInterceptor and the chain of them (Kafka's ProducerInterceptors): before all else, and before callbacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple, TypeVar

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaSinkError, OptionError
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult
from spark_kafka_sink.producer.partition_reports import NO_OFFSET
from spark_kafka_sink.producer.plugins import configured, full_name, plugin
from spark_kafka_sink.producer.producer_record import OnDelivery, ProducerRecord, RecordMetadata
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

logger = logging.getLogger(__name__)

OPTION = "interceptor.classes"
T = TypeVar("T")


class ColumnsMetadata(NamedTuple):
    """The outcome of `num_records` records of columns, which stand one after the other in a partition.

    topic: its name. base_offset: of the first of them. num_records: how many, of one batch.
    partition, base_offset: -1 where not known (acks=0; a duplicate; records that failed before they were in a batch).
    """

    topic: str
    partition: int
    base_offset: int
    num_records: int


class ProducerInterceptor:
    """Lets a program look at, or change, each record on its way. Inherit, and override methods. Java's ProducerInterceptor.

    on_send runs in the thread that sends, before serialization and partitioning; on_acknowledgement in the sender's thread,
    just before the record's callback, or in the thread that sends for a record that fails before it is in a batch. Both may run
    in several threads at once, and must be quick: everybody waits. Whatever they raise is logged and passed over.
    """

    def configure(self, settings: Mapping[str, object]) -> None:
        """Called once, before anything else. settings: the value of each of the producer's options by its name."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead, or the same."""
        return record

    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        """The columns to send instead, or the same; they may have other rows. topic: all of theirs, and it stays."""
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        """A record of `send` was acked, or failed with `error`. metadata: where it is, as far as that is known."""

    def on_acknowledgement_columns(self, metadata: ColumnsMetadata, error: KafkaSinkError | None) -> None:
        """Records of an append were acked, or failed with `error`: once for each part of them that shares a batch.

        metadata: which partition's, and how many they are.
        """

    def close(self) -> None:
        """The producer is closed. Called once."""


class ProducerInterceptors:
    """The chain, in the order of the option. Any thread may call; `_lock` guards whether it was closed, its only state."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._lock = Lock()
        self._closed = False

    @classmethod
    def of(cls, config: ProducerConfig) -> ProducerInterceptors:
        """Returns those that interceptor.classes names, configured. OptionError for one that cannot be had."""
        made = cls([])
        try:
            for value in config.interceptor_classes:
                made._add(plugin(value, OPTION), config)
        except BaseException:
            made.close()
            raise
        return made

    def _add(self, interceptor: object, config: ProducerConfig) -> None:
        if not isinstance(interceptor, ProducerInterceptor):
            raise OptionError(f"option {OPTION}: {full_name(type(interceptor))} must inherit ProducerInterceptor", option=OPTION)
        self._interceptors += (interceptor,)
        configured(interceptor, OPTION, interceptor.configure, config.settings())

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = _checked(interceptor.on_send(record), ProducerRecord)
            except Exception:
                _passed_over(interceptor, "on_send")
        return record

    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        for interceptor in self._interceptors:
            try:
                columns = _checked(interceptor.on_send_columns(topic, columns), RecordColumns)
            except Exception:
                _passed_over(interceptor, "on_send_columns")
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        self._each("on_acknowledgement", metadata, error)

    def on_acknowledgement_columns(self, metadata: ColumnsMetadata, error: KafkaSinkError | None) -> None:
        self._each("on_acknowledgement_columns", metadata, error)

    def ahead_of(self, on_delivery: OnDelivery | None) -> OnDelivery:
        """A callback that tells the interceptors first."""

        def told(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            self.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return told

    def close(self) -> None:
        """Close each of them, once."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._each("close")

    def _each(self, method: str, *arguments: object) -> None:
        for interceptor in self._interceptors:
            try:
                getattr(interceptor, method)(*arguments)
            except KeyboardInterrupt:  # of the program that sends
                raise
            except BaseException:  # also sys.exit(): in the sender's thread it would end the producer
                _passed_over(interceptor, method)


class ColumnsThunk:
    """Rows of an append that share a batch: tells the interceptors what becomes of them."""

    __slots__ = ("_interceptors", "count")

    def __init__(self, interceptors: ProducerInterceptors, count: int) -> None:
        self._interceptors = interceptors
        self.count = count

    def assigned(self, result: ProduceResult, first: int) -> None:
        """Nobody waits for single records."""

    def completed(self, result: ProduceResult, first: int) -> None:
        known = result.error is None and result.base_offset != NO_OFFSET
        offset = result.base_offset + first if known else NO_OFFSET
        metadata = ColumnsMetadata(result.topic, result.partition, offset, self.count)
        self._interceptors.on_acknowledgement_columns(metadata, result.error)

    def split(self, count: int) -> tuple[ColumnsThunk, ColumnsThunk]:
        return ColumnsThunk(self._interceptors, count), ColumnsThunk(self._interceptors, self.count - count)


class ColumnsInterception:
    """One append's rows under interceptors: counts those that got into a batch, so that the others can be told to have failed."""

    def __init__(self, interceptors: ProducerInterceptors, topic: str, count: int) -> None:
        self._interceptors = interceptors
        self._topic = topic
        self._left = count

    def completion_for(self, rows: Sequence[int]) -> ColumnsThunk:
        self._left -= len(rows)
        return ColumnsThunk(self._interceptors, len(rows))

    def failed(self, error: BaseException) -> None:
        """The rest of the rows is in no batch."""
        if self._left:
            metadata = ColumnsMetadata(self._topic, NO_PARTITION, NO_OFFSET, self._left)
            self._interceptors.on_acknowledgement_columns(metadata, as_ours(error, self._topic))


def as_ours(error: BaseException, topic: str) -> KafkaSinkError:
    """Returns what an interceptor is told of an error, which may be of a user's own serializer or partitioner."""
    if isinstance(error, KafkaSinkError):
        return error
    told = KafkaSinkError(f"topic {topic}: {type(error).__name__}: {error}", topic=topic)
    told.__cause__ = error
    return told


def _checked(result: object, kind: type[T]) -> T:
    if not isinstance(result, kind):
        raise TypeError(f"returned {type(result).__name__}, not {kind.__name__}")
    return result


def _passed_over(interceptor: object, method: str) -> None:
    logger.warning("interceptor %s: %s failed; it is passed over", full_name(type(interceptor)), method, exc_info=True)
