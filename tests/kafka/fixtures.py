"""Fixtures that provide Kafka to tests: `kafka`, `kafka3`, `new_topic`, `proxy`, `proxied_kafka`, `versioned_kafka`.

Each test runs on embedded brokers, with the mark `embedded`, and on real ones, with the mark `kafka`. It must not see a
difference.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import pytest
from _pytest.mark import ParameterSet

from tests.kafka.acls import KafkaWithAcls
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import TcpProxy
from tests.kafka.versions import DEFAULT, OLDEST, POMS

_numbers = itertools.count()


class NewTopic(Protocol):
    def __call__(
        self,
        partitions: int = 1,
        *,
        on: Kafka | None = None,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str: ...


BrokerKind = Literal["embedded", "kafka"]

_EMBEDDED = pytest.param("embedded", marks=pytest.mark.embedded)
_REAL = pytest.param("kafka", marks=pytest.mark.kafka)

only_real_kafka = pytest.mark.parametrize("broker_kind", [_REAL], indirect=True)
"""Marks a test that needs something embedded brokers lack: a process, Java's log or its tools. The test says which."""


def embedded_in_make_test(why: str) -> pytest.MarkDecorator:
    """Marks a test whose run on real Kafka only `make test-all` has. why: what it costs, or who else asks real Kafka."""
    return pytest.mark.parametrize("broker_kind", _embedded_first(why), indirect=True)


def _embedded_first(why: str) -> list[ParameterSet]:
    return [_EMBEDDED, pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.whole(why)])]


on_real_kafka = pytest.mark.parametrize("broker_kind", [_EMBEDDED, _REAL], indirect=True)
"""Marks a test of a file with `embedded_broker_kind` that real Kafka judges in `make test` as well."""


def embedded_broker_kind(why: str) -> Callable[..., BrokerKind]:
    """Returns the fixture `broker_kind` for a file or folder whose runs on real Kafka only `make test-all` has. why: as above."""

    @pytest.fixture(name="broker_kind", params=_embedded_first(why))
    def of_file(request: pytest.FixtureRequest) -> BrokerKind:
        kind: BrokerKind = request.param
        return kind

    return of_file


@pytest.fixture(params=[_EMBEDDED, _REAL])
def broker_kind(request: pytest.FixtureRequest) -> BrokerKind:
    """The kind of brokers that the fixtures below provide."""
    kind: BrokerKind = request.param
    return kind


@pytest.fixture(scope="session")
def _embedded_kafka() -> Iterator[Kafka]:
    with EmbeddedKafka(in_memory=True) as made:
        yield made


@pytest.fixture(scope="session")
def _real_kafka() -> Iterator[Kafka]:
    # This one need not be from Maven.
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    with Kafka(named) if named else KafkaCluster() as found:
        yield found


@pytest.fixture
def kafka(broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Kafka:
    """One Kafka for the whole run. Tests share it, so they create their own topics and neither stop nor slow it."""
    found: Kafka = request.getfixturevalue("_embedded_kafka" if broker_kind == "embedded" else "_real_kafka")
    return found


@pytest.fixture(scope="session")
def _three_embedded_brokers() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _three_real_brokers() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture
def kafka3(broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Three brokers that a test may kill and pause. Afterwards the fixture restarts them."""
    name = "_three_embedded_brokers" if broker_kind == "embedded" else "_three_real_brokers"
    brokers: Brokers = request.getfixturevalue(name)
    yield brokers
    brokers.heal()


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    """A proxy without a destination; set it with `proxy.forward_to("host:port")`."""
    with TcpProxy() as made:
        yield made


@dataclass(frozen=True)
class ProxiedKafka:
    """One broker that clients know only by its proxy's address."""

    cluster: Brokers
    proxy: TcpProxy


@pytest.fixture(scope="session")
def _embedded_broker_behind_proxy() -> Iterator[ProxiedKafka]:
    with TcpProxy() as proxy, EmbeddedKafka(advertised={1: proxy.address}) as cluster:
        proxy.forward_to(cluster.address(1))
        yield ProxiedKafka(cluster, proxy)


@pytest.fixture(scope="session")
def _real_broker_behind_proxy() -> Iterator[ProxiedKafka]:
    with TcpProxy() as proxy, KafkaCluster(1, advertised={1: proxy.address}) as cluster:
        proxy.forward_to(cluster.address(1))
        yield ProxiedKafka(cluster, proxy)


@pytest.fixture
def proxied_kafka(broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Iterator[ProxiedKafka]:
    """A broker behind a proxy, for network faults. The fixture undoes them after the test."""
    name = "_embedded_broker_behind_proxy" if broker_kind == "embedded" else "_real_broker_behind_proxy"
    behind: ProxiedKafka = request.getfixturevalue(name)
    yield behind
    behind.proxy.heal()


@pytest.fixture
def new_topic(broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Iterator[NewTopic]:
    """Creates topics with unique names: `new_topic(8)`, `new_topic(on=kafka3, config={"retention.ms": "-1"})`.

    Topics are created on `kafka` unless `on` is set. Those on `kafka` are deleted after the test.
    """
    made: list[tuple[Kafka, str]] = []

    def create(
        partitions: int = 1,
        *,
        on: Kafka | None = None,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        cluster: Kafka = on if on is not None else request.getfixturevalue("kafka")
        name = f"test-{os.getpid()}-{next(_numbers)}-{request.node.name[:40]}"
        name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
        cluster.create_topic(name, partitions, replication, config)
        if on is None:
            made.append((cluster, name))
        return name

    yield create
    for cluster, name in made:
        cluster.delete_topic(name)


# The fixtures of tests on transactions: `kafka_tv1`, `transaction_kafka`, `kafka_with_acls`. Each Kafka starts when it is first


# What StorageTool finalizes transaction.version at for producers of version 1. At 1 they would do the same (TransactionManager,
# KIP-890): only the records of the coordinator's log differ.
VERSION_1_LEVEL = 0


@pytest.fixture(scope="session")
def _embedded_kafka_tv1() -> Iterator[Kafka]:
    with EmbeddedKafka(in_memory=True, transaction_version=VERSION_1_LEVEL) as made:
        yield made


@pytest.fixture(scope="session")
def _real_kafka_tv1() -> Iterator[Kafka]:
    with KafkaCluster(features={"transaction.version": VERSION_1_LEVEL}) as made:
        yield made


@pytest.fixture
def kafka_tv1(broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Kafka:
    """One broker for the whole run, as `kafka`, but with transactions of version 1. Topics: `new_topic(on=kafka_tv1)`."""
    found: Kafka = request.getfixturevalue("_embedded_kafka_tv1" if broker_kind == "embedded" else "_real_kafka_tv1")
    return found


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    """Which version of transactions producers speak to `transaction_kafka`."""
    version: int = request.param
    return version


@pytest.fixture
def transaction_kafka(transaction_version: int, broker_kind: BrokerKind, request: pytest.FixtureRequest) -> Kafka:
    """`kafka_tv1`, then `kafka`: what is seen of the two must not differ. Topics: `new_topic(on=transaction_kafka)`."""
    # broker_kind is named for its parameters: what is asked for by name below adds none to a test.
    found: Kafka = request.getfixturevalue("kafka_tv1" if transaction_version == 1 else "kafka")
    return found


@pytest.fixture(scope="session")
def _real_kafka_with_acls() -> Iterator[KafkaWithAcls]:
    with KafkaWithAcls() as made:
        yield made


# The parameter is there for its mark: embedded brokers have no ACLs.
@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.kafka)])
def kafka_with_acls(request: pytest.FixtureRequest) -> Iterator[KafkaWithAcls]:
    """A real broker, for the whole run, that allows everything but what a test forbids; that is undone after the test."""
    made: KafkaWithAcls = request.getfixturevalue("_real_kafka_with_acls")
    yield made
    made.allow_everything()


# Several versions of Kafka

# The last protocol version between brokers before topics got ids.
WITHOUT_TOPIC_IDS = {"inter.broker.protocol.version": "2.7"}
# The newest one in ZooKeeper mode, whose topics have no ids here.
IN_ZOOKEEPER_MODE = "3.8"
# All in ZooKeeper mode. They have two brokers, so that one of them is not the controller.
WITH_ZOOKEEPER = frozenset({OLDEST, "2.8", IN_ZOOKEEPER_MODE})
# Others find the same, but for what the oldest lack: tests/kafka_versions/test_commands.py, test_at_least_once.py. All others
# run on the default version.
_WHOLE = frozenset({OLDEST, "2.8", "3.3", "3.9", "4.0", DEFAULT})
_NEIGHBOURS = "a cluster of its own, and the neighbouring versions find the same"
HEAP_MB = 256


def only_versions(*versions: str, in_make_test: bool = False, whole: str = "") -> pytest.MarkDecorator:
    """A test with this mark asks for `versioned_kafka` and runs on `versions` only.

    in_make_test: whether it runs in `make test` on each of them. whole: why it runs there on none of them.
    """
    params = [_param(each, whole or ("" if in_make_test else _why_whole(each))) for each in versions]
    return pytest.mark.parametrize("kafka_version", params, indirect=True, scope="session")


def _why_whole(version: str) -> str:
    return _NEIGHBOURS if version in _WHOLE else ""


def _param(version: str, why_whole: str) -> object:
    whole = [pytest.mark.whole(why_whole)] if why_whole else []
    name = f"{version}-zookeeper" if version in WITH_ZOOKEEPER else version
    return pytest.param(version, marks=[pytest.mark.kafka, *whole], id=name)


# For the session, so that pytest puts the tests of a version together and only one of these clusters lives at a time.
@pytest.fixture(scope="session", params=[_param(each, _why_whole(each)) for each in sorted(POMS)])
def kafka_version(request: pytest.FixtureRequest) -> str:
    """The version of `versioned_kafka`, such as "3.9"."""
    version: str = request.param
    return version


@pytest.fixture(scope="session")
def versioned_kafka(kafka_version: str) -> Iterator[KafkaCluster]:
    """A real Kafka of each version in turn; 2.1, 2.8 and 3.8 are in ZooKeeper mode, and 2.1 and 3.8 have no topic ids.

    Tests share it: they make topics of their own with `versioned_kafka.create_topic` and neither stop nor slow it.
    """
    has_zookeeper = kafka_version in WITH_ZOOKEEPER
    overrides = WITHOUT_TOPIC_IDS if kafka_version == IN_ZOOKEEPER_MODE else {}
    with KafkaCluster(
        2 if has_zookeeper else 1, overrides, version=kafka_version, zookeeper=has_zookeeper, heap_mb=HEAP_MB
    ) as cluster:
        yield cluster
