"""TLS over a TCP socket, for both ends: non-blocking handshakes, and records from many buffers."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final, NoReturn, Self

from spark_kafka_sink.network.channel import Buffer, Channel, PlainChannel
from spark_kafka_sink.network.tls_failures import CertificateInfo, FarEnd, broken, failure, is_no_tls

JOINED: Final = 128 * 1024
"""The maximum number of bytes per `SSLSocket.send`. Larger buffers are split, smaller ones are joined.

CPU per MB with AES-256-GCM, compared with one send per buffer: 500 x (61 B + 2,000 B) 1.0 instead of 7.4 ms,
1,000 x 100 B 2.5 instead of 36 ms, 64 x (100 B + 16,000 B) 0.5 instead of 0.75 ms, one buffer of 1 MiB 0.45 ms both ways.
Pieces of 16 KiB (one record) cost 1.8 ms in the first case. From 64 KiB to 1 MiB there is no difference. Encrypting into memory
(ssl.MemoryBIO) to send many records with one system call does not help either.
"""

_UNEXPECTED_MESSAGE: Final = bytes.fromhex("15 0303 0002 02 0a")
"""A record that holds a fatal alert."""


class TlsChannel:
    """A TLS connection. It starts on another channel's socket after that channel's handshake.

    It belongs to the thread that polls its selector.
    """

    def __init__(self, below: Channel, context: ssl.SSLContext, far: FarEnd) -> None:
        """Takes over `below`, connected or connecting. The far end is a broker if `far` has a host."""
        self.peer = below.peer
        self.read_needs: int = EVENT_READ
        self.write_needs: int = EVENT_WRITE
        self._below = below
        self._context = context
        self._far = far
        self._socket: ssl.SSLSocket | None = None
        self._interest: int = EVENT_WRITE
        self._is_established = False
        self._has_heard = False
        self._unsent: Buffer | None = None

    @classmethod
    def accept(cls, sock: socket.socket, peer: str, context: ssl.SSLContext) -> Self:
        """Returns the server's end of a connection that a listener accepted."""
        return cls(PlainChannel(sock, peer), context, FarEnd(peer))

    @property
    def interest(self) -> int:
        return self._below.interest if self._socket is None else self._interest

    def fileno(self) -> int:
        return self._below.fileno() if self._socket is None else self._socket.fileno()

    def finish_connect(self) -> bool:
        return self._below.finish_connect()

    # The handshake

    def handshake(self) -> bool:
        """Continues the handshake. Raises AuthenticationError for a failure that would recur, otherwise OSError."""
        if self._socket is None:
            if not self._below.handshake():
                return False
            self._socket = self._wrapped(self._below.detach())
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._interest = EVENT_READ
            return False
        except ssl.SSLWantWriteError:
            self._interest = EVENT_WRITE
            return False
        except ssl.SSLError as error:
            self._raise(error)
        self._is_established = True
        return True

    def _wrapped(self, sock: socket.socket) -> ssl.SSLSocket:
        # If the connection is already reset, wrap_socket would raise too, but leave a socket open.
        if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        sock.getpeername()
        far = self._far
        if not far.is_broker:
            return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        # A DNS name may end with a dot, and an IPv6 address may have a zone. Names in certificates have neither.
        name = far.host.partition("%")[0].removesuffix(".")
        try:
            return self._context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        except ValueError as error:  # UnicodeError is one
            raise OSError(f"{far.host!r} is not a valid host name for TLS: {error}") from error

    def _raise(self, error: ssl.SSLError) -> NoReturn:
        """Raises the error for a failure that happened before the far end sent its first bytes."""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            raise EOFError from error
        if not self._far.is_broker and is_no_tls(error):
            self._answer_stranger()
        raise failure(error, self._far, self._certificate()) from error

    def _answer_stranger(self) -> None:
        """Sends an alert to a client that does not speak TLS, as Java's broker does and OpenSSL does not."""
        assert self._socket is not None
        raw = socket.socket
        try:
            raw.send(self._socket, _UNEXPECTED_MESSAGE)
            raw.recv(self._socket, 65_536)  # closing with unread bytes would reset the connection
        except OSError:
            pass  # the stranger has gone: the failure of its handshake is reported anyway

    def _certificate(self) -> CertificateInfo | None:
        """Returns the far end's certificate, accepted or not. Only for error messages."""
        sock: Any = self._socket
        try:
            # After a failure, `getpeercert` is empty. SSLSocket.get_verified_chain, public in Python 3.13, returns bytes.
            info: CertificateInfo = sock._sslobj.get_verified_chain()[0].get_info()
        except (AttributeError, IndexError, TypeError, ValueError, OSError):  # private, so any Python may change it
            return None
        return info

    def peer_certificate(self) -> CertificateInfo | None:
        """Returns the far end's certificate, or None if there is none or it was not verified."""
        return self._socket.getpeercert() or None if self._socket is not None else None

    def protocol(self) -> str:
        """Returns the version that the handshake agreed on, such as "TLSv1.3"; empty before that."""
        return self._socket.version() or "" if self._socket is not None else ""

    # Bytes

    def recv_into(self, buffer: memoryview) -> int | None:
        sock = self._socket
        assert sock is not None
        try:
            count = sock.recv_into(buffer)
        except ssl.SSLWantReadError:
            self.read_needs = EVENT_READ
            return None
        except ssl.SSLWantWriteError:
            # A response to a key update must be sent first, but the socket is full.
            self.read_needs = EVENT_WRITE
            return None
        except ssl.SSLError as error:
            self._fail(error)
        self.read_needs = EVENT_READ
        self._has_heard = self._has_heard or count > 0
        return count

    def _fail(self, error: ssl.SSLError) -> NoReturn:
        # A TLS 1.3 server refuses a client's certificate after the client has completed its handshake.
        if not self._has_heard:
            self._raise(error)
        raise broken(error) from error

    def send(self, buffers: Sequence[Buffer]) -> int:
        sock = self._socket
        assert sock is not None
        # OpenSSL needs the same bytes again if it could not continue: Python does not set SSL_MODE_ENABLE_PARTIAL_WRITE, and
        # OpenSSL does not report how many bytes it has sent.
        data = self._unsent
        if data is None:
            data = self._unsent = joined(buffers)
        try:
            sent = sock.send(data)
        except ssl.SSLWantWriteError:
            self.write_needs = EVENT_WRITE
            return 0
        except ssl.SSLWantReadError:
            # In the middle of a handshake message, such as a session ticket.
            self.write_needs = EVENT_READ
            return 0
        except OSError as error:
            self._read_refusal()
            if isinstance(error, ssl.SSLEOFError):
                raise EOFError from error
            if isinstance(error, ssl.SSLError):
                self._fail(error)
            raise
        self._unsent = None
        self.write_needs = EVENT_WRITE
        return sent

    def _read_refusal(self) -> None:
        """Raises the far end's refusal if it closed the connection with one."""
        if not self._has_heard:
            try:
                self.recv_into(memoryview(bytearray(1)))
            except (OSError, EOFError):
                pass  # there is no refusal; the caller raises its own error

    def has_buffered_bytes(self) -> bool:
        return self._socket is not None and self._socket.pending() > 0

    def detach(self) -> socket.socket:
        return self._below.detach() if self._socket is None else self._socket

    def close(self) -> None:
        """Closes the connection, after a close_notify if it can be sent now. It never waits for the other end's."""
        sock = self._socket
        if sock is None:
            self._below.close()
            return
        # Nothing else can be sent in the middle of a record.
        if self._is_established and self._unsent is None:
            try:
                sock.unwrap()
            except (OSError, ValueError):
                pass  # the other end has not answered, has gone, or has sent more, which no longer matters
        sock.close()


def joined(buffers: Sequence[Buffer]) -> Buffer:
    """Returns the first bytes of `buffers` as one piece of at most JOINED bytes, without a copy if the first buffer suffices."""
    first = buffers[0]
    if len(first) >= JOINED:
        return memoryview(first)[:JOINED]
    size = 0
    for count, buffer in enumerate(buffers):
        size += len(buffer)
        if size > JOINED:
            pieces = [*buffers[:count], memoryview(buffer)[: JOINED - size]]
            return b"".join(pieces)
    return first if len(buffers) == 1 else b"".join(buffers)
