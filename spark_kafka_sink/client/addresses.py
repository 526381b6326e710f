"""From the host:port of a broker to the addresses to connect to, all of them in turn."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.network.channel import Address

Resolver: TypeAlias = Callable[[str, int], Sequence[Address]]


def bootstrap_nodes(servers: Iterable[str]) -> Mapping[int, Node]:
    """A node for each of bootstrap.servers. Their ids are negative, as in Java, since the real ones are not known yet."""
    nodes = {}
    for number, server in enumerate(servers, start=1):
        host, _, port = server.rpartition(":")
        nodes[-number] = Node(-number, host.removeprefix("[").removesuffix("]"), int(port), None)
    return nodes


def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host, IPv4 first as Java has them by default: brokers that listen on one family listen on that.

    Raises OSError where there is none. Waits for the system's resolver, which has timeouts of its own.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no host name: {error}") from error
    addresses = dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found)
    return sorted(addresses, key=lambda address: address.family != socket.AF_INET)


class HostAddresses:
    """The addresses of one host: each is tried once before the name is resolved again (client.dns.lookup=use_all_dns_ips)."""

    def __init__(self, host: str, port: int, resolver: Resolver = resolve) -> None:
        self.host = host
        self.port = port
        self._resolve = resolver
        self._untried: deque[Address] = deque()
        self._last: Address | None = None

    def take(self) -> Address:
        """The address to try now. Raises OSError when the name does not resolve."""
        if not self._untried:
            self._untried.extend(self._resolve(self.host, self.port))
            # Whatever made us leave the last one (a load balancer's dead instance, say), the others come first.
            if self._untried[0] == self._last:
                self._untried.rotate(-1)
        self._last = self._untried.popleft()
        return self._last

    def forget(self) -> None:
        """Resolve again next time: the host may have moved since."""
        self._untried.clear()
