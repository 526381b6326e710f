"""The broker's sockets: listeners, their Acceptors and Processors, and the queue to the handlers."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.network.listener import ConnectionQuotas, Listener, TooManyConnectionsError
from spark_kafka_sink.broker.network.processor import Processor, ProcessorParts
from spark_kafka_sink.broker.network.request_channel import RequestChannel
from spark_kafka_sink.broker.network.tls import SslPrincipalMapper, server_context
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.network.selector import Wakeup
from spark_kafka_sink.protocol.api import AnyApi

logger = logging.getLogger(__name__)

POLL_S: Final = 0.3

BACKLOG: Final = 1024
"""The maximum number of connections waiting to be accepted.

Kafka's 50 (socket.listen.backlog.size) suits acceptors that do not share an interpreter: a connection that does not fit retries
after a second.
"""

_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts connections (Kafka's Acceptor). Its thread owns the listening socket.

    Other threads call `begin_shutdown` and `close`.
    """

    def __init__(self, listener: Listener, processors: Sequence[Processor], quotas: ConnectionQuotas) -> None:
        self.listener = listener
        self.processors = processors
        self._quotas = quotas
        self._next_processor = 0
        self._stopped = threading.Event()
        self._server = _bound(listener)
        self.port = int(self._server.getsockname()[1])
        self._wakeup = Wakeup()
        self.thread = threading.Thread(target=self._run, name=f"kafka-socket-acceptor-{listener.name}-{self.port}", daemon=True)

    def start(self) -> None:
        """Starts listening and the thread. Raises OSError if it cannot listen."""
        self._server.listen(BACKLOG)
        for processor in self.processors:
            processor.start()
        self.thread.start()

    def begin_shutdown(self) -> None:
        self._stopped.set()
        self._wakeup.wakeup()
        for processor in self.processors:
            processor.begin_shutdown()

    def close(self, timeout_s: float) -> bool:
        """Stops its thread, then its Processors. Returns whether all stopped in time."""
        self.begin_shutdown()
        if self.thread.ident is None:
            self._close_server()
        else:
            self.thread.join(timeout_s)
        ended = [processor.close(timeout_s) for processor in self.processors]
        return all(ended) and not self.thread.is_alive()

    def _run(self) -> None:
        try:
            with DefaultSelector() as selector:
                selector.register(self._server, EVENT_READ)
                selector.register(self._wakeup, EVENT_READ)
                while not self._stopped.is_set():
                    ready = {key.fileobj for key, _ in selector.select(POLL_S)}
                    if self._server in ready:
                        self._accept_new_connections()
        finally:
            self._close_server()

    def _accept_new_connections(self) -> None:
        while not self._stopped.is_set():
            try:
                sock, address = self._server.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                logger.error("%s: cannot accept a connection: %s", self.thread.name, error)
                if error.errno in _OUT_OF_RESOURCES:
                    # Not again at once: it would fail as fast as it is tried.
                    self._stopped.wait(POLL_S)
                return
            try:
                self._take(sock, _host(str(address[0])), int(address[1]))
            except Exception:
                # A bug, which must not affect the next connection.
                logger.exception("%s: uncaught exception", self.thread.name)
                sock.close()

    def _take(self, sock: socket.socket, host: str, port: int) -> None:
        try:
            counted = self._quotas.inc(host)
        except TooManyConnectionsError as error:
            logger.info("%s: refused a connection from %s: %s", self.thread.name, f"{host}:{port}", error)
            sock.close()
            return
        if not counted:
            sock.close()
        elif not self._assign(sock, host, port):
            sock.close()
            self._quotas.dec(host)

    def _assign(self, sock: socket.socket, host: str, port: int) -> bool:
        """Assigns a socket to the next Processor with room. If none has room, waits for the last one."""
        for tries_left in range(len(self.processors) - 1, -1, -1):
            processor = self.processors[self._next_processor]
            self._next_processor = (self._next_processor + 1) % len(self.processors)
            if processor.accept(sock, host, port, may_block=tries_left == 0):
                return True
        return False

    def _close_server(self) -> None:
        self._server.close()
        self._wakeup.close()


def _host(address: str) -> str:
    """Returns an address as Java's InetAddress, ACLs and quotas write it: an IPv4 address that came over IPv6 as IPv4."""
    return address.removeprefix("::ffff:") if "." in address else address


def _bound(listener: Listener) -> socket.socket:
    """Returns a bound socket, which listens only if the system chose the port.

    Clients take a broker at a given port for ready as soon as they can connect, which must not happen before `start`. A port
    chosen by the system must listen at once, because the system may give it to several sockets until one listens.
    """
    server = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
    try:
        server.setblocking(False)
        # A restarted broker must not wait until the previous one's connections are forgotten.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((listener.host, listener.port))
        if not listener.port:
            server.listen(BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


JOIN_TIMEOUT_S = 10.0


class SocketServer:
    """The sockets of a broker (Kafka's SocketServer). The constructor binds ports, `start` serves, `stop` ends it for good.

    Only the thread that owns the broker calls `start` and `stop`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        served: Mapping[int, AnyApi],
        listeners: Sequence[Listener] = (Listener(),),
        node_id: int = 0,
    ) -> None:
        """Binds the ports of all listeners.

        `served`: APIs by key; a request for another one closes its connection. Raises OSError if a port is taken, OptionError if
        the TLS settings are wrong.
        """
        self.request_channel = RequestChannel(config.queued_max_requests)
        self.connection_quotas = ConnectionQuotas(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            overrides=config.max_connections_per_ip_overrides,
        )
        parts = ProcessorParts(
            node_id=node_id,
            channel=self.request_channel,
            quotas=self.connection_quotas,
            served=served,
            max_frame_size=config.socket_request_max_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            tls=server_context(config) if any(listener.is_tls for listener in listeners) else None,
            principals=_principals(config),
        )
        self._processors: list[Processor] = []
        self._acceptors: list[Acceptor] = []
        try:
            for listener in listeners:
                first = len(self._processors)
                for processor_id in range(first, first + config.num_network_threads):
                    self._processors.append(Processor(processor_id, listener, parts))
                added = self._processors[first:]
                self._acceptors.append(Acceptor(listener, added, self.connection_quotas))
        except BaseException:
            self.stop()
            raise

    def bound_port(self, listener_name: str | None = None) -> int:
        """Returns the port of a listener, by default the first. It is known before `start`."""
        return next(acceptor.port for acceptor in self._acceptors if listener_name in (None, acceptor.listener.name))

    def start(self) -> None:
        """Serves connections. Raises OSError if it cannot listen, and leaves nothing open."""
        try:
            for acceptor in self._acceptors:
                acceptor.start()
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout_s: float = JOIN_TIMEOUT_S) -> bool:
        """Closes listeners and connections and drops queued requests. Returns whether all threads stopped in time.

        Handlers may still run; their responses are dropped.
        """
        for acceptor in self._acceptors:
            acceptor.begin_shutdown()
        # Before waiting for any thread, because a thread may be waiting for these.
        self.connection_quotas.close()
        self.request_channel.close()
        ended = [acceptor.close(timeout_s) for acceptor in self._acceptors]
        for processor in self._processors:
            # Including those of a listener that failed to start.
            ended.append(processor.close(timeout_s))
        if not all(ended):
            logger.error("Network threads did not stop within %s s", timeout_s)
        return all(ended)


def _principals(config: BrokerConfig) -> SslPrincipalMapper:
    try:
        return SslPrincipalMapper(config.ssl_principal_mapping_rules)
    except ValueError as error:
        option = "ssl.principal.mapping.rules"
        raise OptionError(f"{option}: {error}", option=option) from None
