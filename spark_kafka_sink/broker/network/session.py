"""What a broker knows about who is at the other end of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True)
class Session:
    """One for each connection. Without a lock: a connection has one request at a time, so its handlers come one after another.

    client_software_name, client_software_version: as its ApiVersions told (KIP-511). is_authenticated: set with `principal` by
    who served the last step of a login; counts on listeners with SASL only. sasl_state: that one's own, between the steps.
    has_bare_sasl_tokens: after a SaslHandshake v0 the frames are tokens, without Kafka's headers, until the login is complete.
    """

    client_host: str
    client_port: int
    principal: str = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    is_authenticated: bool = False
    sasl_state: Any = None
    has_bare_sasl_tokens: bool = False
