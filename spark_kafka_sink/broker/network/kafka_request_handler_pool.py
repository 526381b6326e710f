"""The M threads that serve requests (num.io.threads)."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.broker.network.kafka_request_handler import KafkaRequestHandler
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.request_channel import RequestChannel

JOIN_TIMEOUT_S = 10.0


class KafkaRequestHandlerPool:
    """Kafka's KafkaRequestHandlerPool. `handle` is called by all of its threads at once: KafkaApis.handle."""

    def __init__(self, node_id: int, channel: RequestChannel, handle: Callable[[Request], None], threads: int) -> None:
        self._channel = channel
        self._handlers = [
            KafkaRequestHandler(f"kafka-request-handler-{node_id}-{number}", channel, handle) for number in range(threads)
        ]

    def start(self) -> None:
        for handler in self._handlers:
            handler.thread.start()

    def stop(self, timeout_s: float = JOIN_TIMEOUT_S) -> bool:
        """Waits for the requests that are being served; whether all ended in time. Those in the queue are left."""
        for handler in self._handlers:
            handler.begin_shutdown()
        self._channel.wake_handlers(len(self._handlers))
        for handler in self._handlers:
            if handler.thread.ident is not None:
                handler.thread.join(timeout_s)
        return not any(handler.thread.is_alive() for handler in self._handlers)

    def idle_ratio(self) -> float:
        """Kafka's RequestHandlerAvgIdlePercent, 0 to 1."""
        return sum(handler.idle.ratio() for handler in self._handlers) / len(self._handlers)
