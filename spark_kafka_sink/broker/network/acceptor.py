"""A thread that takes a listener's new connections and gives them to its Processors in turn."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import Final

from spark_kafka_sink.broker.network.connection_quotas import BadConnections, ConnectionQuotas, TooManyConnectionsError
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.processor import Processor
from spark_kafka_sink.network.selector import Wakeup

logger = logging.getLogger(__name__)

POLL_S: Final = 0.3

BACKLOG: Final = 1024
"""Connections that wait to be accepted. Kafka's 50 (socket.listen.backlog.size) is for acceptors that need not share an
interpreter: what does not fit tries again after a second."""

_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Kafka's Acceptor. Its thread owns the listening socket once it runs; `begin_shutdown` and `close` come from others."""

    def __init__(
        self,
        listener: Listener,
        processors: Sequence[Processor],
        quotas: ConnectionQuotas,
        bad_connections: BadConnections,
    ) -> None:
        self.listener = listener
        self.processors = processors
        self._quotas = quotas
        self._bad_connections = bad_connections
        self._next_processor = 0
        self._stopped = threading.Event()
        self._server = _bound(listener)
        self.port = int(self._server.getsockname()[1])
        self._wakeup = Wakeup()
        self.thread = threading.Thread(target=self._run, name=f"kafka-socket-acceptor-{listener.name}-{self.port}", daemon=True)

    def start(self) -> None:
        """Raises OSError where it cannot listen."""
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
        """Ends its thread, then its Processors'; whether all that was done in time."""
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
                    # Not again at once: it would fail as fast as it can be tried.
                    self._stopped.wait(POLL_S)
                return
            try:
                self._take(sock, _host(str(address[0])), int(address[1]))
            except Exception:
                # A defect, of which the next connection is not to know.
                logger.exception("%s: uncaught exception", self.thread.name)
                sock.close()
            if (pause_s := self._bad_connections.pause_s()) > 0:
                self._stopped.wait(pause_s)

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
        """Assigns a socket to the next Processor that has room; if none has, waits for the last one."""
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
    """Returns an address as Java's InetAddress tells it, and ACLs and quotas name it: an IPv4 one that came over IPv6 as IPv4."""
    return address.removeprefix("::ffff:") if "." in address else address


def _bound(listener: Listener) -> socket.socket:
    """A given port can be connected to from `start` on only, because then it is taken for a broker that is ready. Not so one
    that the system chose: it may give a port to several until one of them listens."""
    server = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
    try:
        server.setblocking(False)
        # A broker that comes back must not wait for the connections of the one before to be forgotten.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((listener.host, listener.port))
        if not listener.port:
            server.listen(BACKLOG)
    except BaseException:
        server.close()
        raise
    return server
