"""The loopback listener that tells the driver program what Spark's commit process did: committed reports, refused commits."""

from __future__ import annotations

import hmac
import logging
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.report_bytes import report_from_bytes, report_to_bytes

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# A report takes about 10 bytes a topic-partition: room for more of them than Kafka clusters have.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# For one message, of which one is served at a time. A sender has patience for a silent peer before it.
RECEIVE_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 3 * RECEIVE_TIMEOUT_S

_LENGTH = struct.Struct(">I")
_TOKEN_BYTES = 32
_DONE = b"\x01"

# What a message says, in its first byte after the token.
_COMMITTED = b"C"
_REFUSED = b"R"


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Where a report goes, and the token that lets it in, which must never be printed."""

    port: int
    token: str = field(repr=False)


class CommitListener:
    """Hands each report that comes in with the right token to `on_report`, and calls `on_refusal` for each refused commit.

    Threads: one daemon thread owns the sockets and calls both; `stop()` may be called from any thread and waits for it.
    A message is length, token, kind and, for a report, its bytes; the token is checked before the rest is read, and nothing is
    ever unpickled.
    """

    def __init__(self, on_report: Callable[[DeliveryReport], None], on_refusal: Callable[[], None]) -> None:
        self._on_report = on_report
        self._on_refusal = on_refusal
        self._server = socket.create_server((LOOPBACK, 0))
        self._stopper, self._stopped = socket.socketpair()
        self.address = ListenerAddress(self._server.getsockname()[1], secrets.token_hex(_TOKEN_BYTES // 2))
        self._thread = threading.Thread(target=self._serve, name="kafka-sink-commit-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port; a second call does nothing."""
        self._stopper.close()
        self._thread.join(RECEIVE_TIMEOUT_S + 1)

    def _serve(self) -> None:
        with self._server, self._stopped, selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while all(key.fileobj is self._server for key, _ in selector.select()):
                self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
            with connection:
                self._receive(connection)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("a message to the commit listener was refused: %s: %s", type(error).__name__, error)

    def _receive(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + RECEIVE_TIMEOUT_S
        (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size, deadline))
        if not _TOKEN_BYTES < length <= MAX_MESSAGE_BYTES:
            raise ValueError(f"its length is {length}")
        if not hmac.compare_digest(_read(connection, _TOKEN_BYTES, deadline), self.address.token.encode()):
            raise ValueError("its token is wrong")
        kind = _read(connection, len(_COMMITTED), deadline)
        self._hand_over(kind, _read(connection, length - _TOKEN_BYTES - len(kind), deadline))
        connection.sendall(_DONE)

    def _hand_over(self, kind: bytes, body: bytes) -> None:
        if kind == _COMMITTED:
            self._on_report(report_from_bytes(body))
        elif kind == _REFUSED and not body:
            self._on_refusal()
        else:
            raise ValueError(f"its kind is {kind!r}, with {len(body)} bytes")


def send_report(address: ListenerAddress, report: DeliveryReport) -> None:
    """Bring a report to the listener. Raises OSError when it is not there, or does not say that it has it."""
    _send(address, _COMMITTED, report_to_bytes(report))


def send_refusal(address: ListenerAddress) -> None:
    """Tell the listener that a commit was refused. Raises OSError as `send_report` does."""
    _send(address, _REFUSED, b"")


def _send(address: ListenerAddress, kind: bytes, content: bytes) -> None:
    body = address.token.encode() + kind + content
    if len(body) > MAX_MESSAGE_BYTES:
        raise OSError(f"the message takes {len(body)} bytes, more than {MAX_MESSAGE_BYTES}")
    deadline = time.monotonic() + SEND_TIMEOUT_S
    with socket.create_connection((LOOPBACK, address.port), timeout=SEND_TIMEOUT_S) as connection:
        connection.sendall(_LENGTH.pack(len(body)) + body)
        _read(connection, len(_DONE), deadline)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Exactly `size` bytes; OSError when they do not come by `deadline`, in seconds of the monotonic clock."""
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed in the middle of a message")
        data += part
    return bytes(data)
