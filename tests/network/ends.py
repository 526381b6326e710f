"""A Selector and the far ends of its connections, with a clock that a test sets by hand; its sockets are real."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from spark_kafka_sink.errors import PeerError
from spark_kafka_sink.network.channel import Address, PlainChannel
from spark_kafka_sink.network.selector import PollResult, Selector
from tests.waiting import HOUR_MS, until

LIMIT = 1_000_000
IDLE_MS = HOUR_MS


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


class Ends:
    """A selector and the far ends of its connections, by connection id."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.selector = Selector(max_frame_size=LIMIT, max_idle_ms=IDLE_MS, clock=self.clock)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(60)
        self.far: dict[int, socket.socket] = {}

    def connecting(self, connection_id: int) -> socket.socket:
        address = Address(socket.AF_INET, self.listener.getsockname())
        self.selector.register(connection_id, PlainChannel.connect(address, send_buffer=50_000))
        self.far[connection_id], _ = self.listener.accept()
        self.far[connection_id].settimeout(60)
        return self.far[connection_id]

    def connected(self, connection_id: int = 1) -> socket.socket:
        far = self.connecting(connection_id)
        self.until(lambda result: connection_id in result.connected)
        return far

    def poll(self, timeout_ms: int = 0) -> PollResult:
        return self.selector.poll(timeout_ms)

    def until(self, reached: Callable[[PollResult], bool]) -> PollResult:
        return until(lambda: self.selector.poll(20), reached, "it did not come about")

    def lost(self) -> PeerError:
        (lost,) = self.until(lambda result: bool(result.disconnected)).disconnected
        assert not self.selector.can_send(lost.connection_id)
        return lost.error

    def close(self) -> None:
        self.selector.close()
        self.listener.close()
        for far in self.far.values():
            far.close()


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def received(result: PollResult) -> list[tuple[int, bytes]]:
    return [(connection_id, bytes(frame)) for connection_id, frame in result.received]


def reset(far: socket.socket) -> None:
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
