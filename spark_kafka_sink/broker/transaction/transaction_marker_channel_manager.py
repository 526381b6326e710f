"""Writes the markers of a decided outcome to every partition, then completes it (Kafka's TransactionMarkerChannelManager)."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.broker.transaction.transaction_metadata import TransactionMetadata, TransactionState
from spark_kafka_sink.broker.transaction.transaction_state_manager import TransactionStateManager
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


WriteMarkers = Callable[[EndTransactionMarker, Sequence[tuple[str, int]]], None]
"""Writes the marker to these partitions. Raises ApiException if a log accepts none now.

It may be called again for partitions that have the marker, which must be harmless.
"""

RETRY_BACKOFF_MS: Final = 100.0

GIVEN_UP: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A producer with a higher epoch is active. The transaction is unchanged until the next start. All other errors are retried."""


class MarkerSender:
    """Runs submitted work in order on one thread (Kafka's TxnMarkerSenderThread).

    Work submitted before `start` waits; after `stop` it is dropped.
    """

    def __init__(self, name: str = "TxnMarkerSenderThread") -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def submit(self, run: Callable[[], None]) -> None:
        if not self._stopped.is_set():
            self._work.put(run)

    def stop(self, timeout_s: float = 10.0) -> None:
        self._stopped.set()
        self._work.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _loop(self) -> None:
        while not self._stopped.is_set():
            try:
                run = self._work.get(timeout=60.0)
            except queue.Empty:
                continue
            if run is not None:
                try:
                    run()
                except Exception:
                    logger.exception("A task of the transaction coordinator failed")


Submit = Callable[[Callable[[], None]], None]
"""Runs work soon, on a thread that may wait for disks (`MarkerSender.submit`). Called from any thread, even under locks."""


@dataclass(frozen=True, slots=True)
class MarkerRoute:
    """The route of markers to their partitions.

    write: see WriteMarkers. partition_exists: by topic and index. coordinator_epoch: the leader epoch of a transactional id's
    partition of the transaction log, which is part of markers.
    """

    submit: Submit
    write: WriteMarkers
    partition_exists: Callable[[str, int], bool]
    coordinator_epoch: Callable[[str], int] = lambda transactional_id: 0


class TransactionMarkerChannelManager:
    """Sends markers. It keeps no state: pending work is in the state manager, and finished work in the logs.

    delay_ms: the time from the response to an EndTxn until the markers are written; 0 is as soon as possible, and in Kafka it
    takes some milliseconds. In the meantime clients get CONCURRENT_TRANSACTIONS, and readers of committed records wait. May be
    set at any time.
    """

    def __init__(self, states: TransactionStateManager, timer: Timer, route: MarkerRoute) -> None:
        self.delay_ms = 0.0
        self._states = states
        self._timer = timer
        self._route = route

    def add_markers_to_send(self, prepared: TransactionMetadata) -> None:
        """Sends the markers of `prepared`, which must be in the log. Returns at once."""
        self._later(self.delay_ms, prepared, prepared.partitions)

    def _later(self, delay_ms: float, prepared: TransactionMetadata, partitions: frozenset[TopicPartition]) -> None:
        def submit() -> None:
            self._route.submit(lambda: self._send(prepared, partitions))

        if delay_ms > 0:
            self._timer.after(delay_ms, submit)
        else:
            submit()

    def _send(self, prepared: TransactionMetadata, partitions: frozenset[TopicPartition]) -> None:
        if self._states.get(prepared.transactional_id) is not prepared:
            return  # already completed
        failed = self._written(prepared, sorted(partitions))
        if GIVEN_UP.intersection(failed.values()):
            logger.error("Gave up on the markers of the transaction of %r: %s", prepared.transactional_id, failed)
        elif failed:
            logger.info("Markers of the transaction of %r will be retried: %s", prepared.transactional_id, failed)
            self._later(RETRY_BACKOFF_MS, prepared, frozenset(failed))
        else:
            self._complete(prepared)

    def _written(self, prepared: TransactionMetadata, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Writes the markers one by one, so a failing partition does not block the others. Returns the failed ones."""
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        epoch = self._route.coordinator_epoch(prepared.transactional_id)
        marker = EndTransactionMarker(prepared.producer_id, prepared.producer_epoch, committed, epoch)
        failed: dict[TopicPartition, ErrorCode] = {}
        for each in partitions:
            if not self._route.partition_exists(*each):
                continue  # deleted with its topic: its records can no longer be read
            try:
                self._route.write(marker, [each])
            except ApiException as error:
                failed[each] = error.code
            except Exception:
                logger.exception("Could not write the marker of producer %d to %s-%d", marker.producer_id, *each)
                failed[each] = ErrorCode.UNKNOWN_SERVER_ERROR
        return failed

    def _complete(self, prepared: TransactionMetadata) -> None:
        try:
            with self._states.locked(prepared.transactional_id) as slot:
                if slot.metadata is prepared:
                    completed = prepared.completed(self._states.wall_ms())
                    self._states.append(slot, completed)
                    logger.debug("The transaction of %r is complete: %s", prepared.transactional_id, completed.state.name)
        except ApiException as error:
            logger.info("Storing the end of the transaction of %r will be retried: %s", prepared.transactional_id, error)
            self._later(RETRY_BACKOFF_MS, prepared, frozenset())
