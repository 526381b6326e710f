"""A thread that serves requests, one at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from spark_kafka_sink.broker.network.idle_meter import IdleMeter
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.request_channel import RequestChannel

logger = logging.getLogger(__name__)

RECEIVE_TIMEOUT_S = 0.3


class KafkaRequestHandler:
    """Kafka's KafkaRequestHandler. Its thread owns all of it but `_stopped`, which `begin_shutdown` sets."""

    def __init__(self, name: str, channel: RequestChannel, handle: Callable[[Request], None]) -> None:
        self._channel = channel
        self._handle = handle
        self._stopped = False
        self.idle = IdleMeter()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def begin_shutdown(self) -> None:
        """It ends after the request that it serves."""
        self._stopped = True

    def _run(self) -> None:
        while not self._stopped:
            began = time.monotonic_ns()
            request = self._channel.receive_request(RECEIVE_TIMEOUT_S)
            received = time.monotonic_ns()
            if request is not None:
                request.times.dequeued = received
                self._serve(request)
            self.idle.record(received - began, time.monotonic_ns() - received)

    def _serve(self, request: Request) -> None:
        try:
            self._handle(request)
        except Exception:
            # KafkaApis answers every error; what gets here is one of its own, and the request would never be answered.
            logger.exception("%s failed outside of its handler", request)
            if not request.is_answered:
                request.close_connection()
        finally:
            request.times.handled = time.monotonic_ns()
