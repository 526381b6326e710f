"""The transitions of a transactional id by InitProducerId and EndTxn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    LAST_EPOCH_GIVEN,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_VERSION_2,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode


def initialized(
    metadata: TransactionMetadata,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    next_producer_id: Callable[[], int],
) -> TransactionMetadata | None:
    """Returns the state to store and answer; None: an open transaction must be aborted first.

    expected: the producer's id and epoch if it asks for the next epoch. Raises CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
    """
    if metadata.is_pending:
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _knows_producer(metadata, expected):
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    if metadata.state is TransactionState.ONGOING:
        return None
    last_epoch = NO_PRODUCER_EPOCH if expected is None else metadata.producer_epoch
    is_current = expected is None or metadata.producer_epoch in {expected.producer_epoch, NO_PRODUCER_EPOCH}
    if metadata.is_epoch_exhausted:
        if expected is not None and expected.producer_epoch != metadata.producer_epoch:
            # A producer that is fenced twice; Kafka throws an IllegalStateException.
            text = f"Cannot allocate any more producer epochs for producerId {metadata.producer_id}"
            raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        new = ProducerIdAndEpoch(next_producer_id(), 0)
    elif is_current:
        new = ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch + 1)
    elif expected is not None and expected.producer_epoch == metadata.last_producer_epoch:
        # It was answered before and gets the same response.
        new, last_epoch = metadata.producer, metadata.last_producer_epoch
    else:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    return metadata.initialized(new, last_epoch, timeout_ms, now_ms)


def _knows_producer(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    if metadata.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == metadata.producer_id:
        return True
    # Its earlier request used up the epochs, and it did not receive its new id.
    return expected.producer_id == metadata.previous_producer_id and expected.producer_epoch >= LAST_EPOCH_GIVEN


class Outcome(Enum):
    PREPARE = "the outcome is stored"
    DONE = "it is already stored: the same response again"
    INVALID = "INVALID_TXN_STATE"


_S, _O = TransactionState, Outcome
_COMMIT, _ABORT = True, False
_RETRY, _CURRENT = True, False

VERSION_1: Final[Mapping[tuple[TransactionState, bool], Outcome]] = {
    (_S.ONGOING, _COMMIT): _O.PREPARE,
    (_S.ONGOING, _ABORT): _O.PREPARE,
    (_S.EMPTY, _COMMIT): _O.INVALID,
    (_S.EMPTY, _ABORT): _O.INVALID,
    (_S.COMPLETE_COMMIT, _COMMIT): _O.DONE,
    (_S.COMPLETE_COMMIT, _ABORT): _O.INVALID,
    (_S.COMPLETE_ABORT, _COMMIT): _O.INVALID,
    (_S.COMPLETE_ABORT, _ABORT): _O.DONE,
}
"""Outcomes by state and commit or abort, for the current epoch. A retry cannot be told from the end of the next transaction."""

VERSION_2: Final[Mapping[tuple[TransactionState, bool, bool], Outcome]] = {
    (_S.ONGOING, _COMMIT, _CURRENT): _O.PREPARE,
    (_S.ONGOING, _ABORT, _CURRENT): _O.PREPARE,
    (_S.EMPTY, _COMMIT, _CURRENT): _O.INVALID,
    (_S.EMPTY, _ABORT, _CURRENT): _O.PREPARE,
    (_S.COMPLETE_COMMIT, _COMMIT, _RETRY): _O.DONE,
    (_S.COMPLETE_COMMIT, _COMMIT, _CURRENT): _O.INVALID,
    (_S.COMPLETE_COMMIT, _ABORT, _RETRY): _O.INVALID,
    (_S.COMPLETE_COMMIT, _ABORT, _CURRENT): _O.PREPARE,
    (_S.COMPLETE_ABORT, _COMMIT, _RETRY): _O.INVALID,
    (_S.COMPLETE_ABORT, _COMMIT, _CURRENT): _O.INVALID,
    (_S.COMPLETE_ABORT, _ABORT, _RETRY): _O.DONE,
    (_S.COMPLETE_ABORT, _ABORT, _CURRENT): _O.PREPARE,
}
"""The same, also by whether the epoch is the one before the bump (a retry). Anything else is PRODUCER_FENCED."""


def ended(
    metadata: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    committed: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: Callable[[], int],
) -> TransactionMetadata | None:
    """Returns the state to store; None: it is already stored. Raises Kafka's errors."""
    version_2 = client_version >= TRANSACTION_VERSION_2
    outcome = _version_2(metadata, producer, committed) if version_2 else _version_1(metadata, producer, committed)
    if outcome is Outcome.DONE:
        return None
    if outcome is Outcome.INVALID:
        raise ApiException(ErrorCode.INVALID_TXN_STATE)
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    successor = next_producer_id() if version_2 and metadata.is_epoch_exhausted else NO_PRODUCER_ID
    return metadata.prepared(state, TRANSACTION_VERSION_2 if version_2 else 0, successor, now_ms)


def _version_1(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, committed: bool) -> Outcome:
    if metadata.producer_id != producer.producer_id:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer.producer_epoch:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    if metadata.is_pending:
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    return VERSION_1[metadata.state, committed]


def _version_2(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, committed: bool) -> Outcome:
    if metadata.is_pending:
        # Checked first: the producer may have an id that takes effect only when the markers are written.
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    # A retry of the end that used up the epochs, so another producer id follows.
    had_last_epoch = metadata.previous_producer_id == producer.producer_id and (
        producer.producer_epoch == LAST_EPOCH_GIVEN and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer.producer_id and not had_last_epoch:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = had_last_epoch or metadata.producer_epoch == producer.producer_epoch + 1
    if not is_retry and metadata.producer_epoch != producer.producer_epoch:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    outcome = VERSION_2.get((metadata.state, committed, is_retry))
    if outcome is None:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    return outcome
