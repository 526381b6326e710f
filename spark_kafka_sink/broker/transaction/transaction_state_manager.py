"""The transactional ids of all coordinators in this process, and their log (Kafka's TransactionStateManager, TransactionLog)."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.coordinator_log import CoordinatorLog, ReplayedRecord
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    IDLE,
    PENDING,
    TRANSACTION_VERSION_2,
    TransactionMetadata,
    TransactionState,
)
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol import internal_topics
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Buffer

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
"""The client's error code if the transaction log refuses an append; other codes are passed on."""


_STORED = IDLE | PENDING | {TransactionState.ONGOING}


def key_of(transactional_id: str) -> bytes:
    return internal_topics.TRANSACTION_LOG_KEY.encode(internal_topics.TransactionLogKey(transactional_id))


def value_of(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """Returns the record. `transaction_version`: the cluster's finalized feature; from 1 on the record has tagged fields.

    Kafka 4.1 reads the previous and the next producer id but does not write them. A restart at the wrong moment loses the id
    given to a producer whose epochs ran out. Here both are written.
    """
    by_topic = itertools.groupby(sorted(metadata.partitions), key=lambda each: each.topic)
    value = internal_topics.TransactionLogValue(
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state,
        None
        if metadata.state is TransactionState.EMPTY
        else [internal_topics.PartitionsSchema(topic, [each.partition for each in partitions]) for topic, partitions in by_topic],
        metadata.last_update_ms,
        metadata.start_ms,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.client_version,
    )
    return internal_topics.TRANSACTION_LOG_VALUE.encode(value, min(transaction_version, 1))


def read_value(transactional_id: str, data: Buffer) -> TransactionMetadata:
    """Returns the state. Raises ProtocolError or UnsupportedVersionError if the value is invalid.

    The last epoch is not stored, as in Kafka: after a restart, its retry is fenced.
    """
    value = internal_topics.TRANSACTION_LOG_VALUE.decode(data)
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
        partitions=frozenset(
            TopicPartition(each.topic, int(partition))
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


class TransactionSlot:
    """The slot of a transactional id. `metadata` is replaced as a whole, under `lock`, and may be read without it.

    is_unwritable: Kafka's transition that is pending forever, see `append`.
    """

    __slots__ = ("is_unwritable", "lock", "metadata", "was_removed")

    def __init__(self, metadata: TransactionMetadata | None = None) -> None:
        self.lock = threading.Lock()
        self.metadata = metadata
        self.was_removed = False
        self.is_unwritable = False


class TransactionStateManager:
    """Stores transactional ids. Any thread may call it.

    Lock order: the lock of one transactional id, then the lock of the dictionary or the log. No thread holds two ids at once,
    or any while markers are written or a request is answered.
    """

    def __init__(self, log: CoordinatorLog, wall_ms: Callable[[], int], transaction_version: int, expiration_ms: int) -> None:
        self.wall_ms = wall_ms
        self.transaction_version = transaction_version
        self._log = log
        self._expiration_ms = expiration_ms
        self._guard = threading.Lock()
        self._ids: dict[str, TransactionSlot] = {}

    def load(self) -> None:
        """Loads the states from the log, in place of the current ones."""
        loaded: dict[str, TransactionSlot] = {}
        for record in self._log.replay():
            if not isinstance(record, ReplayedRecord):
                continue
            try:
                transactional_id = internal_topics.TRANSACTION_LOG_KEY.decode(record.key).transactional_id
                if record.value is None:
                    loaded.pop(transactional_id, None)
                else:
                    loaded[transactional_id] = TransactionSlot(read_value(transactional_id, record.value))
            except (ProtocolError, UnsupportedVersionError) as error:
                where = f"__transaction_state-{record.partition} at {record.offset}"
                logger.warning("Skipped the record in %s: %s", where, error)
        with self._guard:
            self._ids = loaded

    def every(self) -> list[TransactionMetadata]:
        with self._guard:
            slots = list(self._ids.values())
        return [metadata for slot in slots if (metadata := slot.metadata) is not None]

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        with self._guard:
            slot = self._ids.get(transactional_id)
        return None if slot is None else slot.metadata

    @contextmanager
    def locked(self, transactional_id: str) -> Iterator[TransactionSlot]:
        """Holds the lock of the id's slot, which is created if needed."""
        while True:
            with self._guard:
                slot = self._ids.setdefault(transactional_id, TransactionSlot())
            with slot.lock:
                if slot.was_removed:  # it expired between the two lines above
                    continue
                try:
                    yield slot
                finally:
                    if slot.metadata is None:
                        with self._guard:
                            slot.was_removed = True
                            if self._ids.get(transactional_id) is slot:
                                del self._ids[transactional_id]
                return

    def append(self, slot: TransactionSlot, metadata: TransactionMetadata) -> None:
        """Appends to the log, then changes the memory. Call it under the slot's lock. Raises ApiException without a change."""
        if metadata.client_version >= TRANSACTION_VERSION_2 and self.transaction_version == 0:
            # The log's version 0 has no field for it. Kafka throws while the transition is pending and never ends that: this id
            # gets CONCURRENT_TRANSACTIONS from then on, until the coordinator moves or restarts.
            slot.is_unwritable = True
            text = "Attempted to write a non-default clientTransactionVersion at version 0"
            raise ApiException(ErrorCode.UNSUPPORTED_VERSION, text)
        identity = metadata.transactional_id
        self._write(identity, value_of(metadata, self.transaction_version))
        slot.metadata = metadata

    def remove_expired(self) -> None:
        """Appends tombstones for ids that have not been used for `expiration_ms`."""
        for stale in filter(self._is_expired, self.every()):
            with self.locked(stale.transactional_id) as slot:
                if slot.metadata is None or not self._is_expired(slot.metadata):
                    continue
                try:
                    self._write(stale.transactional_id, None)
                    slot.metadata = None
                except ApiException as error:
                    logger.warning("Could not expire the transactional id %r: %s", stale.transactional_id, error)

    def _is_expired(self, metadata: TransactionMetadata) -> bool:
        return metadata.state in IDLE and metadata.last_update_ms <= self.wall_ms() - self._expiration_ms

    def _write(self, transactional_id: str, value: bytes | None) -> None:
        partition = self._log.partition_for(transactional_id)
        try:
            self._log.append(partition, [(key_of(transactional_id), value)])
        except ApiException as error:
            raise ApiException(APPEND_ERRORS.get(error.code, error.code), error.message) from error
