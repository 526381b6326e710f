"""The address of the driver's listener, and messages to it, from processes of Spark's on any machine."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field, replace
from typing import Final

from spark_kafka_sink.counts import counted

LOOPBACK: Final = "127.0.0.1"
# A report takes about 10 bytes per topic-partition, so this is enough for any cluster.
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
# Three times as long as the listener waits for a message.
SEND_TIMEOUT_S: Final = 15.0
LENGTH: Final = struct.Struct(">I")
"""Stands before each message."""


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """The address to send a message to, and the token that the listener expects, which must never be printed.

    Attributes:
        port: At `host`.
        token: The same for both ports.
        host: The host by which other machines know the driver. It may not reach the driver from its own machine, such as behind
            a NAT or a bridge.
        local_port: At the loopback interface of the driver's machine; None if that is `port`.
    """

    port: int
    token: str = field(repr=False)
    host: str = LOOPBACK
    local_port: int | None = None

    @property
    def local(self) -> ListenerAddress:
        """The address for processes on the driver's machine."""
        return ListenerAddress(self.port if self.local_port is None else self.local_port, self.token)


class UnreachableError(OSError):
    """No connection could be made, so the listener knows nothing of the message."""


def send(address: ListenerAddress, kind: bytes, content: bytes, timeout_s: float = SEND_TIMEOUT_S) -> int:
    """Sends a message, and returns the listener's answer.

    timeout_s: for everything together, except that a host name is resolved without a limit, and each of its addresses has it.

    Raises:
        UnreachableError: No connection could be made.
        OSError: The listener does not answer, or it refuses the message.
    """
    body = address.token.encode() + kind + content
    if len(body) > MAX_MESSAGE_BYTES:
        raise OSError(f"the message takes {counted(len(body), 'byte')}, more than {MAX_MESSAGE_BYTES}")
    deadline = time.monotonic() + timeout_s
    try:
        opened = socket.create_connection((address.host, address.port), timeout=timeout_s)
    except OSError as error:
        raise UnreachableError(str(error)) from error
    with opened as connection:
        connection.settimeout(_left(deadline))
        connection.sendall(LENGTH.pack(len(body)) + body)
        connection.settimeout(_left(deadline))
        answer = connection.recv(1)
        if not answer:
            raise ConnectionError("the listener has refused the message")
        return answer[0]


def resolved(address: ListenerAddress) -> tuple[ListenerAddress, ...]:
    """Returns the addresses that the host's name stands for. It may take long. Raises OSError or UnicodeError."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return tuple(replace(address, host=host) for host in dict.fromkeys(str(each[4][0]) for each in found))


def _left(deadline: float) -> float:
    """Returns a timeout in seconds. 0 would not be one."""
    return max(deadline - time.monotonic(), 0.001)
