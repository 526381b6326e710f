"""A producer whose brokers are behind a SOCKS5 or HTTP proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.producer.producer import Producer
from tests.kafka.ports import free_ports
from tests.kafka.witness import read_topic
from tests.network.small_proxy import SmallProxy
from tests.waiting import HOUR_MS, wait_until

USER, PASSWORD = "ann", 'p@"ss/:'


@pytest.fixture
def brokers() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=2) as brokers:
        brokers.create_topic("t", partitions=4)
        yield brokers


@pytest.fixture(params=["socks5", "socks5h", "http"])
def proxy(request: pytest.FixtureRequest) -> Iterator[SmallProxy]:
    with closing(SmallProxy(request.param, USER, PASSWORD)) as proxy:
        yield proxy


def url(proxy: SmallProxy, password: str) -> str:
    return f"{proxy.scheme}://{USER}:{password}@{proxy.address[0]}:{proxy.address[1]}"


def test_every_connection_goes_through_the_proxy(
    brokers: EmbeddedBroker, proxy: SmallProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_PASSWORD", PASSWORD)
    servers = [server.rpartition(":") for server in brokers.direct_servers.split(",")]
    with Producer({"bootstrap.servers": brokers.direct_servers, "proxy.url": url(proxy, "${env:PROXY_PASSWORD}")}) as producer:
        for number in range(100):
            producer.send("t", value=b"%d" % number, partition=number % 4)
    found = read_topic(brokers.direct_servers, "t")
    assert sorted(int(record.value or b"") for record in found) == list(range(100))
    # Both brokers lead partitions.
    assert set(proxy.targets) == {(host, int(port)) for host, _, port in servers}


def test_a_wrong_password_is_told_by_the_first_attempt(brokers: EmbeddedBroker, proxy: SmallProxy) -> None:
    with Producer(
        {"bootstrap.servers": brokers.direct_servers, "proxy.url": url(proxy, "wr0ng"), "max.block.ms": HOUR_MS}
    ) as producer:
        sent = producer.send("t", value=b"1")
        with pytest.raises(AuthenticationError, match=r"user (or|and) password of proxy\.url") as error:
            sent.result(0)
    assert "wr0ng" not in str(error.value)


def test_a_proxy_that_is_not_there_is_named(brokers: EmbeddedBroker) -> None:
    (port,) = free_ports(1)
    settings = {"bootstrap.servers": brokers.direct_servers, "proxy.url": f"http://127.0.0.1:{port}", "max.block.ms": "500"}
    named = f"through the proxy http://127.0.0.1:{port}: could not reach the proxy"
    with Producer(settings) as producer:
        # The first of them may end before the first attempt to connect.
        wait_until(lambda: named in str(producer.send("t", value=b"1").exception(0)), named)
