"""A reactor with handlers of a test's own, on a free port of the loopback address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import BrokerServices, SharedServices
from spark_kafka_sink.broker.handlers.common import Handler
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request_channel import KafkaRequestHandlerPool
from spark_kafka_sink.broker.network.socket_server import SocketServer
from spark_kafka_sink.protocol.api import ApiKey
from tests.broker.network.client import Client
from tests.broker.virtual_timer import VirtualTimer


def services(**config: Any) -> BrokerServices:
    """With a real cluster and a timer that stands still. Handlers of these tests ask for nothing else."""
    settings = BrokerConfig(**config)
    return SharedServices(settings, VirtualTimer()).of_broker(0)


class Server:
    """SocketServer, KafkaApis and the handlers' threads, started and stopped together."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler] | None = None,
        *,
        listeners: Sequence[Listener] = (Listener(),),
        **config: Any,
    ) -> None:
        broker = services(**config)
        self.apis = KafkaApis(broker, handlers=handlers or {})
        self.sockets = SocketServer(broker.config, served=self.apis.served, listeners=listeners)
        self.pool = KafkaRequestHandlerPool(0, self.sockets.request_channel, self.apis.handle, broker.config.num_io_threads)
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        self.pool.start()
        self.sockets.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for client in self._clients:
            client.close()
        assert self.sockets.stop()
        assert self.pool.stop()

    @property
    def port(self) -> int:
        return self.sockets.bound_port()

    def client(self, **options: Any) -> Client:
        """Connected to the first listener; closed with the server."""
        client = Client(self.port, **options)
        self._clients.append(client)
        return client
