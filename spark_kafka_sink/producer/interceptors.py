"""ProducerInterceptor and the chain of interceptors (Kafka's ProducerInterceptors), which runs first and before callbacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple, TypeVar

from spark_kafka_sink.errors import KafkaSinkError, OptionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.base.plugins import configured, full_name, plugin
from spark_kafka_sink.producer.base.producer_record import OnCompletion, ProducerRecord, RecordMetadata
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from spark_kafka_sink.reports.partition_reports import NO_OFFSET

logger = logging.getLogger(__name__)

OPTION = "interceptor.classes"
T = TypeVar("T")


class ColumnsMetadata(NamedTuple):
    """The outcome of consecutive records of an append that share a batch.

    Attributes:
        topic: Name of the topic.
        partition: The partition; -1 if unknown.
        base_offset: Offset of the first record; -1 if unknown (acks=0, a duplicate, or records that failed before they were in
            a batch).
        num_records: Number of records.
    """

    topic: str
    partition: int
    base_offset: int
    num_records: int


class ProducerInterceptor:
    """Base class for interceptors, which observe or change records before they are sent. Java's ProducerInterceptor.

    on_send runs in the sending thread, before serialization and partitioning. on_acknowledgement runs in the sender thread just
    before the record's callback, or in the sending thread if a record fails before it is in a batch. Both may run in several
    threads at once and must be fast, because they block sending. Their exceptions are logged and ignored.
    """

    def configure(self, settings: Mapping[str, object]) -> None:
        """Called once, before all other methods.

        Args:
            settings: Values of the producer's options by name.
        """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record to send: the same one or a replacement."""
        return record

    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        """Returns the columns of `topic` to send: the same ones or a replacement, which may have other rows.

        Change columns with `dataclasses.replace(columns, value=...)`. A new RecordColumns loses everything that is not passed
        to it, such as the fixed headers.
        """
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        """Called when a record of `send` was acknowledged or has failed.

        Args:
            metadata: Location of the record, as far as it is known.
            error: The error of a failed record, or None.
        """

    def on_acknowledgement_columns(self, metadata: ColumnsMetadata, error: KafkaSinkError | None) -> None:
        """Called when records of an append were acknowledged or have failed, once for each group that shares a batch.

        `metadata` has the partition, the first offset and the number of records; `error` is None if they were acknowledged.
        """

    def close(self) -> None:
        """Called once, when the producer is closed."""


class ProducerInterceptors:
    """The chain of interceptors, in the order of the option. Any thread may call; `_lock` guards its closed state."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._lock = Lock()
        self._closed = False

    @classmethod
    def of(cls, config: ProducerConfig) -> ProducerInterceptors:
        """Returns the configured interceptors of interceptor.classes. Raises OptionError if one cannot be created."""
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
            raise OptionError(
                f"option {OPTION}: {full_name(type(interceptor))} must inherit from ProducerInterceptor", option=OPTION
            )
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

    def ahead_of(self, on_completion: OnCompletion | None) -> OnCompletion:
        def told(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            self.on_acknowledgement(metadata, error)
            if on_completion is not None:
                on_completion(metadata, error)

        return told

    def close(self) -> None:
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
    """Rows of an append that share a batch. Reports their outcome to the interceptors."""

    __slots__ = ("_interceptors", "count")

    def __init__(self, interceptors: ProducerInterceptors, count: int) -> None:
        self._interceptors = interceptors
        self.count = count

    def assigned(self, result: ProduceResult, first: int) -> None:
        """Does nothing, because there are no futures of single records."""

    def completed(self, result: ProduceResult, first: int) -> None:
        known = result.error is None and result.base_offset != NO_OFFSET
        offset = result.base_offset + first if known else NO_OFFSET
        metadata = ColumnsMetadata(result.topic, result.partition, offset, self.count)
        self._interceptors.on_acknowledgement_columns(metadata, result.error)

    def settled(self) -> None:
        """Does nothing, likewise."""

    def split(self, count: int) -> tuple[ColumnsThunk, ColumnsThunk]:
        return ColumnsThunk(self._interceptors, count), ColumnsThunk(self._interceptors, self.count - count)


class ColumnsInterception:
    """One append's rows under interceptors: counts the rows in batches, so that the others can be reported as failed."""

    def __init__(self, interceptors: ProducerInterceptors, topic: str, count: int) -> None:
        self._interceptors = interceptors
        self._topic = topic
        self._left = count

    def completion_for(self, rows: Sequence[int]) -> ColumnsThunk:
        self._left -= len(rows)
        return ColumnsThunk(self._interceptors, len(rows))

    def refused(self, error: KafkaSinkError) -> None:
        """Reports one row as failed, without which the append goes on."""
        self._left -= 1
        self._interceptors.on_acknowledgement_columns(ColumnsMetadata(self._topic, NO_PARTITION, NO_OFFSET, 1), error)

    def failed(self, error: BaseException) -> None:
        if self._left:
            metadata = ColumnsMetadata(self._topic, NO_PARTITION, NO_OFFSET, self._left)
            self._interceptors.on_acknowledgement_columns(metadata, as_ours(error, self._topic))


def as_ours(error: BaseException, topic: str) -> KafkaSinkError:
    """Returns the error as interceptors get it. It may come from a user's serializer or partitioner."""
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
    logger.warning(
        "interceptor %s: %s raised an exception, which is ignored", full_name(type(interceptor)), method, exc_info=True
    )
