"""The address at which a broker is reached, and what a client has to do there first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SecurityProtocol(Enum):
    """Kafka's names. With SSL connections are encrypted. With SASL a client logs in before anything else is served."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on; port 0 takes any that is free (`SocketServer.bound_port` tells which)."""

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
