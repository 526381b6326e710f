"""The addresses of a broker, the protocol that clients must use there, and the limits on their connections."""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

logger = logging.getLogger(__name__)


class SecurityProtocol(Enum):
    """Kafka's security protocols. SSL encrypts connections. With SASL, a client must log in before any other request."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on. Port 0 picks a free one, which `SocketServer.bound_port` returns."""

    name: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def is_sasl(self) -> bool:
        return self.security_protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def is_tls(self) -> bool:
        return self.security_protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


UNLIMITED = 2**31 - 1

_LOOK_AGAIN_S = 0.3


class TooManyConnectionsError(Exception):
    """The address has reached its limit of connections."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__(f"{address} already has the configured maximum of {limit} connections (max.connections.per.ip)")


class ConnectionQuotas:
    """Counts connections. Acceptors and Processors call it. The condition guards the counts and `_closed`.

    overrides: limits of single addresses or host names, instead of `max_connections_per_ip`. A connection over its address's
    limit is refused. One over the limit of all waits, together with the Acceptor, until another ends.
    """

    def __init__(
        self,
        *,
        max_connections: int = UNLIMITED,
        max_connections_per_ip: int = UNLIMITED,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        self._max_connections = max_connections
        self._max_per_ip = max_connections_per_ip
        self._overrides = {
            str(info[4][0]): limit for host, limit in (overrides or {}).items() for info in socket.getaddrinfo(host, None)
        }
        self._changed = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._closed = False

    def inc(self, address: str) -> bool:
        """Counts a connection once there is room for it. Returns False if there was none before `close`.

        Raises:
            TooManyConnectionsError: the address has reached its limit; nothing is counted.
        """
        limit = self._overrides.get(address, self._max_per_ip)
        with self._changed:
            while self._total >= self._max_connections and not self._closed:
                self._changed.wait(_LOOK_AGAIN_S)
            if self._closed:
                return False
            if self._counts[address] >= limit:
                raise TooManyConnectionsError(address, limit)
            self._counts[address] += 1
            self._total += 1
            return True

    def dec(self, address: str) -> None:
        with self._changed:
            self._total -= 1
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]
            self._changed.notify_all()

    def count(self, address: str | None = None) -> int:
        """Returns the number of connections of an address, or of all."""
        with self._changed:
            return self._total if address is None else self._counts.get(address, 0)

    def close(self) -> None:
        """Ends all waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
