"""A transactional id at its coordinator. Requests change it by the embedded broker's own code, which is compared with Kafka."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.transaction import transaction_metadata
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionState
from spark_kafka_sink.protocol.error_codes import ErrorCode

EMPTY: Final = int(TransactionState.EMPTY)
DEAD: Final = int(TransactionState.DEAD)
ONGOING: Final = int(TransactionState.ONGOING)
PENDING: Final = frozenset({int(TransactionState.PREPARE_COMMIT), int(TransactionState.PREPARE_ABORT)})
COMMITTED: Final = frozenset({int(TransactionState.PREPARE_COMMIT), int(TransactionState.COMPLETE_COMMIT)})
PRODUCER_ID: Final = 1
EPOCHS: Final = 1000  # of one producer id: in the model another one is shown by a higher epoch
NOTHING: Final = -1


class Slot(NamedTuple):
    """One transactional id. transaction: the number of the one that is in it, or was last. by_timeout: so that was aborted.
    is_old: it has less than the margin left of its time."""

    epoch: int = -1
    state: int = EMPTY
    transaction: int = NOTHING
    by_timeout: bool = False
    is_old: bool = False


def produced(slot: Slot, transaction: int) -> Slot:
    """The first partition of a transaction was added."""
    return Slot(slot.epoch, ONGOING, transaction)


@cache
def initialized(slot: Slot, version: int) -> Slot:
    """After InitProducerId, which has a running transaction aborted first. An id that was forgotten gets another producer id."""
    if slot.state == DEAD:
        return Slot(slot.epoch + EPOCHS, EMPTY, slot.transaction)
    metadata = _metadata(slot)
    if slot.state == ONGOING:
        metadata = metadata.fenced(version, 0).completed(0)
    new = transaction_metadata.initialized(metadata, None, 1, 0, _no_other_producer)
    assert new is not None
    return Slot(new.producer_epoch, int(new.state), slot.transaction)


@cache
def timed_out(slot: Slot, version: int) -> Slot:
    new = _metadata(slot).fenced(version, 0).completed(0)
    return Slot(new.producer_epoch, int(new.state), slot.transaction, by_timeout=True)


@cache
def completed(slot: Slot) -> Slot:
    """Its markers are written."""
    new = _metadata(slot).completed(0)
    return slot._replace(epoch=new.producer_epoch, state=int(new.state))


@cache
def end_txn(slot: Slot, epoch: int, is_commit: bool, version: int) -> tuple[ErrorCode, Slot]:
    """The answer, and the id afterwards."""
    if slot.state == DEAD or slot.epoch // EPOCHS != epoch // EPOCHS:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, slot
    producer = ProducerIdAndEpoch(PRODUCER_ID, epoch)
    try:
        new = transaction_metadata.ended(_metadata(slot), producer, is_commit, version, 0, _no_other_producer)
    except ApiException as error:
        return error.code, slot
    return ErrorCode.NONE, slot if new is None else Slot(new.producer_epoch, int(new.state), slot.transaction)


def state_name(slot: Slot) -> str:
    """As DescribeTransactions says it."""
    return TransactionState(slot.state).state_name


def _metadata(slot: Slot) -> TransactionMetadata:
    return TransactionMetadata("id", PRODUCER_ID, 1, producer_epoch=slot.epoch, state=TransactionState(slot.state))


def _no_other_producer() -> int:
    raise AssertionError("epochs do not run out in the model")
