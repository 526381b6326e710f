"""One connection's bytes. Plain TCP here; TLS is another Channel with a handshake of its own."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final, Protocol, Self, TypeAlias

SYSTEM_DEFAULT: Final = -1
"""A socket buffer size that leaves the choice to the system."""

_IN_PROGRESS: Final = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Address:
    """A resolved address: an `AF_` constant, and (host, port) for IPv4 or (host, port, flow, scope) for IPv6."""

    family: int
    sockaddr: Any

    def __str__(self) -> str:
        host, port = self.sockaddr[0], self.sockaddr[1]
        return f"[{host}]:{port}" if self.family == socket.AF_INET6 else f"{host}:{port}"


def resolve(host: str, port: int) -> list[Address]:
    """Returns all addresses of a host, IPv4 first as in Java by default: brokers that listen on one family listen on that.

    Waits for the system's resolver, which has timeouts of its own. Raises OSError if there is no address.
    """
    check_port(port)
    if "\0" in host:  # the system would look up what is before it
        raise OSError(f"{host!r} is no host name")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no host name: {error}") from error
    addresses = dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found)
    return sorted(addresses, key=lambda address: address.family != socket.AF_INET)


def check_port(port: int) -> None:
    """Raises OSError for what is no port. Brokers tell theirs as 32 bits, of which the system would take some."""
    if not 0 <= port < 65_536:
        raise OSError(f"{port} is no port")


class Channel(Protocol):
    """A connection that never blocks. Owned by the thread that polls its selector.

    Failures are OSError. A failure that the same settings meet again, such as a wrong certificate, is AuthenticationError.
    """

    @property
    def peer(self) -> str:
        """host:port of the far end, for error texts; known before it is connected, and after it is closed."""

    @property
    def read_needs(self) -> int:
        """EVENT_READ or EVENT_WRITE: the event after which `recv_into` can go on. TLS may have to write before it can read."""

    @property
    def write_needs(self) -> int:
        """EVENT_READ or EVENT_WRITE: the event after which `send` can go on. TLS may have to read before it can write."""

    @property
    def interest(self) -> int:
        """EVENT_READ or EVENT_WRITE or both: what `handshake` waits for."""

    def fileno(self) -> int: ...

    def finish_connect(self) -> bool:
        """Whether the TCP connection is made. Raises OSError when it cannot be."""

    def handshake(self) -> bool:
        """One step of what comes before the first frame; whether it is done."""

    def recv_into(self, buffer: memoryview) -> int | None:
        """The number of bytes read, 0 at the end of the stream, None when there are none yet."""

    def send(self, buffers: Sequence[Buffer]) -> int:
        """The number of bytes taken from the buffers' beginning, 0 when none can be taken now. At most 1,024 buffers.

        After a 0 the next call must begin with the same bytes.
        """

    def has_buffered_bytes(self) -> bool:
        """Whether bytes to read are held here where the selector cannot see them (decrypted ones)."""

    def detach(self) -> socket.socket:
        """Returns the socket, which the caller closes from now on: TLS starts on it after this channel's handshake."""

    def close(self) -> None: ...


class PlainChannel:
    """A TCP socket as it is."""

    # Attributes of the class: the selector reads them for each event, and a property would be a call.
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
        """Begin to connect. Buffer sizes in bytes. Raises OSError when it fails at once."""
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            # Before connect: the window that TCP offers is settled by then.
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
        # Connecting to a port of the ephemeral range where nobody listens can, by TCP's simultaneous open, meet itself; the
        # broker that is about to start there could then not bind.
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
        self._socket.close()
