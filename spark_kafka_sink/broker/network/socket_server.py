"""The broker's sockets: listeners, their Acceptors and Processors, and the queue to the handlers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.network.acceptor import Acceptor
from spark_kafka_sink.broker.network.connection_quotas import ConnectionQuotas
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.processor import Processor, ProcessorParts
from spark_kafka_sink.broker.network.request_channel import RequestChannel
from spark_kafka_sink.broker.network.ssl_principal_mapper import SslPrincipalMapper
from spark_kafka_sink.broker.network.tls_context import server_context
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import AnyApi

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class NetworkSnapshot:
    """The current state of the network.

    `by_processor`: the connections of each Processor. `blocked_processors`: the number that waits for room in the request queue.
    """

    by_processor: tuple[int, ...]
    request_queue_size: int
    blocked_processors: int

    @property
    def connections(self) -> int:
        return sum(self.by_processor)


class SocketServer:
    """The sockets of a broker (Kafka's SocketServer). The constructor binds ports, `start` serves, `stop` ends it for good.

    Only the thread that owns the broker calls `start` and `stop`; any thread calls `snapshot`.
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

    def snapshot(self) -> NetworkSnapshot:
        return NetworkSnapshot(
            by_processor=tuple(processor.connection_count() for processor in self._processors),
            request_queue_size=self.request_channel.request_queue_size(),
            blocked_processors=self.request_channel.blocked_senders(),
        )


def _principals(config: BrokerConfig) -> SslPrincipalMapper:
    try:
        return SslPrincipalMapper(config.ssl_principal_mapping_rules)
    except ValueError as error:
        option = "ssl.principal.mapping.rules"
        raise OptionError(f"{option}: {error}", option=option) from None
