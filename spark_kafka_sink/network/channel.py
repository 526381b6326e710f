"""The bytes of one connection. This module has plain TCP; TLS is another Channel with its own handshake."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final, Protocol, Self, TypeAlias

SYSTEM_DEFAULT: Final = -1
"""A socket buffer size that the operating system chooses."""

_IN_PROGRESS: Final = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Address:
    """A resolved address. family: an `AF_` constant. sockaddr: (host, port) for IPv4, (host, port, flow, scope) for IPv6."""

    family: int
    sockaddr: Any

    def __str__(self) -> str:
        return address_text(self.sockaddr[0], self.sockaddr[1])


def address_text(host: str, port: int) -> str:
    """Returns an address as host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolve(host: str, port: int) -> list[Address]:
    """Returns all addresses of a host, IPv4 first, as in Java by default. Brokers that listen on one family listen on IPv4.

    It blocks on the system's resolver, which has its own timeouts. Raises OSError if there is no address.
    """
    check_port(port)
    if "\0" in host:  # the system would look up only the part before it
        raise OSError(f"{host!r} is not a valid host name")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a valid host name: {error}") from error
    addresses = dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found)
    return sorted(addresses, key=lambda address: address.family != socket.AF_INET)


def check_port(port: int) -> None:
    """Raises OSError for an invalid port. Brokers send ports as 32 bits, and the system would accept some invalid ones."""
    if not 0 <= port < 65_536:
        raise OSError(f"{port} is not a valid port")


class Channel(Protocol):
    """A non-blocking connection, owned by the thread that polls its selector.

    Failures raise OSError. Those that would recur with the same settings, such as a wrong certificate, raise AuthenticationError.
    """

    @property
    def peer(self) -> str:
        """The host:port of the far end, for error messages. It is known before connecting and after closing."""

    @property
    def read_needs(self) -> int:
        """The event after which `recv_into` can continue: EVENT_READ or EVENT_WRITE. TLS may have to write before it can read."""

    @property
    def write_needs(self) -> int:
        """The event after which `send` can continue: EVENT_READ or EVENT_WRITE. TLS may have to read before it can write."""

    @property
    def interest(self) -> int:
        """The events that `handshake` waits for: EVENT_READ, EVENT_WRITE or both."""

    def fileno(self) -> int: ...

    def finish_connect(self) -> bool:
        """Returns whether the TCP connection is established. Raises OSError if it cannot be."""

    def handshake(self) -> bool:
        """Performs one step of the handshake. Returns whether it is complete, so that frames can follow."""

    def recv_into(self, buffer: memoryview) -> int | None:
        """Returns the number of bytes read, 0 at the end of the stream, or None if there are none yet."""

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Sends at most 1,024 buffers. Returns the number of bytes taken from their beginning, or 0 if none can be taken now.

        After a 0, the next call must begin with the same bytes.
        """

    def has_buffered_bytes(self) -> bool:
        """Returns whether bytes to read are buffered here (decrypted ones), which the selector cannot see."""

    def detach(self) -> socket.socket:
        """Returns the socket, which the caller must close from now on. TLS starts on it after this channel's handshake."""

    def close(self) -> None: ...


class PlainChannel:
    """A plain TCP socket."""

    # Class attributes, because the selector reads them for each event and a property would be a call.
    read_needs: int = EVENT_READ
    write_needs: int = EVENT_WRITE

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = sock
        self.peer = peer

    @classmethod
    def connect(cls, address: Address, *, send_buffer: int = SYSTEM_DEFAULT, receive_buffer: int = SYSTEM_DEFAULT) -> Self:
        """Starts to connect. Buffer sizes are in bytes. Raises OSError if it fails at once."""
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            # Before connect, because connecting fixes the window that TCP offers.
            for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
                if size != SYSTEM_DEFAULT:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            channel = cls(sock, str(address))
            code = sock.connect_ex(address.sockaddr)
            if code not in _IN_PROGRESS:
                raise OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        return channel

    @property
    def interest(self) -> int:
        return EVENT_READ | EVENT_WRITE

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> bool:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            peer = self._socket.getpeername()
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                return False
            raise
        # A connection to an ephemeral port where nothing listens can connect to itself (TCP's simultaneous open). A broker that
        # is about to start there could then not bind.
        if peer == self._socket.getsockname():
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return True

    def handshake(self) -> bool:
        return True

    def recv_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, buffers: Sequence[Buffer]) -> int:
        try:
            return self._socket.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0

    def has_buffered_bytes(self) -> bool:
        return False

    def detach(self) -> socket.socket:
        return self._socket

    def close(self) -> None:
        """Closes the connection. The end of the stream goes out first, as from Java's NIO channels.

        Closing a socket with unread bytes resets the connection, and the far end would see only the reset.
        """
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is not connected
        self._socket.close()
