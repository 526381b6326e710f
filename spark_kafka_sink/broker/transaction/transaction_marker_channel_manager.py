"""From a decided outcome to its markers in every partition, and then to Complete* (Kafka's TransactionMarkerChannelManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.control_record import EndTransactionMarker
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.broker.transaction.marker_sender import Executor
from spark_kafka_sink.broker.transaction.transaction_metadata import TopicPartition, TransactionMetadata
from spark_kafka_sink.broker.transaction.transaction_state import TransactionState
from spark_kafka_sink.broker.transaction.transaction_state_manager import TransactionStateManager
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

WriteMarkers = Callable[[EndTransactionMarker, Sequence[tuple[str, int]]], None]
"""Writes the marker to these partitions; raises ApiException where a log takes none now. It may be asked again for what it has
written already, which must do no harm."""

RETRY_BACKOFF_MS: Final = 100.0

GIVEN_UP: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Somebody with a higher epoch is at work; the transaction stays as it is until the next start. All other errors are retried."""


class TransactionMarkerChannelManager:
    """Keeps nothing: what is to be done is in the state manager, and what was done is in the logs.

    delay_ms: how long after the answer to an EndTxn the markers are written; meanwhile everybody gets CONCURRENT_TRANSACTIONS
    and readers of committed records wait. 0 as soon as can be; in Kafka some milliseconds. May be set at any time.
    """

    def __init__(
        self,
        states: TransactionStateManager,
        timer: Timer,
        executor: Executor,
        write_markers: WriteMarkers,
        partition_exists: Callable[[str, int], bool],
        coordinator_epoch: Callable[[str], int],
    ) -> None:
        self.write_markers = write_markers
        self.delay_ms = 0.0
        self._states = states
        self._timer = timer
        self._executor = executor
        self._partition_exists = partition_exists
        self._coordinator_epoch = coordinator_epoch

    def add_markers_to_send(self, prepared: TransactionMetadata) -> None:
        """Once `prepared` is in the log. Returns at once."""
        self._later(self.delay_ms, prepared, prepared.partitions)

    def _later(self, delay_ms: float, prepared: TransactionMetadata, partitions: frozenset[TopicPartition]) -> None:
        def submit() -> None:
            self._executor.submit(lambda: self._send(prepared, partitions))

        if delay_ms > 0:
            self._timer.after(delay_ms, submit)
        else:
            submit()

    def _send(self, prepared: TransactionMetadata, partitions: frozenset[TopicPartition]) -> None:
        if self._states.get(prepared.transactional_id) is not prepared:
            return  # it was completed
        failed = self._written(prepared, sorted(partitions))
        if GIVEN_UP.intersection(failed.values()):
            logger.error("No markers for the transaction of %r: %s", prepared.transactional_id, failed)
        elif failed:
            logger.info("Markers for the transaction of %r come later: %s", prepared.transactional_id, failed)
            self._later(RETRY_BACKOFF_MS, prepared, frozenset(failed))
        else:
            self._complete(prepared)

    def _written(self, prepared: TransactionMetadata, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Each by itself: a partition that cannot be written keeps no other from its end. Returns those that failed."""
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        epoch = self._coordinator_epoch(prepared.transactional_id)
        marker = EndTransactionMarker(prepared.producer_id, prepared.producer_epoch, committed, epoch)
        codes = {each: self._write_one(marker, each) for each in partitions}
        return {each: code for each, code in codes.items() if code is not ErrorCode.NONE}

    def _write_one(self, marker: EndTransactionMarker, partition: TopicPartition) -> ErrorCode:
        if not self._partition_exists(*partition):
            return ErrorCode.NONE  # deleted with its topic: nobody reads what the transaction wrote there
        try:
            self.write_markers(marker, [partition])
        except ApiException as error:
            return error.code
        except Exception:
            logger.exception("The marker of producer %d for %s-%d", marker.producer_id, *partition)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _complete(self, prepared: TransactionMetadata) -> None:
        try:
            with self._states.locked(prepared.transactional_id) as place:
                if place.metadata is prepared:
                    completed = prepared.completed(self._states.wall_ms())
                    self._states.append(place, completed)
                    logger.debug("The transaction of %r is over: %s", prepared.transactional_id, completed.state.name)
        except ApiException as error:
            logger.info("The end of the transaction of %r is stored later: %s", prepared.transactional_id, error)
            self._later(RETRY_BACKOFF_MS, prepared, frozenset())
