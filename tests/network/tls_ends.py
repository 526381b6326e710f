"""A TlsChannel and a real server of the ssl module at the two ends of a TCP connection, in one thread."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from selectors import EVENT_READ, EVENT_WRITE

from spark_kafka_sink.network.channel import Channel, PlainChannel
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.network.tls_failures import FarEnd
from tests.security.certificates import Certificates

DEADLINE_S = 60


def tcp_pair(buffer_size: int = 0) -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets that do not block. buffer_size: of each socket's buffers, 0 for the system's choice."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.socket()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF) if buffer_size else ():
            near.setsockopt(socket.SOL_SOCKET, option, buffer_size)
            listener.setsockopt(socket.SOL_SOCKET, option, buffer_size)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    far.setblocking(False)
    return near, far


def client_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificates.authority.chain_pem)
    return context


class TlsEnds:
    """near: the channel. far: the server's socket, None if it is given none. Both take turns, so nothing waits for a thread."""

    def __init__(
        self,
        client: ssl.SSLContext,
        server: ssl.SSLContext | None,
        *,
        host: str = "localhost",
        shows_certificate: bool = False,
        buffer_size: int = 0,
    ) -> None:
        near, self.far_socket = tcp_pair(buffer_size)
        peer = "{}:{}".format(*near.getpeername())
        far = FarEnd(peer, host, 9093, shows_certificate)
        self.near = TlsChannel(PlainChannel(near, peer), client, far)
        self.far: ssl.SSLSocket | None = None
        self.far_error: OSError | None = None
        if server is not None:
            self.far = server.wrap_socket(self.far_socket, server_side=True, do_handshake_on_connect=False)
            self.far_socket = self.far

    def shake_hands(self) -> None:
        """Goes through the handshake of both. Raises what the channel raises; the server's error is kept."""
        near_done = far_done = False
        while not near_done or not (far_done or self.far_error):
            near_done = near_done or self.near.handshake()
            if self.far is not None and not far_done and self.far_error is None:
                try:
                    self.far.do_handshake()
                    far_done = True
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
                except OSError as error:
                    self.far_error = error
                    self.far.close()

    def read(self, size: int) -> bytes:
        """Reads so many bytes at the channel."""
        got = bytearray()
        while len(got) < size:
            piece = bytearray(size - len(got))
            count = self.near.recv_into(memoryview(piece))
            if count is None:
                wait(self.near, self.near.read_needs)
                continue
            assert count, f"the stream ended after {len(got)} bytes"
            got += piece[:count]
        return bytes(got)

    def far_read(self, size: int) -> bytes:
        """Reads so many bytes at the server."""
        assert self.far is not None
        got = bytearray()
        while len(got) < size:
            try:
                piece = self.far.recv(size - len(got))
            except ssl.SSLWantReadError:
                wait(self.far, EVENT_READ)
                continue
            assert piece, f"the stream ended after {len(got)} bytes"
            got += piece
        return bytes(got)

    def close(self) -> None:
        self.near.close()
        with contextlib.suppress(OSError):  # it was closed or reset
            self.far_socket.close()


def wait(end: Channel | socket.socket, event: int) -> None:
    """Waits until an end is ready for EVENT_READ or EVENT_WRITE."""
    readable = [end] if event & EVENT_READ else []
    writable = [end] if event & EVENT_WRITE else []
    assert any(select.select(readable, writable, [], DEADLINE_S)), "nothing came in time"
