"""The driver's listener: takes reports from Spark's commit process, and from tasks while they run, whose counts it adds up."""

from __future__ import annotations

import errno
import hmac
import json
import logging
import secrets
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.spark.feed import Counts
from spark_kafka_sink.spark.open_transactions import OpenTransaction
from spark_kafka_sink.spark.reports_to_driver import LENGTH, LOOPBACK, MAX_MESSAGE_BYTES, ListenerAddress

logger = logging.getLogger(__name__)

# For one message, from the first byte to the last.
RECEIVE_TIMEOUT_S = 5.0
# Connections to each port that are served at once. The others wait in the backlog, which is longer. If other machines can
# connect, the loopback interface has a port of its own, so that silent ones do not keep a commit from being reported.
MOST_PEERS: Final = 128
# After the system has refused a further connection. It stays in the backlog, so the port would be ready again at once.
_PAUSE_S: Final = 1.0
# Between two warnings of refused messages.
_QUIET_S: Final = 60.0

_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_TOKEN_BYTES: Final = 32
_PART: Final = 1 << 20

Handler = Callable[[bytes], int | None]
"""Takes the content of a message, and returns the answer for the sender: a number below 256, or None for 1.

Raises an exception for content that it does not understand.
"""


class MetricsListener:
    """Hands the content of each message with the right token to the handler of its kind.

    A message is length, token, kind (a byte) and content. The token is checked before more is read, and nothing is ever
    unpickled. A connection has one message, and is closed after the answer, which is one byte. Whatever a message or its
    handler does, SystemExit included, the next message is taken.

    Threads: one daemon thread owns the sockets and calls the handlers. `stop()` may be called from any thread and waits for it.
    """

    def __init__(self, handlers: Mapping[bytes, Handler], host: str = LOOPBACK, *, known_as: str | None = None) -> None:
        """Starts to listen on a free port of `host`, and of the loopback interface.

        Args:
            handlers: By kind, which is one byte.
            host: A name or an address of this machine.
            known_as: The name or address by which senders reach it; None for `host`.

        Raises:
            OSError: The listener cannot listen there.
        """
        self._handlers = handlers
        self._servers = _servers(host)
        self._stopper, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, _Peer] = {}  # the oldest first
        self._accepting: set[socket.socket] = set()
        self._resume_at: float | None = None
        self._has_warned_of_limit = False
        self._refusals, self._quiet_until = 0, 0.0
        port, *local_ports = (server.getsockname()[1] for server in self._servers)
        self.address = ListenerAddress(port, secrets.token_hex(_TOKEN_BYTES // 2), known_as or host, *local_ports)
        self._thread = threading.Thread(target=self._serve, name="kafka-sink-metrics-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes the ports. A second call does nothing."""
        self._stopper.close()
        self._thread.join(RECEIVE_TIMEOUT_S + 1)

    def _serve(self) -> None:
        with ExitStack() as opened:
            selector = opened.enter_context(self._selector)
            for each in (*self._servers, self._stopped):
                opened.enter_context(each)
            selector.register(self._stopped, selectors.EVENT_READ)
            while True:
                self._pause()
                for key, _ in selector.select(self._wait_s()):
                    if key.fileobj is self._stopped:
                        for peer in list(self._peers):
                            self._forget(peer)
                        return
                    if key.fileobj in self._servers:
                        self._accept(key.fileobj)
                    elif isinstance(key.fileobj, socket.socket):
                        self._read(key.fileobj)
                self._expire()

    def _pause(self) -> None:
        """Takes connections of each port that has fewer than MOST_PEERS, and of none while the system allows no more."""
        if self._resume_at is not None and self._resume_at <= time.monotonic():
            self._resume_at = None
        counts = Counter(peer.server for peer in self._peers.values())
        wanted = {server for server in self._servers if self._resume_at is None and counts[server] < MOST_PEERS}
        for server in self._accepting - wanted:
            self._selector.unregister(server)
        for server in wanted - self._accepting:
            self._selector.register(server, selectors.EVENT_READ)
        self._accepting = wanted

    def _wait_s(self) -> float | None:
        """Returns how long nothing is due, if nobody sends."""
        due = [peer.deadline for peer in islice(self._peers.values(), 1)]
        if self._resume_at is not None:
            due.append(self._resume_at)
        return max(min(due) - time.monotonic(), 0) if due else None

    def _accept(self, server: socket.socket) -> None:
        try:
            connection, _ = server.accept()
        except OSError as error:
            if error.errno in _LIMITS:
                self._resume_at = time.monotonic() + _PAUSE_S
                if not self._has_warned_of_limit:
                    self._has_warned_of_limit = True
                    logger.warning(
                        "the metrics listener takes no connections while the driver program is at a limit of the system; "
                        "raise it, such as by `ulimit -n`: %s",
                        error,
                    )
            return  # or the peer has gone again
        try:
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
        except OSError as error:  # such as a limit of the system
            self._warn(error)
            connection.close()
            return
        self._peers[connection] = _Peer(server, time.monotonic() + RECEIVE_TIMEOUT_S)

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._peers[connection]
        connection.close()

    def _expire(self) -> None:
        now = time.monotonic()
        for connection in [each for each, peer in self._peers.items() if peer.deadline <= now]:
            self._refuse(connection, TimeoutError("it took too long"))

    def _read(self, connection: socket.socket) -> None:
        peer = self._peers.get(connection)
        if peer is None:  # expired in this round
            return
        try:
            part = connection.recv(_PART)
            if not part:
                raise ConnectionError("the connection was closed in the middle of a message")
            peer.data += part
            content = self._content(peer.data)
            if content is not None:
                connection.sendall(self._handled(content))
                self._forget(connection)
        except BlockingIOError:
            return
        except BaseException as error:  # nobody would notice if the thread ended, and nothing would be counted any more
            self._refuse(connection, error)

    def _refuse(self, connection: socket.socket, error: BaseException) -> None:
        self._warn(error)
        self._forget(connection)

    def _warn(self, error: BaseException) -> None:
        """Logs at most one line a minute: any process of the machine can connect, as often as it likes."""
        self._refusals += 1
        if (now := time.monotonic()) >= self._quiet_until:
            text = "the metrics listener refused %s, at last: %s: %s"
            logger.warning(text, counted(self._refusals, "message"), type(error).__name__, error)
            self._refusals, self._quiet_until = 0, now + _QUIET_S

    def _content(self, data: bytearray) -> bytes | None:
        """Returns kind and content of a whole message, or None if more is to come. Raises ValueError as early as possible."""
        if len(data) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(data)
        if not _TOKEN_BYTES < length <= MAX_MESSAGE_BYTES:
            raise ValueError(f"its length {length} is not valid")
        begin = LENGTH.size + _TOKEN_BYTES
        if len(data) < begin:
            return None
        if not hmac.compare_digest(bytes(data[LENGTH.size : begin]), self.address.token.encode()):
            raise ValueError("its token is wrong")
        end = LENGTH.size + length
        return bytes(data[begin:end]) if len(data) >= end else None

    def _handled(self, message: bytes) -> bytes:
        kind, content = message[:1], message[1:]
        handler = self._handlers.get(kind)
        if handler is None:
            raise ValueError(f"its kind is {kind!r}, with {counted(len(content), 'byte')}")
        answer = handler(content)
        return bytes([1 if answer is None else answer])


@dataclass(slots=True)
class _Peer:
    """A connection's message so far, and until when it must be complete, on time.monotonic's clock. server: its port's socket."""

    server: socket.socket
    deadline: float
    data: bytearray = field(default_factory=bytearray)


def _servers(host: str) -> tuple[socket.socket, ...]:
    """Listens on the host, and on the loopback interface if that is another. Raises OSError."""
    with ExitStack() as opened:
        servers = []
        for name in dict.fromkeys((host, LOOPBACK)):
            family = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0][0]
            server = opened.enter_context(socket.create_server((name, 0), family=family, backlog=1024))
            server.setblocking(False)
            servers.append(server)
        opened.pop_all()
    return tuple(servers)


# The most messages per second. Each takes 0.1 ms of the driver, which tells workers to wait longer if there are more.
PER_SECOND: Final = 200
# A worker that was killed says nothing any more.
FORGET_S: Final = 30.0


class LiveTasks:
    """The counts of tasks that run, as far as they have told.

    Threads: the listener's thread takes messages and others read, under the lock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns monotonic seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        # By name, the one that told last at the end: the call, the counts, when they came, and the open transaction.
        self._tasks: dict[str, tuple[str, Counts, float, OpenTransaction | None]] = {}

    def take(self, message: bytes) -> int:
        """Takes a message, and returns after how many seconds the task shall send the next. Raises ValueError or TypeError."""
        name, call, is_running, opened, *numbers = json.loads(message)
        counts = Counts(*map(int, numbers))
        transaction = None if opened is None else OpenTransaction.of(opened)
        with self._lock:
            self._tasks.pop(str(name), None)
            if is_running:
                self._tasks[str(name)] = str(call), counts, self._clock(), transaction
            self._forget()
            return min(255, 1 + len(self._tasks) // PER_SECOND)

    def running(self, call: str | None = None) -> tuple[int, Counts]:
        """Returns the number of running tasks that have told, and the sum of their counts. call: only of this call of a sink."""
        with self._lock:
            self._forget()
            found = [counts for of, counts, *_ in self._tasks.values() if call is None or of == call]
        return len(found), sum(found, Counts())

    def calls(self) -> set[str]:
        """Returns the calls of running tasks that have told."""
        with self._lock:
            self._forget()
            return {of for of, *_ in self._tasks.values()}

    def transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions of running tasks that have told."""
        with self._lock:
            self._forget()
            return [opened for *_, opened in self._tasks.values() if opened is not None]

    def _forget(self) -> None:
        """Forgets tasks that no longer tell. Requires the lock."""
        oldest = self._clock() - FORGET_S - 2 * len(self._tasks) / PER_SECOND
        while self._tasks:  # with each message, so it must not look at all of them
            name, (_, _, came, _) = next(iter(self._tasks.items()))
            if came >= oldest:
                return
            del self._tasks[name]
