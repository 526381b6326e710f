"""What an InitProducerId does to a transactional id (Kafka's prepareInitProducerIdTransit, KIP-98 and KIP-360). Pure."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    LAST_EPOCH_GIVEN,
    NO_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from spark_kafka_sink.broker.transaction.transaction_state import TransactionState
from spark_kafka_sink.protocol.error_codes import ErrorCode


def initialized(
    metadata: TransactionMetadata,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    next_producer_id: Callable[[], int],
) -> TransactionMetadata | None:
    """The state to be stored and answered; None: a transaction runs, which must be aborted before.

    expected: what the producer has, where it asks for a bump of its own epoch. Raises CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
    """
    if metadata.is_pending:
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _knows_producer(metadata, expected):
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    if metadata.state is TransactionState.ONGOING:
        return None
    if metadata.is_epoch_exhausted and (expected is None or expected.producer_epoch == metadata.producer_epoch):
        last_epoch = NO_PRODUCER_EPOCH if expected is None else metadata.producer_epoch
        return metadata.with_producer_id(next_producer_id(), timeout_ms, last_epoch, now_ms)
    return _bumped(metadata, expected, timeout_ms, now_ms)


def _knows_producer(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    if metadata.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == metadata.producer_id:
        return True
    # It asked before, ran out of epochs by it, and did not hear which id it got.
    return expected.producer_id == metadata.previous_producer_id and expected.producer_epoch >= LAST_EPOCH_GIVEN


def _bumped(
    metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    if metadata.is_epoch_exhausted:
        # A producer that is fenced twice over; Kafka throws an IllegalStateException.
        text = f"Cannot allocate any more producer epochs for producerId {metadata.producer_id}"
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    if expected is None:
        return metadata.with_bumped_epoch(timeout_ms, NO_PRODUCER_EPOCH, now_ms)
    if metadata.producer_epoch in {expected.producer_epoch, NO_PRODUCER_EPOCH}:
        return metadata.with_bumped_epoch(timeout_ms, metadata.producer_epoch, now_ms)
    if expected.producer_epoch == metadata.last_producer_epoch:
        return metadata.with_same_epoch(timeout_ms, now_ms)
    raise ApiException(ErrorCode.PRODUCER_FENCED)
