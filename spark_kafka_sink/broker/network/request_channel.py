"""Between the Processors and the handlers: one bounded queue of requests. Answers go straight to their Processor."""

from __future__ import annotations

import queue
import threading

from spark_kafka_sink.broker.network.request import Request

_LOOK_AGAIN_S = 0.3


class RequestChannel:
    """Kafka's RequestChannel. Every method may be called from any thread.

    A full queue makes the Processor wait that has one more request, and no other request of its connections is read meanwhile:
    that is how the clients come to feel it. `_room` guards `_waiting` and who puts; taking needs no lock.
    """

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        # Its get is C: a handler costs no interpreter while it waits. The bound is ours, because SimpleQueue has none.
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting = 0
        self._closed = False

    def send_request(self, request: Request) -> bool:
        """Waits for room. False if there was none before `close`: the request is dropped."""
        with self._room:
            # Counted before it looks: who makes room after that look sees that somebody waits.
            self._waiting += 1
            while self._requests.qsize() >= self._max_requests and not self._closed:
                self._room.wait(_LOOK_AGAIN_S)
            self._waiting -= 1
            if self._closed:
                return False
            self._requests.put(request)
            return True

    def receive_request(self, timeout_s: float) -> Request | None:
        """The next one, or None if there is none in time or `wake_handlers` was called."""
        try:
            request = self._requests.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if self._waiting:
            with self._room:
                self._room.notify()
        return request

    def request_queue_size(self) -> int:
        return self._requests.qsize()

    def blocked_senders(self) -> int:
        """Processors that wait for room."""
        return self._waiting

    def wake_handlers(self, count: int) -> None:
        """Let so many `receive_request` end at once, whatever the queue's bound."""
        for _ in range(count):
            self._requests.put(None)

    def close(self) -> None:
        """Nobody waits any more, and no request is taken; those in the queue are dropped."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        while True:
            try:
                self._requests.get_nowait()
            except queue.Empty:
                return
