"""Fixtures that provide Kafka to tests: `kafka`, `kafka3`, `new_topic`, `proxy`, `proxied_kafka`.

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

from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.find import find_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.proxy import TcpProxy

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
    with find_kafka() as found:
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
