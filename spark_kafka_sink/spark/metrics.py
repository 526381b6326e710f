"""Brings delivery reports back to the driver. Only this module uses accumulators.

`live` comes through a Spark accumulator at the end of each successful task. `committed` comes from the commits of whole batches:
Spark's commit process sends their reports to a listener of the driver program on the loopback interface.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator, AccumulatorParam

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.display import summary
from spark_kafka_sink.spark.messages import report_from_bytes, report_to_bytes, total

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# A report takes about 10 bytes per topic-partition, so this is enough for any cluster.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# For one message. The listener serves one at a time, so a sender also waits for a silent peer before it.
RECEIVE_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 3 * RECEIVE_TIMEOUT_S

_LENGTH = struct.Struct(">I")
_TOKEN_BYTES = 32
_DONE = b"\x01"

# Kinds of messages: the first byte after the token.
_COMMITTED = b"C"
_REFUSED = b"R"


class DeliveryReportParam(AccumulatorParam[DeliveryReport | None]):
    """Merges reports. None is "nothing reported", which differs from a report of 0 records."""

    def zero(self, value: DeliveryReport | None) -> DeliveryReport | None:
        return None

    def addInPlace(self, value1: DeliveryReport | None, value2: DeliveryReport | None) -> DeliveryReport | None:
        # A new object each time: PySpark's accumulator thread adds while the driver program reads the last one.
        reports = [report for report in (value1, value2) if report is not None]
        return total(reports) if reports else None


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """The address to send a report to, and the token that the listener expects, which must never be printed."""

    port: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Feed:
    """Travels with a task and its commit and brings their reports back. Both fields are None if that is not possible."""

    accumulator: Accumulator[DeliveryReport | None] | None = None
    listener: ListenerAddress | None = None

    def task_done(self, report: DeliveryReport) -> None:
        """Reports a finished task. Spark takes the update to the driver once, and only if the task succeeds."""
        if self.accumulator is not None:
            self.accumulator.add(report)

    def committed(self, reports: Iterable[DeliveryReport]) -> None:
        """Reports a commit from Spark's commit process. The rows are written, so a missing driver program is not an error."""
        if self.listener is None:
            return
        try:
            send_report(self.listener, total(reports))
        except OSError as error:
            logger.warning("a commit's delivery report did not reach the driver program, so `committed` is too low: %s", error)

    def refused(self) -> None:
        """Reports a refused commit from Spark's commit process. Spark only logs its errors for continuous queries."""
        if self.listener is None:
            return
        try:
            send_refusal(self.listener)
        except OSError as error:
            logger.warning("could not report a refused commit to the driver program, so a continuous query continues: %s", error)


class DeliveryMetrics:
    """Counts of the records that the sinks of a driver have delivered. `register(spark)` returns it.

    closed: whether `close` was called.

    Spark Connect has no accumulators, so reading a count raises UsageError there.

    Threads: the listener's thread and callers of `add_committed` add to `committed`, under the lock; PySpark's accumulator
    thread replaces `live`.
    """

    def __init__(
        self,
        context: SparkContext | None,
        on_refusal: Callable[[], None] = lambda: None,
        reason: str = "Spark Connect has no accumulators",
    ) -> None:
        """`context` is None if deliveries cannot be counted. Reading a count then raises an error with the `reason`.

        `on_refusal` is called in the listener's thread when a commit was refused because no task had written.
        """
        self.closed = False
        self._reason = reason
        self._lock = threading.Lock()
        self._committed: DeliveryReport | None = None
        self._accumulator: Accumulator[DeliveryReport | None] | None = None
        self._listener: CommitListener | None = None
        if context is not None:
            self._accumulator = context.accumulator(None, DeliveryReportParam())
            self._listener = CommitListener(self.add_committed, on_refusal)

    @property
    def available(self) -> bool:
        """Whether this session can count deliveries."""
        return self._accumulator is not None

    @property
    def live(self) -> DeliveryReport | None:
        """The total of all successful tasks so far, including batches that are not committed yet.

        A batch that is written again counts again. None until something is reported, and if the sink was used in a session or
        thread where it is not registered.
        """
        self._check_available()
        assert self._accumulator is not None
        return self._accumulator.value

    @property
    def committed(self) -> DeliveryReport | None:
        """The total of all batches that Spark has committed. None until one is reported."""
        self._check_available()
        with self._lock:
            return self._committed

    @property
    def feed(self) -> Feed:
        """The part that travels with a task, so that it can report to this object."""
        return Feed(self._accumulator, self._listener.address if self._listener else None)

    def add_committed(self, report: DeliveryReport) -> None:
        """Adds the report of a commit to `committed`."""
        with self._lock:
            self._committed = total([report] if self._committed is None else [self._committed, report])

    def close(self) -> None:
        """Stops listening for commits. The counts stay readable, and the next `register` returns a new handle."""
        self.closed = True
        if self._listener is not None:
            self._listener.stop()

    def _check_available(self) -> None:
        if not self.available:
            raise UsageError(f"{self._reason}, so deliveries are not counted; use publish(df, ...), which returns a report")

    def __repr__(self) -> str:
        if not self.available:
            return f"DeliveryMetrics(not available: {self._reason})"
        live, committed = self.live, self.committed
        return "\n".join(
            f"{name}: {summary(report) if report else 'nothing reported yet'}"
            for name, report in (("live", live), ("committed", committed))
        )

    def __str__(self) -> str:
        if not self.available:
            return repr(self)
        counts = (("committed", self.committed), ("live", self.live))
        return "\n\n".join(f"{name}:\n{report or 'nothing reported yet'}" for name, report in counts)

    def _repr_html_(self) -> str:
        from spark_kafka_sink.producer.report_html import reports_html, text_html

        if not self.available:
            return text_html(repr(self))
        return reports_html([("committed", self.committed), ("live", self.live)])


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
        """Closes the port. A second call does nothing."""
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
            logger.warning("refused a message to the commit listener: %s: %s", type(error).__name__, error)

    def _receive(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + RECEIVE_TIMEOUT_S
        (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size, deadline))
        if not _TOKEN_BYTES < length <= MAX_MESSAGE_BYTES:
            raise ValueError(f"its length {length} is not valid")
        if not hmac.compare_digest(_read(connection, _TOKEN_BYTES, deadline), self.address.token.encode()):
            raise ValueError("its token is wrong")
        kind = _read(connection, len(_COMMITTED), deadline)
        body = _read(connection, length - _TOKEN_BYTES - len(kind), deadline)
        if kind == _COMMITTED:
            self._on_report(report_from_bytes(body))
        elif kind == _REFUSED and not body:
            self._on_refusal()
        else:
            raise ValueError(f"its kind is {kind!r}, with {counted(len(body), 'byte')}")
        connection.sendall(_DONE)


def send_report(address: ListenerAddress, report: DeliveryReport) -> None:
    """Sends a report to the listener. Raises OSError if it cannot be reached or does not confirm the report."""
    _send(address, _COMMITTED, report_to_bytes(report))


def send_refusal(address: ListenerAddress) -> None:
    """Tells the listener that a commit was refused. Raises OSError as `send_report` does."""
    _send(address, _REFUSED, b"")


def _send(address: ListenerAddress, kind: bytes, content: bytes) -> None:
    body = address.token.encode() + kind + content
    if len(body) > MAX_MESSAGE_BYTES:
        raise OSError(f"the message takes {counted(len(body), 'byte')}, more than {MAX_MESSAGE_BYTES}")
    deadline = time.monotonic() + SEND_TIMEOUT_S
    with socket.create_connection((LOOPBACK, address.port), timeout=SEND_TIMEOUT_S) as connection:
        connection.sendall(_LENGTH.pack(len(body)) + body)
        _read(connection, len(_DONE), deadline)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Returns exactly `size` bytes. Raises OSError after `deadline`, in seconds of the monotonic clock."""
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed in the middle of a message")
        data += part
    return bytes(data)
