"""Where the connection to each node stands, and when it may be tried again: pure, as Java's ClusterConnectionStates."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from spark_kafka_sink.client.addresses import HostAddresses, Resolver, resolve
from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.network.channel import Address

FOREVER_MS: Final = 2**31 - 1
"""A delay that an event on the connection ends, not the clock."""


class ConnectionState(Enum):
    """CONNECTING covers TCP and TLS. Authentication (SASL) will stand between CHECKING_API_VERSIONS and READY."""

    DISCONNECTED = auto()
    CONNECTING = auto()
    CHECKING_API_VERSIONS = auto()
    READY = auto()


S = ConnectionState

NEXT: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    S.DISCONNECTED: frozenset({S.CONNECTING}),
    S.CONNECTING: frozenset({S.CHECKING_API_VERSIONS, S.DISCONNECTED}),
    S.CHECKING_API_VERSIONS: frozenset({S.READY, S.DISCONNECTED}),
    S.READY: frozenset({S.DISCONNECTED}),
}
"""Which state may follow which."""


@dataclass(slots=True)
class NodeConnectionState:
    """`failures` since the connection was ready last, `setup_failures` since TCP connected last."""

    addresses: HostAddresses
    setup_timeout_ms: int
    backoff_ms: int
    state: ConnectionState = S.DISCONNECTED
    attempted_ms: int = 0
    failures: int = 0
    setup_failures: int = 0
    throttled_until_ms: int = 0

    def move(self, state: ConnectionState) -> None:
        if state not in NEXT[self.state]:
            raise UsageError(f"a connection that is {self.state.name} cannot become {state.name}")
        self.state = state


class ClusterConnectionStates:
    """A node that was never tried, or was removed, has no state here and can be connected to at once."""

    def __init__(self, config: ProducerConfig, *, resolver: Resolver = resolve, rng: random.Random | None = None) -> None:
        self._resolve = resolver
        rng = rng or random.Random()
        self._reconnect = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng=rng)
        self._setup = ExponentialBackoff(config.connection_setup_timeout_ms, config.connection_setup_timeout_max_ms, rng=rng)
        self._nodes: dict[int, NodeConnectionState] = {}

    # What happens to a connection

    def connecting(self, node_id: int, host: str, port: int, now_ms: int) -> Address:
        """An attempt begins, at the address returned. Raises OSError when the name does not resolve: also an attempt."""
        node = self._nodes.get(node_id)
        if node is None or (node.addresses.host, node.addresses.port) != (host, port):
            addresses = HostAddresses(host, port, self._resolve)
            node = NodeConnectionState(addresses, self._setup.backoff_ms(0), self._reconnect.backoff_ms(0))
            self._nodes[node_id] = node
        node.move(S.CONNECTING)
        node.attempted_ms = now_ms
        return node.addresses.take()

    def checking_api_versions(self, node_id: int) -> None:
        node = self._nodes[node_id]
        node.move(S.CHECKING_API_VERSIONS)
        self._setup_succeeded(node)

    def ready(self, node_id: int) -> None:
        node = self._nodes[node_id]
        node.move(S.READY)
        node.failures = 0
        node.backoff_ms = self._reconnect.backoff_ms(0)

    def disconnected(self, node_id: int, now_ms: int) -> None:
        """An attempt failed, or an established connection was lost."""
        node = self._nodes[node_id]
        node.attempted_ms = now_ms
        node.backoff_ms = self._reconnect.backoff_ms(node.failures)
        node.failures += 1
        if node.state is S.CONNECTING:
            node.setup_failures += 1
            node.setup_timeout_ms = self._setup.backoff_ms(node.setup_failures)
        else:
            self._setup_succeeded(node)
            node.addresses.forget()
        node.move(S.DISCONNECTED)

    def _setup_succeeded(self, node: NodeConnectionState) -> None:
        node.setup_failures = 0
        node.setup_timeout_ms = self._setup.backoff_ms(0)

    def remove(self, node_id: int) -> None:
        """Forget a node: it may be connected to again without back-off."""
        self._nodes.pop(node_id, None)

    def throttle(self, node_id: int, until_ms: int) -> None:
        """Send nothing until then; never earlier than was said before."""
        node = self._nodes[node_id]
        node.throttled_until_ms = max(node.throttled_until_ms, until_ms)

    # What can be asked

    def is_throttled(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.throttled_until_ms > now_ms

    def state(self, node_id: int) -> ConnectionState | None:
        node = self._nodes.get(node_id)
        return node.state if node else None

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.state is S.READY and node.throttled_until_ms <= now_ms

    def has_ready_nodes(self, now_ms: int) -> bool:
        return any(self.is_ready(node_id, now_ms) for node_id in self._nodes)

    def is_disconnected(self, node_id: int) -> bool:
        """Whether it was tried or connected, and is not now."""
        return self.state(node_id) is S.DISCONNECTED

    def open_nodes(self) -> list[int]:
        """The nodes that there is a connection to, or one being made."""
        return [node_id for node_id, node in self._nodes.items() if node.state is not S.DISCONNECTED]

    def is_preparing(self, node_id: int) -> bool:
        return self.state(node_id) in (S.CONNECTING, S.CHECKING_API_VERSIONS)

    def can_connect(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is None or (node.state is S.DISCONNECTED and now_ms >= node.attempted_ms + node.backoff_ms)

    def attempted_ms(self, node_id: int) -> int:
        """When it was tried last; 0 for never."""
        node = self._nodes.get(node_id)
        return node.attempted_ms if node else 0

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long nothing can change but by an event on the connection."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0
        until = {
            S.DISCONNECTED: node.attempted_ms + node.backoff_ms,
            S.CONNECTING: node.attempted_ms + node.setup_timeout_ms,
            S.CHECKING_API_VERSIONS: now_ms + FOREVER_MS,
            S.READY: node.throttled_until_ms if node.throttled_until_ms > now_ms else now_ms + FOREVER_MS,
        }[node.state]
        return max(0, until - now_ms)

    def setup_deadlines(self) -> Mapping[int, int]:
        """For each node being connected to, when that is to be given up."""
        return {
            node_id: node.attempted_ms + node.setup_timeout_ms
            for node_id, node in self._nodes.items()
            if node.state is S.CONNECTING
        }

    def setup_timeout_ms(self, node_id: int) -> int:
        return self._nodes[node_id].setup_timeout_ms
