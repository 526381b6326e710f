"""Reports to the driver program from other processes of its machine: Spark plans and commits there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.spark.listener_address import ListenerAddress, send

logger = logging.getLogger(__name__)

# A commit waits for the answer, which takes below 1 ms unless the driver program is paused.
TIMEOUT_S: Final = 2.0
# After a report that took TIMEOUT_S. Without it a stream would wait as long for each commit.
RETRY_S: Final = 10.0


class DriverReports:
    """Sends reports. Rows are written or aborted by then, so a driver program that does not answer is not an error.

    Threads: any may send. `_lock` guards what is remembered of addresses, and is not held while a message is sent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocked: dict[ListenerAddress, float] = {}  # until when nothing is sent there
        self._warned: set[tuple[ListenerAddress, bytes]] = set()

    def send(
        self,
        address: ListenerAddress,
        kind: bytes,
        content: Callable[[], bytes],
        lost: str,
        level: int = logging.WARNING,
        *,
        is_urgent: bool = False,
    ) -> int | None:
        """Sends a message, and returns the answer; None if there is none. It never raises.

        Args:
            address: Where the driver program listens on this machine.
            kind: Of the message.
            content: Returns the content. It may raise.
            lost: What is logged if that fails, once until a message of this kind is answered again.
            level: With which it is logged.
            is_urgent: Whether it is sent also shortly after another message got no answer.
        """
        if not is_urgent and self._is_blocked(address):
            return None
        try:
            answer = send(address, kind, content(), TIMEOUT_S)
        except Exception as error:  # whatever it is, the rows are in Kafka
            with self._lock:
                is_new = (address, kind) not in self._warned
                self._warned.add((address, kind))
                if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
                    self._blocked[address] = time.monotonic() + RETRY_S
            if is_new:
                reason = f"{type(error).__name__}: {error}"
                logger.log(level, "%s: %s; this is not logged again until such a report arrives", lost, reason)
            return None
        with self._lock:
            self._warned.discard((address, kind))
            self._blocked.pop(address, None)
        return answer

    def _is_blocked(self, address: ListenerAddress) -> bool:
        with self._lock:
            return self._blocked.get(address, 0.0) > time.monotonic()


driver_reports: Final = DriverReports()
"""The instance of this process."""
