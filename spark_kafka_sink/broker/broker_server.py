"""One broker: its sockets, its handler threads (Kafka's BrokerServer), and what clients need to connect to it."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import SharedServices
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.broker.cluster.metadata_image import BrokerState
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.listener import Listener, SecurityProtocol
from spark_kafka_sink.broker.network.request_channel import KafkaRequestHandlerPool
from spark_kafka_sink.broker.network.socket_server import SocketServer
from spark_kafka_sink.errors import OptionError

DIRECT_LISTENER = "DIRECT"


class BrokerServer:
    """One broker, which serves from `bind` and `serve` to `stop`. It can start again with the same ports. Not thread-safe."""

    def __init__(
        self,
        node_id: int,
        shared: SharedServices,
        config: BrokerConfig,
        *,
        port: int = 0,
        advertised: tuple[str, int] | None = None,
    ) -> None:
        """Creates a broker that does not listen yet.

        If `advertised` has another port, a second listener advertises the broker's own address, like the inter-broker listener in
        Kafka. Clients that must bypass the proxy use it.

        Args:
            node_id: the broker's id.
            shared: the services that all brokers of the process share.
            config: the broker's settings.
            port: the port to listen on; 0 picks a free one.
            advertised: the (host, port) that clients are given, such as a proxy's; port 0 is the broker's own. None: the address
                where it listens.
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

    def bind(self) -> BrokerState:
        """Binds the port but does not serve requests yet.

        Raises:
            OSError: the port is taken.
        """
        sockets = SocketServer(self._config, served=self.apis.served, listeners=self._listeners(), node_id=self.node_id)
        self.port = sockets.bound_port()
        if self._is_elsewhere:
            self.direct_port = sockets.bound_port(DIRECT_LISTENER)
        handlers = KafkaRequestHandlerPool(self.node_id, sockets.request_channel, self.apis.handle, self._config.num_io_threads)
        self._running = sockets, handlers
        return BrokerState(self.node_id, self._addresses())

    def serve(self) -> None:
        """Serves requests. The cluster must already know this broker, because the first Metadata response must list it."""
        assert self._running is not None
        sockets, handlers = self._running
        handlers.start()
        sockets.start()

    def _listeners(self) -> list[Listener]:
        protocol = security_protocol(self._config)
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
        """Closes the connections and moves leadership to other brokers. Requests in progress have up to 10 s to finish."""
        self._shared.cluster.broker_down(self.node_id)
        self.disconnect()

    def disconnect(self) -> None:
        """Makes the broker unreachable. Unlike `stop`, this leaves its leadership unchanged."""
        if self._running is None:
            return
        sockets, handlers = self._running
        self._running = None
        sockets.stop()
        handlers.stop()

    def reconnect(self) -> None:
        """Ends a `disconnect`. A broker that was stopped in the meantime stays stopped."""
        known = self._shared.cluster.image.brokers.get(self.node_id)
        if self._running is None and known is not None and known.is_up:
            self.bind()
            self.serve()

    def connection_count(self) -> int:
        """Returns the number of open connections; 0 if the broker is stopped."""
        return 0 if self._running is None else self._running[0].connection_quotas.count()


def security_protocol(config: BrokerConfig) -> SecurityProtocol:
    """Returns the security protocol of all listeners of a broker."""
    if config.uses_sasl:
        return SecurityProtocol.SASL_SSL if config.uses_tls else SecurityProtocol.SASL_PLAINTEXT
    return SecurityProtocol.SSL if config.uses_tls else SecurityProtocol.PLAINTEXT


ANYBODY: Final = "client"
"""The user name for a broker without users."""

_MODULES: Final = "org.apache.kafka.common.security"


def client_settings(config: BrokerConfig, authority: CertificateAuthority | None, user: str | None) -> dict[str, str]:
    """Returns the security settings under Kafka's names, for Java's client and for this package's producer.

    Args:
        config: the broker's settings.
        authority: the authority that signs certificates; None without TLS.
        user: the user to log in as. None: the broker's first user.

    Raises:
        OptionError: the broker has no such user.
    """
    settings = {"security.protocol": security_protocol(config).value}
    if authority is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.certificate}
        if config.ssl_client_auth != "none":
            own = authority.client(user or ANYBODY)
            chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
            settings |= {"ssl.keystore.type": "PEM", chain: own.certificate, key: own.key}
    if not config.uses_sasl:
        return settings
    mechanism = settings["sasl.mechanism"] = config.sasl_mechanisms[0]
    name, password = _login(config, user)
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    settings["sasl.jaas.config"] = f"{_MODULES}.{module} required username={_quoted(name)} password={_quoted(password)};"
    return settings


def librdkafka_settings(config: BrokerConfig, authority: CertificateAuthority | None, user: str | None) -> dict[str, str]:
    """Returns the same settings under librdkafka's names, for confluent-kafka."""
    names = {
        "security.protocol": "security.protocol",
        "sasl.mechanism": "sasl.mechanism",
        "ssl.truststore.certificates": "ssl.ca.pem",
        "ssl.keystore.certificate.chain": "ssl.certificate.pem",
        "ssl.keystore.key": "ssl.key.pem",
    }
    given = client_settings(config, authority, user)
    settings = {names[name]: value for name, value in given.items() if name in names}
    if config.uses_sasl:
        settings["sasl.username"], settings["sasl.password"] = _login(config, user)
    return settings


def _login(config: BrokerConfig, user: str | None) -> tuple[str, str]:
    name = next(iter(config.sasl_users)) if user is None else user
    if name not in config.sasl_users:
        raise OptionError(f"there is no user {name!r}; the users are {', '.join(config.sasl_users)}", option="user")
    return name, config.sasl_users[name]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
