"""The address of the driver's listener, and messages to it, from processes of Spark's on any machine."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
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


logger = logging.getLogger(__name__)

# A commit waits for the answer, which takes below 1 ms unless the driver program is paused. On a busy machine it took over 2 s.
TIMEOUT_S: Final = 10.0
# After a report that took TIMEOUT_S. Without it a stream would wait as long for each commit.
RETRY_S: Final = 60.0


class DriverReports:
    """Sends reports. Rows are written or aborted by then, so a driver program that does not answer is not an error.

    Threads: any may send. `_lock` guards what is remembered of addresses, and is not held while a message is sent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocked: dict[ListenerAddress, float] = {}  # until when nothing is sent there
        self._warned: set[tuple[ListenerAddress, bytes]] = set()

    def send(
        self,
        address: ListenerAddress,
        kind: bytes,
        content: Callable[[], bytes],
        lost: str,
        level: int = logging.WARNING,
        *,
        is_urgent: bool = False,
    ) -> int | None:
        """Sends a message, and returns the answer; None if there is none. It never raises.

        Args:
            address: Where the driver program listens on this machine.
            kind: Of the message.
            content: Returns the content. It may raise.
            lost: What is logged if that fails, once until a message of this kind is answered again.
            level: With which it is logged.
            is_urgent: Whether it is sent also shortly after another message got no answer.
        """
        with self._lock:
            if not is_urgent and self._blocked.get(address, 0.0) > time.monotonic():
                return None
        try:
            answer = send(address, kind, content(), TIMEOUT_S)
        except Exception as error:  # whatever it is, the rows are in Kafka
            with self._lock:
                is_new = (address, kind) not in self._warned
                self._warned.add((address, kind))
                if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
                    self._blocked[address] = time.monotonic() + RETRY_S
            if is_new:
                reason = f"{type(error).__name__}: {error}"
                logger.log(level, "%s: %s; this is not logged again until such a report arrives", lost, reason)
            return None
        with self._lock:
            self._warned.discard((address, kind))
            self._blocked.pop(address, None)
        return answer


driver_reports: Final = DriverReports()
"""The instance of this process."""
