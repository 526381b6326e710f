"""The fixtures of real Kafka: `kafka`, `kafka3`, `new_topic`, `proxy`, `proxied_kafka`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pytest

from tests.kafka.cluster import KafkaCluster
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


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One real Kafka for the whole run. Tests share it: they make topics of their own and neither stop nor slow it."""
    with find_kafka() as found:
        yield found


@pytest.fixture(scope="session")
def _three_brokers() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture
def kafka3(_three_brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers of our own, to be killed and paused at will: what a test left down is brought back after it."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    """A proxy to nowhere yet: `proxy.forward_to("host:port")`."""
    with TcpProxy() as made:
        yield made


@dataclass(frozen=True)
class ProxiedKafka:
    """One broker whose clients know it only by its proxy's address."""

    cluster: KafkaCluster
    proxy: TcpProxy


@pytest.fixture(scope="session")
def _broker_behind_proxy() -> Iterator[ProxiedKafka]:
    with TcpProxy() as proxy, KafkaCluster(1, advertised={1: proxy.address}) as cluster:
        proxy.forward_to(cluster.address(1))
        yield ProxiedKafka(cluster, proxy)


@pytest.fixture
def proxied_kafka(_broker_behind_proxy: ProxiedKafka) -> Iterator[ProxiedKafka]:
    """A broker of our own behind a proxy, for faults on the wire; they are undone after the test."""
    yield _broker_behind_proxy
    _broker_behind_proxy.proxy.heal()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Iterator[NewTopic]:
    """Makes topics under names nobody else has: `new_topic(8)`, `new_topic(on=kafka3, config={"retention.ms": "-1"})`.

    They are made on `kafka` unless `on` says otherwise. Those on `kafka` are deleted after the test.
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
