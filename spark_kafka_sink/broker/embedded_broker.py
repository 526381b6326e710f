"""The embedded broker: Kafka in this process, for development and tests."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Literal, NamedTuple, Self

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_server import BrokerServer, client_settings, librdkafka_settings
from spark_kafka_sink.broker.broker_services import SharedServices
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.broker.cluster.cluster import Cluster, CoordinatorType
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS, NO_LEADER, address_text, partition_for
from spark_kafka_sink.broker.faults.fault_injection import FaultInjection, RunningBroker
from spark_kafka_sink.broker.log.log_types import IsolationLevel
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import OptionError, UsageError
from spark_kafka_sink.records.small_batches import committed

_DEFAULTS = BrokerConfig()
_READ_BYTES = 8 * 1024 * 1024
_MOST_BYTES = 2**31 - 1


class StoredRecord(NamedTuple):
    """A record of a topic.

    Attributes:
        partition: The partition that has it.
        offset: Its offset there.
        timestamp: In ms since the epoch.
        key: None without one.
        value: None for a tombstone.
        headers: Pairs of a name and a value.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class EmbeddedBroker:
    """One or more embedded brokers that behave like Kafka, with ids from 1. Not for production: nothing is replicated.

    Use it as a context manager, or call `start()` and `stop()`. Only one thread at a time may call its methods. Topics, offsets
    and transactions are stored in `config.data_dir`, or in memory until `stop()`. Logins and ACLs are settings of the config.

    Example::

        with EmbeddedBroker() as broker:
            broker.create_topic("events", partitions=3)
            with Producer(broker.client_settings) as producer:
                producer.send("events", value=b"hello")

    Args:
        brokers: the number of brokers.
        port: the first broker's port; the others use the following ports. 0 picks free ports.
        config: the settings of all brokers.
        like: the Kafka release that clients see, such as "3.7": its API versions, features and checks. Overrides `config.like`.
        advertised: (host, port) by broker id: the address that clients are given instead of the broker's own, such as a
            proxy's. Port 0 is the broker's own port.
        tls: True encrypts connections with generated certificates (needs the extra `tls`). A `CertificateAuthority` signs them
            with your own authority instead. Clients need `client_settings`.

    Raises:
        UsageError: `brokers` is less than 1, or the extra `tls` is not installed.
        OptionError: the release is unknown, or settings contradict each other.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        port: int = 0,
        config: BrokerConfig = _DEFAULTS,
        like: str | None = None,
        advertised: Mapping[int, tuple[str, int]] | None = None,
        tls: bool | CertificateAuthority = False,
    ) -> None:
        if brokers < 1:
            raise UsageError(f"brokers={brokers} is not valid: a cluster needs at least one broker", brokers=brokers)
        self._config = config if like is None else replace(config, like=like)
        self._shared: SharedServices | None = None
        self._servers: dict[int, BrokerServer] = {}
        self._ports = {node: port and port + node - 1 for node in range(1, brokers + 1)}
        self._advertised = dict(advertised or {})
        self._faults = FaultInjection(list(self._ports))
        self._authority = CertificateAuthority() if tls is True else tls or None
        if self._authority is not None:
            self._config = _with_certificate(self._config, self._authority, self._hosts())
        if self._config.ssl_client_auth != "none" and not self._config.uses_tls:
            text = (
                f"ssl.client.auth={self._config.ssl_client_auth} needs TLS: set tls=True (--tls FOLDER) or ssl.keystore.location"
            )
            raise OptionError(text, option="ssl_client_auth")

    def __repr__(self) -> str:
        brokers = counted(len(self._ports), "broker")
        folder = "in memory" if self._config.data_dir is None else f"in {self._config.data_dir}"
        kind = f"like Kafka {self._config.like}, {folder}"
        if self._shared is None:
            return f"<EmbeddedBroker not started, {brokers}, {kind}>"
        image = self._shared.cluster.image
        if stopped := len(self._ports) - len(image.up()):
            brokers += f" ({stopped} stopped)"
        topics = sum(name not in INTERNAL_TOPICS for name in image.topics)
        return f"<EmbeddedBroker {self.bootstrap_servers}, {brokers}, {topics} topic{'' if topics == 1 else 's'}, {kind}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the brokers. Clients can connect as soon as it returns. Does nothing if they run.

        Raises:
            OSError: a port is taken.
            UsageError: another broker uses the data folder.
        """
        if self._shared is not None:
            return
        self._shared = SharedServices(self._config, faults=self._faults)
        try:
            self._start(self._shared)
        except BaseException:
            self.stop()
            raise

    def _start(self, shared: SharedServices) -> None:
        self._servers = {
            node: BrokerServer(node, shared, self._config, port=port, advertised=self._advertised.get(node))
            for node, port in self._ports.items()
        }
        shared.start()
        self._faults.attach(
            RunningBroker(
                timer=shared.timer,
                image=lambda: shared.cluster.image,
                disconnect=lambda node: self._servers[node].disconnect(),
                reconnect=lambda node: self._servers[node].reconnect(),
                delay_markers=partial(setattr, shared.transaction_coordinator.markers, "delay_ms"),
                delay_verification=partial(setattr, shared.add_partitions_to_txn_manager, "delay_ms"),
            )
        )
        self._serve(shared, *self._servers.values())

    def _serve(self, shared: SharedServices, *servers: BrokerServer) -> None:
        shared.cluster.brokers_up(*(server.bind() for server in servers))
        for server in servers:
            server.serve()
            self._ports[server.node_id] = server.port

    def stop(self) -> None:
        """Stops the brokers and keeps stored data on disk. Does nothing if they are stopped."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        self._faults.detach()
        for server in self._servers.values():
            server.stop()
        shared.stop()

    # Addresses

    @property
    def bootstrap_servers(self) -> str:
        """The host:port of each broker, separated by commas, for clients."""
        return ",".join(self._address(node) for node in self._servers)

    def _address(self, node: int) -> str:
        host, port = self._advertised.get(node) or (self._config.host, self._ports[node])
        return address_text(host, port or self._ports[node])

    def address(self, broker_id: int) -> str:
        """Returns the host:port that a broker listens on, regardless of what it advertises.

        Raises:
            OptionError: there is no broker `broker_id`.
            UsageError: the broker is not started.
        """
        self._check(broker_id)
        return address_text(self._config.host, self._ports[broker_id])

    @property
    def direct_servers(self) -> str:
        """The addresses for clients that must bypass advertised addresses, in the format of `bootstrap_servers`."""
        ports = (server.direct_port or server.port for server in self._servers.values())
        return ",".join(address_text(self._config.host, port) for port in ports)

    def _hosts(self) -> Iterator[str]:
        """Yields the names and addresses by which clients may reach the brokers."""
        yield from ("localhost", "127.0.0.1", "::1")
        is_wildcard = self._config.host in ("0.0.0.0", "::", "")
        yield socket.gethostname() if is_wildcard else self._config.host
        yield from (host for host, _ in self._advertised.values())

    # Security

    @property
    def authority(self) -> CertificateAuthority | None:
        """The authority that signed the brokers' certificate and signs client certificates; None without `tls`."""
        return self._authority

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings a client needs, under Kafka's names: addresses, protocol, certificates and the first user's login."""
        return self.client_settings_for(None)

    def client_settings_for(self, user: str | None, *, librdkafka: bool = False) -> dict[str, str]:
        """Returns the settings a client needs.

        Args:
            user: the user to log in as. If clients need a certificate, one is created for `CN=<user>`. None: the config's first
                user.
            librdkafka: whether to use librdkafka's names (for confluent-kafka) instead of Kafka's.

        Raises:
            OptionError: the broker has no such user.
        """
        settings = librdkafka_settings if librdkafka else client_settings
        return {"bootstrap.servers": self.bootstrap_servers, **settings(self._config, self._authority, user)}

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, including killed ones."""
        return list(self._ports)

    @property
    def cluster(self) -> Cluster:
        """The cluster's topics, leaders and configs. Raises UsageError if the broker is not started."""
        return self._started().cluster

    def server(self, broker_id: int) -> BrokerServer:
        self._started()
        self._check(broker_id)
        return self._servers[broker_id]

    def _check(self, broker_id: int) -> None:
        if broker_id not in self._ports:
            raise OptionError(
                f"there is no broker {broker_id}; the brokers are {', '.join(map(str, self._ports))}", option="broker_id"
            )

    def _started(self) -> SharedServices:
        if self._shared is None:
            raise UsageError("the broker is not started: call start() or use it in a `with` statement")
        return self._shared

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Creates a topic and returns its name.

        Args:
            name: the topic's name.
            partitions: the number of partitions.
            replication_factor: the number of brokers that can lead each partition.
            configs: Kafka's topic configs, as text.

        Raises:
            ApiException: the topic cannot be created. It has the error code that a client would receive.
        """
        return self.cluster.create_topic(name, partitions, replication_factor, configs=configs).name

    def records(self, topic: str) -> list[StoredRecord]:
        """Returns all records of a topic by partition and offset, as a consumer with isolation.level=read_committed gets them.

        Raises:
            UsageError: there is no such topic, or the broker is not started.
        """
        logs, state = self._started().logs, self.cluster.image.topics.get(topic)
        if state is None:
            raise UsageError(f"there is no topic {topic}; the topics are {', '.join(self.cluster.image.topics) or 'none'}")
        found = []
        for partition in range(len(state.partitions)):
            log = logs.get(topic, partition)
            assert log is not None  # each partition of a topic has one
            position = log.log_start_offset
            while position < log.last_stable_offset:
                read = log.read(position, _READ_BYTES, IsolationLevel.READ_COMMITTED)
                for record, after in committed(b"".join(read.records), read.aborted_transactions, position, _MOST_BYTES):
                    position = after
                    if record is not None:
                        found.append(
                            StoredRecord(partition, record.offset, record.timestamp, record.key, record.value, record.headers)
                        )
        return found

    # Failures

    @property
    def faults(self) -> FaultInjection:
        """Injects errors, delays and other faults for tests. Faults may be set before the start; `stop()` removes them."""
        return self._faults

    def leader(self, topic: str, partition: int = 0) -> int:
        """Returns the id of the broker that leads a `partition` of `topic` now, or -1 if none does."""
        state = self.cluster.image.partition(topic, partition)
        return NO_LEADER if state is None else state.leader

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Moves the leadership of a `partition` of `topic` to the running broker `broker_id`. The old leader then answers
        NOT_LEADER_OR_FOLLOWER.
        """
        self.cluster.move_leader(topic, partition, broker_id)

    def coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """Returns the id of the broker that coordinates `key`, a group id or a transactional id by its `kind`, or -1 if none
        does.
        """
        return self.cluster.coordinator(_coordinator_type(kind), key)

    def move_coordinator(self, kind: Literal["group", "transaction"], key: str, broker_id: int) -> None:
        """Moves the coordination of `key` to the running broker `broker_id`. The old coordinator then answers NOT_COORDINATOR.

        `kind` and `key` are as for `coordinator`. All keys in the same partition of the internal topic move with it.
        """
        topic = self.cluster.internal_topic(_coordinator_type(kind).value)
        self.cluster.move_leader(topic.name, partition_for(key, len(topic.partitions)), broker_id)

    def kill(self, broker_id: int) -> None:
        """Stops the broker `broker_id`: its connections break, and its partitions elect leaders on other replicas."""
        self.server(broker_id).stop()

    def restart(self, broker_id: int) -> None:
        """Starts the broker `broker_id` again, at the same address."""
        shared, server = self._started(), self.server(broker_id)
        server.stop()
        self._serve(shared, server)


def _coordinator_type(kind: str) -> CoordinatorType:
    try:
        return CoordinatorType[kind.upper()]
    except KeyError:
        raise OptionError(f"kind {kind!r} is not valid: it must be 'group' or 'transaction'", option="kind") from None


def _with_certificate(config: BrokerConfig, authority: CertificateAuthority, hosts: Iterable[str]) -> BrokerConfig:
    if config.uses_tls:
        text = "tls=True generates a key and a certificate, but the config has ssl.keystore.* too: use only one of them"
        raise OptionError(text, option="tls")
    made = authority.server(hosts)
    trust = None if config.ssl_truststore_location is not None else config.ssl_truststore_certificates or authority.certificate
    return replace(
        config, ssl_keystore_certificate_chain=made.certificate, ssl_keystore_key=made.key, ssl_truststore_certificates=trust
    )
