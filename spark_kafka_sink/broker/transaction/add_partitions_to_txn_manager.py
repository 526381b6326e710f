"""Verification with the coordinator before records of a transaction are stored (Kafka's AddPartitionsToTxnManager, KIP-890)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.broker.transaction.transaction_coordinator import TransactionCoordinator
from spark_kafka_sink.broker.transaction.transaction_metadata import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 20.0
RETRY_BACKOFF_MAX_MS: Final = 100.0
"""Kafka's `add.partitions.to.txn.retry.backoff.ms` and `...max.ms`."""

Failures = Mapping[tuple[str, int], ErrorCode]
"""Partitions that must not be written, with the client's error code. Empty: continue."""


Guards = Mapping[tuple[str, int], VerificationGuard]
"""Partitions whose log has no open transaction of the producer, with the guards that admit its records."""


class TransactionSupportedOperation(Enum):
    """The abilities of a client, by the version of its request."""

    DEFAULT_ERROR = "adds partitions itself and does not know TRANSACTION_ABORTABLE"
    GENERIC_ERROR_SUPPORTED = "adds partitions itself"
    ADD_PARTITION = "lets the broker add partitions"


def operation_of(version: int, *, generic_since: int) -> TransactionSupportedOperation:
    if version < generic_since:
        return TransactionSupportedOperation.DEFAULT_ERROR
    is_generic = version == generic_since
    return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED if is_generic else TransactionSupportedOperation.ADD_PARTITION


PRODUCE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    # Errors that a producer does not expect from Produce. This one makes it retry without new metadata (ReplicaManager).
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def produce_error(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    """Returns the Produce error for the coordinator's `code`."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is TransactionSupportedOperation.ADD_PARTITION:
        return code
    return PRODUCE_ERRORS.get(code, code)


class AddPartitionsToTxnManager:
    """Verifies partitions from any thread, without a lock of a partition's log. It has no state but a delay for tests.

    All coordinators are in this process, so nothing is sent and nothing waits. `has_coordinator` returns whether the id's broker
    runs.
    """

    def __init__(self, coordinator: TransactionCoordinator, has_coordinator: Callable[[str], bool], timer: Timer) -> None:
        self.delay_ms = 0.0  # a fault: the delay of each request's first verification
        self._coordinator = coordinator
        self._has_coordinator = has_coordinator
        self._timer = timer

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        operation: TransactionSupportedOperation,
    ) -> Failures:
        """Verifies or adds partitions once, without waiting.

        Only for partitions whose log has no open transaction of this producer and epoch.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            if not self._has_coordinator(transactional_id):
                raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            codes: Failures = {}
            if operation is TransactionSupportedOperation.ADD_PARTITION:
                version = TRANSACTION_VERSION_2
                self._coordinator.add_partitions(transactional_id, producer, partitions, client_version=version)
            else:
                codes = self._coordinator.verify_partitions(transactional_id, producer, partitions)
        except ApiException as error:
            codes = dict.fromkeys(partitions, error.code)
        return {each: _client_code(code, operation) for each, code in codes.items() if code is not ErrorCode.NONE}

    def add_or_verify_with_patience(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        begin: Callable[[], Guards],
        operation: TransactionSupportedOperation,
        then: Callable[[Failures], None],
    ) -> None:
        """Verifies or adds partitions, retrying for up to 100 ms while the previous transaction's markers are written.

        This saves the client a retry. `begin` starts the verification in the logs and returns what needs one. It is called before
        each verification and after the answer, however late that is: a marker in between ends a guard, and records with that
        guard would be refused (ReplicaManager starts over with each retry, too). `then` is called once with the failures, on this
        thread or on one that may wait for disks. At that time, the guards of the last `begin` are still valid.

        It raises what the first `begin` raises. An exception of a later call fails all partitions.
        """

        deadline_ms = self._timer.now_ms() + RETRY_BACKOFF_MAX_MS

        def attempt(guards: Guards) -> None:
            while True:
                partitions = list(guards)
                failures = (
                    self.add_or_verify(transactional_id, producer_id, producer_epoch, partitions, operation) if guards else {}
                )
                if ErrorCode.CONCURRENT_TRANSACTIONS in failures.values() and self._timer.now_ms() < deadline_ms:
                    later(guards, RETRY_BACKOFF_MS, lambda: attempt(begin()))
                    return
                # However late it is: a marker may have ended the guards during the verification. This terminates, because the
                # partitions now in the transaction get no marker other than the one that ends it.
                renewed = guards if all(each in failures for each in guards) else begin()
                if renewed == guards:
                    then(failures)
                    return
                guards = renewed

        def later(guards: Guards, delay_ms: float, run: Callable[[], None]) -> None:
            def answer_in_any_case() -> None:
                try:
                    run()
                except ApiException as error:
                    then(dict.fromkeys(guards, error.code))
                except Exception:
                    # No caller would handle it: a request without a response blocks its connection forever.
                    logger.exception("Unexpected error while verifying partitions of a transaction")
                    then(dict.fromkeys(guards, ErrorCode.UNKNOWN_SERVER_ERROR))

            self._timer.after(delay_ms, lambda: self._coordinator.submit(answer_in_any_case))

        guards = begin()
        if self.delay_ms and guards:
            later(guards, self.delay_ms, lambda: attempt(guards))
        else:
            attempt(guards)


def _client_code(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionSupportedOperation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return code
