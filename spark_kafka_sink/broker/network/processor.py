"""A thread that reads requests from many connections and writes their responses."""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Final

from spark_kafka_sink.broker.network.listener import ConnectionQuotas, Listener
from spark_kafka_sink.broker.network.request import Request, Response, ResponseAction, Session, bare_sasl_token, decode
from spark_kafka_sink.broker.network.request_channel import RequestChannel
from spark_kafka_sink.broker.network.tls import NoMatchingRuleError, SslPrincipalMapper, distinguished_name
from spark_kafka_sink.errors import PeerError, ProtocolError
from spark_kafka_sink.network.channel import Channel, PlainChannel
from spark_kafka_sink.network.selector import Disconnected, Selector, monotonic_ms
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.protocol.api import AnyApi

logger = logging.getLogger(__name__)

CONNECTION_QUEUE_SIZE: Final = 20
"""The number of new connections that may wait for a Processor (Kafka's Processor.ConnectionQueueSize)."""

POLL_MS: Final = 300

MAX_UNAUTHENTICATED_FRAME: Final = 524_288
"""The maximum frame size before the login (sasl.server.max.receive.size)."""

_OFFER_AGAIN_S: Final = 0.1


class MutedBy(Flag):
    """Reasons why a connection is not read (Kafka's ChannelMuteState). It is read when none is left.

    REQUEST: from a request's arrival until its response is sent. THROTTLE: for the throttle time of a response.
    """

    NOTHING = 0
    REQUEST = auto()
    THROTTLE = auto()


@dataclass(slots=True)
class Connection:
    """A connection of a Processor. `request`: the one being served. `response`: the one being sent.

    `is_limited`: only small frames are allowed until the client has logged in. `tls`: its channel until the handshake is done.
    """

    connection_id: int
    session: Session
    muted_by: MutedBy = MutedBy.NOTHING
    request: Request | None = None
    response: Response | None = None
    is_limited: bool = False
    tls: TlsChannel | None = None

    @property
    def peer(self) -> str:
        return f"{self.session.client_host}:{self.session.client_port}"


@dataclass(frozen=True, slots=True)
class ProcessorParts:
    """The parts that all Processors of a server share. `served`: APIs by key. `tls`: None if no listener is encrypted."""

    node_id: int
    channel: RequestChannel
    quotas: ConnectionQuotas
    served: Mapping[int, AnyApi]
    max_frame_size: int
    max_idle_ms: int
    tls: ssl.SSLContext | None = None
    principals: SslPrincipalMapper = field(default_factory=lambda: SslPrincipalMapper("DEFAULT"))
    clock_ms: Callable[[], int] = monotonic_ms


class Processor:
    """Reads and writes connections (Kafka's Processor). Its thread owns the selector and the connections.

    Other threads use `accept` (the Acceptor, through `_new_connections`), `enqueue_response` (any thread, through `_responses`),
    `begin_shutdown` and `close`. A connection is muted from the arrival of a request until its response is sent. So
    its requests are served one after another, which keeps a partition's records in the order in which they were sent.
    """

    def __init__(self, processor_id: int, listener: Listener, parts: ProcessorParts) -> None:
        self.id = processor_id
        self._listener = listener
        self._parts = parts
        self._selector = Selector(max_frame_size=parts.max_frame_size, max_idle_ms=parts.max_idle_ms, clock=parts.clock_ms)
        self._new_connections: queue.Queue[tuple[socket.socket, str, int]] = queue.Queue(CONNECTION_QUEUE_SIZE)
        self._responses: deque[Response] = deque()
        self._connections: dict[int, Connection] = {}
        # Ids are never reused: the response for a closed connection must not reach another one.
        self._next_connection_id = itertools.count()
        self._throttled: list[tuple[int, int]] = []
        self._running = True
        name = f"kafka-network-thread-{parts.node_id}-{listener.name}-{processor_id}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    # From other threads

    def start(self) -> None:
        self.thread.start()

    def accept(self, sock: socket.socket, host: str, port: int, *, may_block: bool) -> bool:
        """Takes over a connection. `may_block`: waits for room. Returns False if there is none, or none before the end."""
        while self._running:
            try:
                self._new_connections.put((sock, host, port), block=may_block, timeout=_OFFER_AGAIN_S)
            except queue.Full:
                if may_block:
                    continue
                return False
            self._selector.wakeup()
            return True
        return False

    def enqueue_response(self, response: Response) -> None:
        """Sends a response. Does nothing after the Processor is closed, because the connection is gone."""
        if self._running:
            self._responses.append(response)
            self._selector.wakeup()

    def begin_shutdown(self) -> None:
        self._running = False
        self._selector.wakeup()

    def close(self, timeout_s: float) -> bool:
        """Stops the thread and closes its connections. Returns whether that finished in time."""
        self.begin_shutdown()
        if self.thread.ident is None:
            self._close_all()
        else:
            self.thread.join(timeout_s)
        # Connections that the Acceptor added while the thread ended.
        self._drop_new_connections()
        return not self.thread.is_alive()

    # The loop

    def _run(self) -> None:
        try:
            while self._running:
                try:
                    self._loop_once()
                except Exception:
                    # Every step handles the errors of its connections. What gets here is a bug, which should not affect other
                    # connections.
                    logger.exception("%s: uncaught exception", self.thread.name)
        finally:
            self._close_all()

    def _loop_once(self) -> None:
        self._configure_new_connections()
        self._process_new_responses()
        result = self._selector.poll(self._poll_timeout_ms())
        self._process_connected(result.connected)
        self._process_completed_receives(result.received)
        self._process_completed_sends(result.sent)
        self._process_disconnected(result.disconnected)
        self._end_throttling()

    def _poll_timeout_ms(self) -> int:
        if not self._new_connections.empty():
            return 0
        if not self._throttled:
            return POLL_MS
        return max(0, min(POLL_MS, self._throttled[0][0] - self._parts.clock_ms()))

    def _configure_new_connections(self) -> None:
        # Limited to one queue's length, so that many new connections do not keep the others waiting.
        for _ in range(CONNECTION_QUEUE_SIZE):
            try:
                sock, host, port = self._new_connections.get_nowait()
            except queue.Empty:
                return
            self._configure(sock, host, port)

    def _configure(self, sock: socket.socket, host: str, port: int) -> None:
        connection = Connection(next(self._next_connection_id), Session(host, port))
        try:
            self._selector.register_accepted(connection.connection_id, self._channel(connection, sock))
        except OSError as error:
            logger.info("%s: closed the connection from %s: %s", self.thread.name, connection.peer, error)
            sock.close()
            self._parts.quotas.dec(host)
            return
        if self._listener.is_sasl:
            self._selector.limit_frames(connection.connection_id, min(MAX_UNAUTHENTICATED_FRAME, self._parts.max_frame_size))
            connection.is_limited = True
        self._connections[connection.connection_id] = connection
        logger.debug("%s: new connection from %s:%d", self.thread.name, host, port)

    def _channel(self, connection: Connection, sock: socket.socket) -> Channel:
        context = self._parts.tls
        if not self._listener.is_tls or context is None:
            return PlainChannel(sock, connection.peer)
        connection.tls = TlsChannel.accept(sock, connection.peer, context)
        return connection.tls

    def _process_connected(self, connected: list[int]) -> None:
        """Sets the principal from the client's certificate. connections.max.idle.ms closes handshakes that do not end."""
        for connection_id in connected:
            connection = self._connections[connection_id]
            channel, connection.tls = connection.tls, None
            if channel is None or self._listener.is_sasl:
                continue  # SASL sets the principal
            certificate = channel.peer_certificate()
            if certificate is None:
                continue
            try:
                connection.session.principal = f"User:{self._parts.principals.name(distinguished_name(certificate))}"
            except NoMatchingRuleError as error:
                logger.warning("%s: closed the connection from %s: %s", self.thread.name, connection.peer, error)
                self._close(connection)

    def _process_new_responses(self) -> None:
        while self._responses:
            response = self._responses.popleft()
            connection = self._connections.get(response.request.connection_id)
            if connection is None or connection.request is not response.request or connection.response is not None:
                # The connection is gone, or the request was answered by a path around its guard.
                logger.debug("%s: dropped a response to %s", self.thread.name, response.request)
                continue
            connection.response = response
            try:
                self._act_on(connection, response)
            except Exception as error:
                # A response that no frame can hold.
                logger.error("%s: %s cannot be answered: %s", self.thread.name, response.request, error)
                self._close(connection)

    def _act_on(self, connection: Connection, response: Response) -> None:
        if response.action is ResponseAction.CLOSE_CONNECTION:
            self._close(connection)
            return
        if response.throttle_ms > 0:
            connection.muted_by |= MutedBy.THROTTLE
            due = self._parts.clock_ms() + response.throttle_ms
            heapq.heappush(self._throttled, (due, connection.connection_id))
        if response.action is ResponseAction.NO_OP:
            self._finish(connection)
        else:
            self._selector.send(connection.connection_id, response.buffers, announced=response.announced)

    def _process_completed_receives(self, received: list[tuple[int, memoryview]]) -> None:
        for connection_id, frame in received:
            connection = self._connections.get(connection_id)
            if connection is None:
                continue  # closed because of its certificate
            try:
                has_header = not connection.session.has_bare_sasl_tokens
                decoded = decode(frame, self._parts.served) if has_header else bare_sasl_token(frame)
            except Exception as error:
                self._refuse(connection, error)
            else:
                request = Request(decoded, connection.session, self._listener, self.enqueue_response, connection.connection_id)
                connection.request = request
                connection.muted_by |= MutedBy.REQUEST
                self._selector.mute(connection.connection_id)
                self._parts.channel.send_request(request)

    def _refuse(self, connection: Connection, error: Exception) -> None:
        if isinstance(error, PeerError):
            logger.warning("%s: closed the connection from %s: %s", self.thread.name, connection.peer, error.message)
        else:
            logger.exception("%s: could not read a request from %s", self.thread.name, connection.peer)
        self._close(connection)

    def _process_completed_sends(self, sent: list[int]) -> None:
        for connection_id in sent:
            connection = self._connections[connection_id]
            response = connection.response
            assert response is not None
            if response.announced is not None:
                self._close(connection)
            else:
                self._finish(connection)

    def _process_disconnected(self, disconnected: list[Disconnected]) -> None:
        for lost in disconnected:
            connection = self._connections.get(lost.connection_id)
            if connection is not None and connection.tls is not None and not lost.idle:
                text = f"the TLS handshake with {connection.peer} failed: {lost.error.message}"
                logger.warning("%s: %s", self.thread.name, text)
            elif isinstance(lost.error, ProtocolError):
                logger.warning("%s: %s", self.thread.name, lost.error.message)
            else:
                logger.debug("%s: %s", self.thread.name, lost.error.message)
            if connection is not None:
                self._forget(connection)

    def _unmute(self, connection: Connection, reason: MutedBy) -> None:
        connection.muted_by &= ~reason
        if not connection.muted_by:
            self._selector.unmute(connection.connection_id)

    def _finish(self, connection: Connection) -> None:
        connection.request = connection.response = None
        if connection.is_limited and connection.session.is_authenticated:
            self._selector.limit_frames(connection.connection_id, self._parts.max_frame_size)
            connection.is_limited = False
        self._unmute(connection, MutedBy.REQUEST)

    def _end_throttling(self) -> None:
        while self._throttled and self._throttled[0][0] <= self._parts.clock_ms():
            connection = self._connections.get(heapq.heappop(self._throttled)[1])
            if connection is not None:
                self._unmute(connection, MutedBy.THROTTLE)

    # Ends

    def _close(self, connection: Connection) -> None:
        self._selector.close_connection(connection.connection_id)
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        session = connection.session
        logger.debug("%s: the connection from %s:%d ended", self.thread.name, session.client_host, session.client_port)
        del self._connections[connection.connection_id]
        # The selector's unused counts would otherwise grow with every connection.
        self._selector.counts.connections.pop(connection.connection_id, None)
        self._parts.quotas.dec(session.client_host)

    def _close_all(self) -> None:
        self._running = False
        for connection in list(self._connections.values()):
            self._close(connection)
        self._selector.close()
        self._drop_new_connections()

    def _drop_new_connections(self) -> None:
        while True:
            try:
                sock, host, _ = self._new_connections.get_nowait()
            except queue.Empty:
                return
            sock.close()
            self._parts.quotas.dec(host)
