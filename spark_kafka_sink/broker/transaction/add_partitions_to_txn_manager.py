"""What a broker asks the coordinator before it stores records of a transaction (Kafka's AddPartitionsToTxnManager, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.broker.transaction.transaction_coordinator import TransactionCoordinator
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    TRANSACTION_VERSION_2,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

Failures = Mapping[tuple[str, int], ErrorCode]
"""Partitions that must not be written, and what their client is told; empty: go on."""


class TransactionSupportedOperation(Enum):
    """What the client can do, by the version of its request."""

    DEFAULT_ERROR = "it adds partitions itself, and does not know TRANSACTION_ABORTABLE"
    GENERIC_ERROR_SUPPORTED = "it adds partitions itself"
    ADD_PARTITION = "it leaves that to the broker"


def operation_of_produce(version: int) -> TransactionSupportedOperation:
    return _operation(version, generic_since=11)


def operation_of_txn_offset_commit(version: int) -> TransactionSupportedOperation:
    return _operation(version, generic_since=4)


def _operation(version: int, generic_since: int) -> TransactionSupportedOperation:
    if version > generic_since:
        return TransactionSupportedOperation.ADD_PARTITION
    if version == generic_since:
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    return TransactionSupportedOperation.DEFAULT_ERROR


PRODUCE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    # Errors that a producer does not expect from Produce: this one makes it try again without new metadata (ReplicaManager).
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def produce_error(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    """What a Produce answers where the coordinator said `code`."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is TransactionSupportedOperation.ADD_PARTITION:
        return code
    return PRODUCE_ERRORS.get(code, code)


class AddPartitionsToTxnManager:
    """Has no state. From any thread, without a lock of a partition's log. All coordinators are in this process, so nothing is
    sent and nobody waits; `has_coordinator` says whether the id's own broker runs."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        has_coordinator: Callable[[str], bool],
        timer: Timer,
        *,
        retry_backoff_ms: float = 20.0,
        retry_backoff_max_ms: float = 100.0,
    ) -> None:
        """The times are Kafka's `add.partitions.to.txn.retry.backoff.ms` and `...max.ms`."""
        self._coordinator = coordinator
        self._has_coordinator = has_coordinator
        self._timer = timer
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        operation: TransactionSupportedOperation,
    ) -> Failures:
        """Once, at once. To be asked for partitions only whose log knows no running transaction of this producer and epoch."""
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            if not self._has_coordinator(transactional_id):
                raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            codes = self._asked(transactional_id, producer, partitions, operation)
        except ApiException as error:
            codes = dict.fromkeys(partitions, error.code)
        return {each: _told(code, operation) for each, code in codes.items() if code is not ErrorCode.NONE}

    def _asked(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[tuple[str, int]],
        operation: TransactionSupportedOperation,
    ) -> Failures:
        if operation is not TransactionSupportedOperation.ADD_PARTITION:
            return self._coordinator.verify_partitions(transactional_id, producer, partitions)
        self._coordinator.add_partitions(transactional_id, producer, partitions, client_version=TRANSACTION_VERSION_2)
        return {}

    def add_or_verify_with_patience(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        operation: TransactionSupportedOperation,
        then: Callable[[Failures], None],
    ) -> None:
        """For Produce: while the last transaction's markers are being written it asks again, for up to 100 ms, rather than let
        the client do so. `then` is called once, on this thread or on another that may wait for disks."""
        deadline_ms = self._timer.now_ms() + self._retry_backoff_max_ms

        def ask() -> None:
            failures = self.add_or_verify(transactional_id, producer_id, producer_epoch, partitions, operation)
            if ErrorCode.CONCURRENT_TRANSACTIONS in failures.values() and self._timer.now_ms() < deadline_ms:
                self._timer.after(self._retry_backoff_ms, lambda: self._coordinator.executor.submit(ask))
            else:
                then(failures)

        ask()


def _told(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionSupportedOperation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return code
