"""Disks that are full and transaction markers that come late."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.metadata_image import NO_LEADER, MetadataImage
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.broker.faults.scope import Scope
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.transaction.transaction_marker_channel_manager import WriteMarkers
from spark_kafka_sink.protocol.error_codes import ErrorCode


class StorageFaults:
    """Asked by whoever appends or ends transactions. `_changed` guards who replaces the tuples, which are replaced whole."""

    def __init__(self, changed: threading.Condition, image: Callable[[], MetadataImage]) -> None:
        self._changed = changed
        self._image = image
        self._full: tuple[tuple[Scope, Fault], ...] = ()
        self._held: tuple[Fault, ...] = ()

    def fill(self, scope: Scope, fault: Fault) -> None:
        with self._changed:
            self._full = (*self._full, (scope, fault))

    def hold_markers(self, fault: Fault) -> None:
        with self._changed:
            self._held = (*self._held, fault)

    def remove(self, fault: Fault) -> None:
        with self._changed:
            self._full = tuple(kept for kept in self._full if kept[1] is not fault)
            self._held = tuple(kept for kept in self._held if kept is not fault)

    def check_disk(self, topic: str, index: int, size: int) -> None:
        """Before each append. Raises OSError, of which the log makes KAFKA_STORAGE_ERROR."""
        if not self._full:
            return
        state = self._image().partition(topic, index)
        leader = NO_LEADER if state is None else state.leader
        if any(scope.is_about(leader, topic) and fault.hit() for scope, fault in self._full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{topic}-{index}")

    def holding(self, write: WriteMarkers) -> WriteMarkers:
        """`write`, that fails while markers are held: the coordinator tries again until they are not."""

        def write_or_hold(marker: EndTransactionMarker, partitions: Sequence[tuple[str, int]]) -> None:
            if any(fault.hit() for fault in self._held):
                raise ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER, "transaction markers are held by a test")
            write(marker, partitions)

        return write_or_hold
