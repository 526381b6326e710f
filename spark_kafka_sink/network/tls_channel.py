"""TLS over a TCP socket, for both ends: a non-blocking handshake, records out of many buffers, sessions that are resumed."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final, NoReturn, Self

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import Buffer, Channel, PlainChannel
from spark_kafka_sink.network.tls_failures import CertificateInfo, FarEnd, alert_of, broken, failure, is_no_tls

JOINED: Final = 128 * 1024
"""Bytes that one `SSLSocket.send` is given at most. Larger buffers are sent in such pieces, smaller ones are joined.

Measured as CPU per MB, AES-256-GCM, against one send for each buffer: 500 x (61 B + 2,000 B) 1.0 instead of 7.4 ms,
1,000 x 100 B 2.5 instead of 36 ms, 64 x (100 B + 16,000 B) 0.5 instead of 0.75 ms, one buffer of 1 MiB 0.45 ms both ways.
16 KiB, one record, costs 1.8 ms in the first case; from 64 KiB to 1 MiB there is no difference. Nor does it help to encrypt
into memory (ssl.MemoryBIO) and send many records by one system call.
"""

MAX_SESSIONS: Final = 256

_UNEXPECTED_MESSAGE: Final = bytes.fromhex("15 0303 0002 02 0a")
"""A fatal alert as a record of its own."""


class TlsSessions:
    """Sessions to resume, by broker. They belong to one SSLContext; any thread may use them.

    A session is used once (RFC 8446, appendix C.4). A server that cannot resume it therefore breaks one attempt at most.
    """

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, int], ssl.SSLSession] = {}

    def take(self, host: str, port: int) -> ssl.SSLSession | None:
        return self._sessions.pop((host, port), None)

    def put(self, host: str, port: int, session: ssl.SSLSession) -> None:
        # Each step is one operation of a dict, so that threads need no lock, which a fork could copy while it is held.
        self._sessions[host, port] = session
        for oldest in list(self._sessions)[:-MAX_SESSIONS]:
            self._sessions.pop(oldest, None)


class TlsChannel:
    """A connection inside TLS. It starts on another channel's socket when that one's handshake is done.

    Owned by the thread that polls its selector.
    """

    def __init__(self, below: Channel, context: ssl.SSLContext, far: FarEnd, sessions: TlsSessions | None = None) -> None:
        """Takes over `below`, connected or connecting. The far end is a broker unless `far` names no host."""
        self.peer = below.peer
        self.read_needs: int = EVENT_READ
        self.write_needs: int = EVENT_WRITE
        self._below = below
        self._context = context
        self._far = far
        self._sessions = sessions
        self._socket: ssl.SSLSocket | None = None
        self._interest: int = EVENT_WRITE
        self._is_resuming = False
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
        """Goes on with the handshake. Raises AuthenticationError for what fails again with the same settings, else OSError."""
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
        # A connection that is reset already: wrap_socket would raise too, and leave a socket open.
        if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        sock.getpeername()
        far = self._far
        if not far.is_broker:
            return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        session = self._sessions.take(far.host, far.port) if self._sessions is not None else None
        self._is_resuming = session is not None
        # A name in DNS may end with a dot, and an IPv6 address may have a zone; those in certificates do not.
        name = far.host.partition("%")[0].removesuffix(".")
        try:
            return self._context.wrap_socket(sock, server_hostname=name, session=session, do_handshake_on_connect=False)
        except ValueError as error:  # UnicodeError is one
            raise OSError(f"{far.host!r} is not a valid host name for TLS: {error}") from error

    def _raise(self, error: ssl.SSLError) -> NoReturn:
        """Raises what a failure means that came before the far end proved that it takes part, by its first bytes."""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            raise EOFError from error
        if not self._far.is_broker and is_no_tls(error):
            self._answer_stranger()
        meant = failure(error, self._far, self._certificate())
        if self._is_resuming and isinstance(meant, AuthenticationError) and alert_of(error):
            # The earlier session may be what it does not like: the next attempt has none, and tells.
            meant = OSError(f"the broker refused to resume a TLS session: {meant.message}")
        raise meant from error

    def _answer_stranger(self) -> None:
        """Tells a client that does not speak TLS that this end does, as Java's broker does and OpenSSL does not."""
        assert self._socket is not None
        raw = socket.socket
        try:
            raw.send(self._socket, _UNEXPECTED_MESSAGE)
            raw.recv(self._socket, 65_536)  # with bytes that nobody has read, closing would be a reset
        except OSError:
            pass

    def _certificate(self) -> CertificateInfo | None:
        """Returns the far end's certificate, accepted or not. Only for texts."""
        sock: Any = self._socket
        try:
            # After a failure `getpeercert` has nothing. SSLSocket.get_verified_chain, public in Python 3.13, gives only bytes.
            info: CertificateInfo = sock._sslobj.get_verified_chain()[0].get_info()
        except (AttributeError, IndexError, TypeError, ValueError, OSError):
            return None
        return info

    def peer_certificate(self) -> CertificateInfo | None:
        """Returns the far end's certificate; None without one, or if it was not verified."""
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
            # An answer to a key update has to go out first, and the socket is full.
            self.read_needs = EVENT_WRITE
            return None
        except ssl.SSLError as error:
            self._fail(error)
        self.read_needs = EVENT_READ
        if not self._has_heard:
            self._has_heard = count > 0
            self._keep_session(sock)
        return count

    def _keep_session(self, sock: ssl.SSLSocket) -> None:
        # With TLS 1.3 tickets follow the handshake, and are here when the first bytes are.
        session = sock.session if self._sessions is not None and self._far.is_broker else None
        if session is not None and self._sessions is not None and (session.has_ticket or session.id):
            self._sessions.put(self._far.host, self._far.port, session)

    def _fail(self, error: ssl.SSLError) -> NoReturn:
        # A server of TLS 1.3 refuses a client's certificate when the client's handshake is done already.
        if not self._has_heard:
            self._raise(error)
        raise broken(error) from error

    def send(self, buffers: Sequence[Buffer]) -> int:
        sock = self._socket
        assert sock is not None
        # OpenSSL wants the same bytes again after it could not go on: Python does not set SSL_MODE_ENABLE_PARTIAL_WRITE, and what
        # it has sent of them is not told.
        data = self._unsent
        if data is None:
            data = self._unsent = joined(buffers)
        try:
            sent = sock.send(data)
        except ssl.SSLWantWriteError:
            self.write_needs = EVENT_WRITE
            return 0
        except ssl.SSLWantReadError:
            # In the middle of a message of the handshake's kind, such as a session's ticket.
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
        """Raises the refusal with which the far end closed the connection, if it is that."""
        if not self._has_heard:
            try:
                self.recv_into(memoryview(bytearray(1)))
            except (OSError, EOFError):
                pass  # it said nothing; the caller's own error tells as much

    def has_buffered_bytes(self) -> bool:
        return self._socket is not None and self._socket.pending() > 0

    def detach(self) -> socket.socket:
        return self._below.detach() if self._socket is None else self._socket

    def close(self) -> None:
        """Closes it, after a close_notify if that can be sent now. Never waits for the other end's."""
        sock = self._socket
        if sock is None:
            self._below.close()
            return
        # In the middle of a record nothing else can be sent.
        if self._is_established and self._unsent is None:
            try:
                sock.unwrap()
            except (OSError, ValueError):
                pass  # the other end has not answered, has left, or has sent more: all the same now
        sock.close()


def joined(buffers: Sequence[Buffer]) -> Buffer:
    """Returns the first bytes of `buffers` as one piece of at most JOINED bytes, without a copy where one buffer has so many."""
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
