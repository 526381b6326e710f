"""A transactional id's state as a record of `__transaction_state`, and back (Kafka's TransactionLog)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from spark_kafka_sink.broker.transaction.transaction_metadata import TopicPartition, TransactionMetadata
from spark_kafka_sink.broker.transaction.transaction_state import IDLE, PENDING, TransactionState
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.internal_topics import (
    TRANSACTION_LOG_KEY,
    TRANSACTION_LOG_VALUE,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from spark_kafka_sink.protocol.wire_types import Buffer

_STORED = IDLE | PENDING | {TransactionState.ONGOING}


def key_of(transactional_id: str) -> bytes:
    return TRANSACTION_LOG_KEY.encode(TransactionLogKey(transactional_id))


def value_of(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """`transaction_version`: the finalized feature of the cluster; from 1 on the record has tagged fields.

    Kafka 4.1 reads the previous and the next producer id but does not write them: when it is restarted in the wrong moment it
    has forgotten the id that it gave to a producer whose epochs ran out. Here they are written.
    """
    value = TransactionLogValue(
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state,
        None if metadata.state is TransactionState.EMPTY else _by_topic(metadata.partitions),
        metadata.last_update_ms,
        metadata.start_ms,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.client_version,
    )
    return TRANSACTION_LOG_VALUE.encode(value, min(transaction_version, 1))


def read_key(data: Buffer) -> str:
    """The transactional id. Raises ProtocolError or UnsupportedVersionError for what is none."""
    return TRANSACTION_LOG_KEY.decode(data).transactional_id


def read_value(transactional_id: str, data: Buffer) -> TransactionMetadata:
    """Raises as read_key. The last epoch is not stored, in Kafka either: after a restart a retry of it is fenced."""
    value = TRANSACTION_LOG_VALUE.decode(data)
    if value.transaction_status not in _STORED:
        raise ProtocolError(f"{transactional_id!r} has the state {value.transaction_status}, which is never stored")
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.transaction_timeout_ms,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        state=TransactionState(value.transaction_status),
        partitions=_flat(value.transaction_partitions or ()),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    grouped = itertools.groupby(sorted(partitions), key=lambda each: each.topic)
    return [PartitionsSchema(topic, [each.partition for each in of_topic]) for topic, of_topic in grouped]


def _flat(topics: Iterable[PartitionsSchema]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, int(partition)) for each in topics for partition in each.partition_ids)
