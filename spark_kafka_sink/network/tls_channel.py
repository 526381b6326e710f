"""TLS over one connection, as a Channel: decrypted bytes in and out, a handshake before the first frame."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final, Self

from spark_kafka_sink.network.channel import Buffer

_RECORD: Final = 16 * 1024
"""The most plain bytes that one TLS record takes."""


class TlsChannel:
    """A TCP socket with TLS. Failures, those of the handshake among them, are OSError (ssl.SSLError is one)."""

    def __init__(self, sock: ssl.SSLSocket, peer: str) -> None:
        self._socket = sock
        self.peer = peer
        self.interest = EVENT_READ

    @classmethod
    def accept(cls, sock: socket.socket, peer: str, context: ssl.SSLContext) -> Self:
        """Begins the server's side on a connection that a listener has accepted. Nothing is sent or read yet."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return cls(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), peer)

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> bool:
        return True

    def handshake(self) -> bool:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.interest = EVENT_READ
            return False
        except ssl.SSLWantWriteError:
            self.interest = EVENT_WRITE
            return False
        return True

    def peer_certificate(self) -> dict[str, Any] | None:
        """Returns what the peer's certificate says, as `ssl.SSLSocket.getpeercert` does; None without one that was verified."""
        return self._socket.getpeercert() or None

    def recv_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def send(self, buffers: Sequence[Buffer]) -> int:
        taken: list[Buffer] = []
        size = 0
        for buffer in buffers:
            taken.append(buffer)
            size += len(buffer)
            if size >= _RECORD:
                break
        try:
            return self._socket.send(taken[0] if len(taken) == 1 else b"".join(taken))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def has_buffered_bytes(self) -> bool:
        return self._socket.pending() > 0

    def close(self) -> None:
        self._socket.close()
