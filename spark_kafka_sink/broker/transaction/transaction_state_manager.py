"""The transactional ids of all coordinators in this process, and their log (Kafka's TransactionStateManager)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.coordinator_log import CoordinatorLog, ReplayedRecord
from spark_kafka_sink.broker.transaction.transaction_log import key_of, read_key, read_value, value_of
from spark_kafka_sink.broker.transaction.transaction_metadata import TRANSACTION_VERSION_2, TransactionMetadata
from spark_kafka_sink.broker.transaction.transaction_state import IDLE
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client is told where the transaction log refuses an append; other codes as they are."""


class Transactional:
    """A transactional id's place. `metadata` is replaced whole, under `lock`, and may be read without it.

    is_unwritable: Kafka's transition that is pending for ever, see `append`.
    """

    __slots__ = ("is_unwritable", "lock", "metadata", "was_removed")

    def __init__(self, metadata: TransactionMetadata | None = None) -> None:
        self.lock = threading.Lock()
        self.metadata = metadata
        self.was_removed = False
        self.is_unwritable = False


class TransactionStateManager:
    """From any thread. Order of locks: that of one transactional id, then that of the dictionary or the log's own; never two
    ids at once, and none while markers are written or a request is answered."""

    def __init__(self, log: CoordinatorLog, wall_ms: Callable[[], int], transaction_version: int, expiration_ms: int) -> None:
        self.wall_ms = wall_ms
        self.transaction_version = transaction_version
        self._log = log
        self._expiration_ms = expiration_ms
        self._guard = threading.Lock()
        self._ids: dict[str, Transactional] = {}

    def load(self) -> None:
        """From the log, in place of what is known."""
        loaded: dict[str, Transactional] = {}
        for record in self._log.replay():
            if isinstance(record, ReplayedRecord):
                _replay(record, loaded)
        with self._guard:
            self._ids = loaded

    def every(self) -> list[TransactionMetadata]:
        with self._guard:
            places = list(self._ids.values())
        return [metadata for place in places if (metadata := place.metadata) is not None]

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        with self._guard:
            place = self._ids.get(transactional_id)
        return None if place is None else place.metadata

    @contextmanager
    def locked(self, transactional_id: str) -> Iterator[Transactional]:
        """The id's place, made if there is none; nobody else changes it meanwhile."""
        while True:
            with self._guard:
                place = self._ids.setdefault(transactional_id, Transactional())
            with place.lock:
                if place.was_removed:  # it expired between the two lines above
                    continue
                try:
                    yield place
                finally:
                    if place.metadata is None:
                        self._remove(transactional_id, place)
                return

    def append(self, place: Transactional, metadata: TransactionMetadata) -> None:
        """To the log, then into memory. Under the place's lock. Raises ApiException, and nothing has changed."""
        if metadata.client_version >= TRANSACTION_VERSION_2 and self.transaction_version == 0:
            # The log's version 0 has no field for it. Kafka throws while the transition is pending and never ends that: this
            # id answers CONCURRENT_TRANSACTIONS from then on, until the coordinator moves or starts again.
            place.is_unwritable = True
            text = "Attempted to write a non-default clientTransactionVersion at version 0"
            raise ApiException(ErrorCode.UNSUPPORTED_VERSION, text)
        identity = metadata.transactional_id
        self._write(identity, value_of(metadata, self.transaction_version))
        place.metadata = metadata

    def remove_expired(self) -> None:
        """Tombstones for ids that have not been used for `expiration_ms`."""
        for metadata in self.every():
            if self._is_expired(metadata):
                with self.locked(metadata.transactional_id) as place:
                    self._expire(place)

    def _expire(self, place: Transactional) -> None:
        metadata = place.metadata
        if metadata is None or not self._is_expired(metadata):
            return
        try:
            self._write(metadata.transactional_id, None)
        except ApiException as error:
            logger.warning("The expired transactional id %r is kept: %s", metadata.transactional_id, error)
        else:
            place.metadata = None

    def _is_expired(self, metadata: TransactionMetadata) -> bool:
        return metadata.state in IDLE and metadata.last_update_ms <= self.wall_ms() - self._expiration_ms

    def _write(self, transactional_id: str, value: bytes | None) -> None:
        partition = self._log.partition_for(transactional_id)
        try:
            self._log.append(partition, [(key_of(transactional_id), value)])
        except ApiException as error:
            raise ApiException(APPEND_ERRORS.get(error.code, error.code), error.message) from error

    def _remove(self, transactional_id: str, place: Transactional) -> None:
        with self._guard:
            place.was_removed = True
            if self._ids.get(transactional_id) is place:
                del self._ids[transactional_id]


def _replay(record: ReplayedRecord, into: dict[str, Transactional]) -> None:
    try:
        transactional_id = read_key(record.key)
        if record.value is None:
            into.pop(transactional_id, None)
        else:
            into[transactional_id] = Transactional(read_value(transactional_id, record.value))
    except (ProtocolError, UnsupportedVersionError) as error:
        where = f"__transaction_state-{record.partition} at {record.offset}"
        logger.warning("The record in %s is left out: %s", where, error)
