"""The bounded queue of requests between Processors and handlers, and the M threads that serve them (num.io.threads)."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from spark_kafka_sink.broker.network.request import Request

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.3


class RequestChannel:
    """The request queue (Kafka's RequestChannel). Every method may be called from any thread.

    A full queue makes the Processor with one more request wait. It reads no other connection in the meantime, which slows down
    the clients. `_room` guards `_waiting` and puts; gets need no lock.
    """

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        # Its get is written in C, so a waiting handler does not use the interpreter. The limit is checked here, because
        # SimpleQueue has none.
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting = 0
        self._closed = False

    def send_request(self, request: Request) -> bool:
        """Waits for room and adds a request. Returns False if there was none before `close`; the request is dropped."""
        with self._room:
            # Counted before the check, so a thread that makes room after it sees the waiter.
            self._waiting += 1
            while self._requests.qsize() >= self._max_requests and not self._closed:
                self._room.wait(_LOOK_AGAIN_S)
            self._waiting -= 1
            if self._closed:
                return False
            self._requests.put(request)
            return True

    def receive_request(self, timeout_s: float) -> Request | None:
        """Returns the next request; None if there is none in time or `wake_handlers` was called."""
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
        return self._waiting

    def wake_handlers(self, count: int) -> None:
        """Ends this many `receive_request` calls at once, regardless of the queue's limit."""
        for _ in range(count):
            self._requests.put(None)

    def close(self) -> None:
        """Ends all waits and accepts no more requests. Queued ones are dropped."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        while True:
            try:
                self._requests.get_nowait()
            except queue.Empty:
                return


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
