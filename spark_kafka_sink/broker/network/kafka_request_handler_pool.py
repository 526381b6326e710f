"""The M threads that serve requests (num.io.threads)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.request_channel import RequestChannel

logger = logging.getLogger(__name__)

RECEIVE_TIMEOUT_S = 0.3
JOIN_TIMEOUT_S = 10.0


class KafkaRequestHandlerPool:
    """Runs the handler threads (Kafka's KafkaRequestHandlerPool). They call `handle` (KafkaApis.handle) concurrently."""

    def __init__(self, node_id: int, channel: RequestChannel, handle: Callable[[Request], None], threads: int) -> None:
        self._channel = channel
        self._handle = handle
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"kafka-request-handler-{node_id}-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = JOIN_TIMEOUT_S) -> bool:
        """Waits for requests in progress. Returns whether all ended in time. Queued requests are left."""
        self._stopped.set()
        self._channel.wake_handlers(len(self._threads))
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while not self._stopped.is_set():
            request = self._channel.receive_request(RECEIVE_TIMEOUT_S)
            if request is None:
                continue
            try:
                self._handle(request)
            except Exception:
                # KafkaApis answers every error. One that gets here is its own, and its request would never be answered.
                logger.exception("%s failed outside of its handler", request)
                if not request.is_answered:
                    request.close_connection()
