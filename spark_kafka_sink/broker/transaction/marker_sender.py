"""The thread that does the coordinator's own work: markers, timeouts, expiry."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)


class Executor(Protocol):
    def submit(self, run: Callable[[], None]) -> None:
        """Run it soon, on a thread that may wait for disks. From any thread, also under locks."""
        ...


class MarkerSender:
    """Runs what is submitted in its order, one after the other (Kafka's TxnMarkerSenderThread). What is submitted before
    `start` waits; after `stop` it is dropped."""

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
                _run(run)


def _run(run: Callable[[], None]) -> None:
    try:
        run()
    except Exception:
        logger.exception("Work of the transaction coordinator failed")
