"""The address of a broker, and the protocol that clients must use there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
