"""Addresses: every one of a host is tried, in turn."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connection_states import HostAddresses, bootstrap_nodes
from spark_kafka_sink.network.channel import Address, resolve


def address(host: str) -> Address:
    return Address(socket.AF_INET, (host, 9092))


class Dns:
    """A resolver that answers what it was given last, and counts how often it was asked."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.asked = 0

    def __call__(self, host: str, port: int) -> list[Address]:
        assert (host, port) == ("kafka", 9092)
        self.asked += 1
        return [address(host) for host in self.hosts]


def test_bootstrap_servers_are_nodes_with_negative_ids() -> None:
    assert bootstrap_nodes(["one:9092", "[::1]:9093"]) == {-1: Node(-1, "one", 9092), -2: Node(-2, "::1", 9093)}


def test_ipv4_comes_first_as_in_java(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9092, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
    assert resolve("localhost", 9092) == [address("127.0.0.1"), Address(socket.AF_INET6, ("::1", 9092, 0, 0))]


def test_an_address_as_a_host_is_itself() -> None:
    assert resolve("127.0.0.1", 9092) == [address("127.0.0.1")]


@pytest.mark.parametrize("host", ["a" * 70, "two..dots", "127.0.0.1\0.example"])
def test_what_is_no_host_name_is_an_os_error_like_an_unknown_one(host: str) -> None:
    with pytest.raises(OSError, match="is not a valid host name"):
        resolve(host, 9092)


@pytest.mark.parametrize("port", [-1, 65_536, 2**31 - 1])
def test_what_is_no_port_is_an_os_error_and_not_another_port(port: int) -> None:
    with pytest.raises(OSError, match="is not a valid port"):
        resolve("127.0.0.1", port)


def test_every_address_is_tried_before_the_name_is_resolved_again() -> None:
    dns = Dns("10.0.0.1", "10.0.0.2", "10.0.0.3")
    addresses = HostAddresses("kafka", 9092, dns)
    assert [addresses.take() for _ in range(3)] == [address("10.0.0.1"), address("10.0.0.2"), address("10.0.0.3")]
    assert dns.asked == 1
    addresses.take()
    assert dns.asked == 2


def test_a_single_address_is_tried_again_and_again() -> None:
    addresses = HostAddresses("kafka", 9092, Dns("10.0.0.1"))
    assert {addresses.take() for _ in range(3)} == {address("10.0.0.1")}
