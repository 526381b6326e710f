"""One broker: its sockets and handler threads, over what all brokers of the process share (Kafka's BrokerServer)."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import SharedServices
from spark_kafka_sink.broker.cluster.metadata_image import BrokerState
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.kafka_request_handler_pool import KafkaRequestHandlerPool
from spark_kafka_sink.broker.network.listener import Listener, SecurityProtocol
from spark_kafka_sink.broker.network.socket_server import NetworkSnapshot, SocketServer

DIRECT_LISTENER = "DIRECT"


class BrokerServer:
    """From `bind` and `serve` to `stop`, and again. One thread calls these; ports stay the same from the first time on."""

    def __init__(
        self,
        node_id: int,
        shared: SharedServices,
        config: BrokerConfig,
        *,
        port: int = 0,
        advertised: tuple[str, int] | None = None,
    ) -> None:
        """`advertised`: where clients are told to find it, such as a proxy; port 0: its own. None: where it listens.

        Where that is another port, a second listener tells its own address, as that for brokers does in Kafka: for who is not to
        meet the proxy.
        """
        self.node_id = node_id
        self._shared = shared
        self._config = config
        self._advertised = advertised
        self._running: tuple[SocketServer, KafkaRequestHandlerPool] | None = None
        self.port = port
        self.direct_port = 0
        self.apis = KafkaApis(shared.of_broker(node_id), faults=shared.faults.of_broker(node_id))

    @property
    def _is_elsewhere(self) -> bool:
        return self._advertised is not None and self._advertised[1] != 0

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def bind(self) -> BrokerState:
        """Take the port; nobody is served yet. Raises OSError where it is taken."""
        sockets = SocketServer(self._config, served=self.apis.served, listeners=self._listeners(), node_id=self.node_id)
        self.port = sockets.bound_port()
        if self._is_elsewhere:
            self.direct_port = sockets.bound_port(DIRECT_LISTENER)
        handlers = KafkaRequestHandlerPool(self.node_id, sockets.request_channel, self.apis.handle, self._config.num_io_threads)
        self._running = sockets, handlers
        return BrokerState(self.node_id, self._addresses())

    def serve(self) -> None:
        """After `bind`, and after the cluster knows of it: the first who asks it for metadata must find it there."""
        assert self._running is not None
        sockets, handlers = self._running
        handlers.start()
        sockets.start()

    def _listeners(self) -> list[Listener]:
        protocol = SecurityProtocol.SASL_PLAINTEXT if self._config.sasl_users else SecurityProtocol.PLAINTEXT
        listeners = [Listener(protocol.value, self._config.host, self.port, protocol)]
        if self._is_elsewhere:
            listeners.append(Listener(DIRECT_LISTENER, self._config.host, self.direct_port, protocol))
        return listeners

    def _addresses(self) -> dict[str, tuple[str, int]]:
        own = {listener.name: (listener.host, listener.port) for listener in self._listeners()}
        if self._advertised is None:
            return own
        host, port = self._advertised
        return own | {next(iter(own)): (host, port or self.port)}

    def stop(self) -> None:
        """Its connections end; what it led goes to the others. What is being served is finished first, for 10 s at most."""
        self._shared.cluster.broker_down(self.node_id)
        self.disconnect()

    def disconnect(self) -> None:
        """As `stop`, but the cluster does not notice: it goes on to lead what it leads, and nobody reaches it."""
        if self._running is None:
            return
        sockets, handlers = self._running
        self._running = None
        sockets.stop()
        handlers.stop()

    def reconnect(self) -> None:
        """After `disconnect`. One that was stopped meanwhile stays so."""
        known = self._shared.cluster.image.brokers.get(self.node_id)
        if self._running is None and known is not None and known.is_up:
            self.bind()
            self.serve()

    def snapshot(self) -> NetworkSnapshot | None:
        """What its sockets and queues do now; None where it is stopped."""
        return None if self._running is None else self._running[0].snapshot()
