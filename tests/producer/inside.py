"""What tests look at inside of a producer, in one place."""

from __future__ import annotations

from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager
from tests.waiting import wait_until


def accumulator_of(producer: Producer) -> RecordAccumulator:
    return producer._accumulator


def pool_of(producer: Producer) -> BufferPool:
    return producer._accumulator.pool


def metadata_of(producer: Producer) -> ProducerMetadata:
    return producer._metadata


def meet(producer: Producer, *topics: str) -> None:
    """Until it knows the topics, however long a first contact takes: max.block.ms bounds only what comes after it."""
    columns_of(producer).request_topics(topics)
    wait_until(lambda: all(metadata_of(producer).fetch().partition_count(topic) for topic in topics), f"{topics} known")


def leader_known_to(producer: Producer, topic: str) -> int:
    """Of partition 0, as of the last answer about metadata."""
    return metadata_of(producer).fetch().topics[topic].leaders[0]


def columns_of(producer: Producer) -> ColumnAppender:
    return producer._columns


def records_of(producer: Producer) -> RecordBuffer:
    """Those sent one by one that are in no batch yet."""
    return producer._record_buffer


def lifecycle_of(producer: Producer) -> Lifecycle:
    return producer._lifecycle


def manager_of(producer: Producer) -> TransactionManager:
    """Of the latest transaction."""
    assert producer._transactions is not None
    return producer._transactions.identity.latest


def wake_sender(producer: Producer) -> None:
    lifecycle_of(producer).wake_sender()


def begin_flush(producer: Producer, scope: SendScope) -> None:
    """Lets the scope's batches go, and does not wait for their acks."""
    accumulator_of(producer).flush(scope.tally)
    wake_sender(producer)
