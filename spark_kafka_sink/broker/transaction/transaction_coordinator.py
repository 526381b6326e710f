"""The coordinator of transactions (Kafka's TransactionCoordinator): the effects of requests and time on transactional ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.coordinator_log import CoordinatorLog
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.broker.transaction.transaction_marker_channel_manager import MarkerRoute, TransactionMarkerChannelManager
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_VERSION_2,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    ended,
    initialized,
)
from spark_kafka_sink.broker.transaction.transaction_state_manager import TransactionSlot, TransactionStateManager
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

NOBODY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TransactionCoordinator:
    """The transaction coordinator of all brokers. Callers pass `is_coordinator`: whether the broker coordinates the id.

    Any thread may call its methods, without a lock of a partition's log. They return when their result is in the transaction log,
    and raise ApiException with Kafka's errors. The executor writes the markers later.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        timer: Timer,
        config: BrokerConfig,
        wall_ms: Callable[[], int],
        next_producer_id: Callable[[], int],
        route: MarkerRoute,
    ) -> None:
        """Creates the coordinator. `route.submit` runs markers and timeouts."""
        self._config = config
        self._timer = timer
        self._wall_ms = wall_ms
        self._next_producer_id = next_producer_id
        self.submit = route.submit
        self._states = TransactionStateManager(
            log, wall_ms, config.release.transaction_version, config.transactional_id_expiration_ms
        )
        self.markers = TransactionMarkerChannelManager(self._states, timer, route)
        self._is_loaded = False
        self._is_stopped = False

    # Life

    def load(self) -> None:
        """Loads the log. Decided transactions are completed, open ones can time out.

        Until then, clients get COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._states.load()
        self._is_loaded = True
        for metadata in self._states.every():
            if metadata.is_pending:
                self.markers.add_markers_to_send(metadata)
        config = self._config
        self._repeat(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out_transactions)
        self._repeat(config.transaction_remove_expired_transaction_cleanup_interval_ms, self._states.remove_expired)

    def stop(self) -> None:
        """Stops the timeouts. Decided outcomes are in the log; the `load` of the next coordinator continues with them."""
        self._is_stopped = True

    def _repeat(self, interval_ms: float, run: Callable[[], None]) -> None:
        def again() -> None:
            if not self._is_stopped:
                self.submit(run)
                self._timer.after(interval_ms, again)

        self._timer.after(interval_ms, again)

    # InitProducerId

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
        *,
        is_coordinator: bool = True,
    ) -> ProducerIdAndEpoch:
        """Returns a producer id and epoch. The id None is an idempotent producer's.

        `expected`: the producer's current id and epoch, which requests the next epoch (KIP-360). An open transaction is aborted,
        and the caller gets CONCURRENT_TRANSACTIONS until that is done.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(self._next_producer_id(), 0)
        if not transactional_id:
            raise ApiException(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise ApiException(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self._check_coordinator(is_coordinator)
        with self._states.locked(transactional_id) as slot:
            _check_writable(slot)
            metadata = slot.metadata or TransactionMetadata(transactional_id, self._next_producer_id(), timeout_ms)
            new = initialized(metadata, expected, timeout_ms, self._wall_ms(), self._next_producer_id)
            if new is not None:
                self._states.append(slot, new)
                logger.info(
                    "Initialized transactional id %r with producer id %d and epoch %d",
                    transactional_id,
                    *new.producer,
                    extra={"transactional_id": transactional_id},
                )
                return new.producer
            self._fence(slot, metadata)
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _fence(self, slot: TransactionSlot, metadata: TransactionMetadata) -> None:
        """Aborts an open transaction with an epoch that its producer does not have."""
        self._prepare(slot, metadata.fenced(self._states.transaction_version, self._wall_ms()))

    def _prepare(self, slot: TransactionSlot, prepared: TransactionMetadata) -> None:
        self._states.append(slot, prepared)
        self.markers.add_markers_to_send(prepared)

    # AddPartitionsToTxn, AddOffsetsToTxn, and requests between brokers

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[tuple[str, int]],
        *,
        client_version: int = 0,
        is_coordinator: bool = True,
    ) -> None:
        """Adds partitions to the transaction, which starts with the first one.

        `client_version`: 2 for partitions added by a Produce v12 or a TxnOffsetCommit v5, otherwise 0.
        """
        self._check_request(transactional_id, is_coordinator)
        with self._states.locked(transactional_id) as slot:
            _check_writable(slot)
            metadata = _known(slot.metadata)
            if metadata.is_pending:
                # Checked before id and epoch, which may be about to change (handleAddPartitionsToTransaction of 4.1).
                raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
            _check_producer(metadata, producer)
            added = frozenset(TopicPartition(*each) for each in partitions)
            if metadata.state is TransactionState.ONGOING and added <= metadata.partitions:
                return
            self._states.append(slot, metadata.with_partitions(added, client_version, self._wall_ms()))

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[tuple[str, int]],
        *,
        is_coordinator: bool = True,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Returns whether partitions are in the open transaction (KIP-890, part 1): NONE or TRANSACTION_ABORTABLE each."""
        self._check_request(transactional_id, is_coordinator)
        metadata = _known(self._states.get(transactional_id))
        _check_producer(metadata, producer)
        if metadata.is_pending:
            raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
        there = metadata.partitions
        return {each: ErrorCode.NONE if each in there else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    # EndTxn

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        *,
        client_version: int,
        is_coordinator: bool = True,
    ) -> ProducerIdAndEpoch:
        """Decides the outcome; the markers follow. With version 2, returns the id and epoch for the next transaction."""
        self._check_request(transactional_id, is_coordinator)
        with self._states.locked(transactional_id) as slot:
            _check_writable(slot)
            metadata = _known(slot.metadata)
            now_ms = self._wall_ms()
            prepared = ended(metadata, producer, committed, client_version, now_ms, self._next_producer_id)
            if prepared is not None:
                self._prepare(slot, prepared)
        if client_version < TRANSACTION_VERSION_2:
            return NOBODY
        return metadata.producer if prepared is None else prepared.completed(now_ms).producer

    def abort_timed_out_transactions(self) -> None:
        """Aborts transactions that exceed their producer's timeout."""
        for metadata in self._states.every():
            if metadata.state is not TransactionState.ONGOING or metadata.start_ms + metadata.timeout_ms >= self._wall_ms():
                continue
            try:
                with self._states.locked(metadata.transactional_id) as slot:
                    if slot.metadata is metadata and not slot.is_unwritable:
                        self._fence(slot, metadata)
                        logger.info("Aborted the transaction of %r, which timed out", metadata.transactional_id)
            except Exception:
                logger.exception("The transaction of %r timed out but could not be aborted", metadata.transactional_id)

    # Queries

    def describe(self, transactional_id: str, *, is_coordinator: bool = True) -> TransactionMetadata:
        self._check_request(transactional_id, is_coordinator)
        metadata = self._states.get(transactional_id)
        if metadata is None:
            raise ApiException(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return metadata

    def every(self) -> list[TransactionMetadata]:
        """Returns the transactions of all coordinators in this process."""
        self._check_loaded()
        return self._states.every()

    # Kafka's first checks

    def _check_request(self, transactional_id: str, is_coordinator: bool) -> None:
        if not transactional_id:
            raise ApiException(ErrorCode.INVALID_REQUEST)
        self._check_coordinator(is_coordinator)

    def _check_coordinator(self, is_coordinator: bool) -> None:
        if not is_coordinator:
            raise ApiException(ErrorCode.NOT_COORDINATOR)
        self._check_loaded()

    def _check_loaded(self) -> None:
        if not self._is_loaded:
            raise ApiException(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _check_writable(slot: TransactionSlot) -> None:
    if slot.is_unwritable:
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)


def _known(metadata: TransactionMetadata | None) -> TransactionMetadata:
    if metadata is None:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    return metadata


def _check_producer(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    if metadata.producer_id != producer.producer_id:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer.producer_epoch:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
