"""The state of the connection to each node: its address, when it may be retried, and its last failure.

Pure, like Java's ClusterConnectionStates, but for the log of failures.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.sasl_login import BrokerAddress
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, PeerError, UsageError
from spark_kafka_sink.network.channel import Address, resolve
from spark_kafka_sink.network.selector import END_OF_TIME_MS
from spark_kafka_sink.options.producer_options import ProducerConfig

logger = logging.getLogger(__name__)

Resolver: TypeAlias = Callable[[str, int], Sequence[Address]]


def bootstrap_nodes(servers: Iterable[str]) -> Mapping[int, Node]:
    """Returns a node for each of bootstrap.servers, with negative ids as in Java, because the real ids are unknown."""
    nodes = {}
    for number, server in enumerate(servers, start=1):
        host, _, port = server.rpartition(":")
        nodes[-number] = Node(-number, host.removeprefix("[").removesuffix("]"), int(port), None)
    return nodes


class HostAddresses:
    """The addresses of one host; each is tried once before the name is resolved again (client.dns.lookup=use_all_dns_ips).

    last: the address tried last; None before the first attempt.
    """

    def __init__(self, host: str, port: int, resolver: Resolver = resolve) -> None:
        self.host = host
        self.port = port
        self._resolve = resolver
        self._untried: deque[Address] = deque()
        self.last: Address | None = None

    def take(self) -> Address:
        """Returns the address to try now. Raises OSError if the name does not resolve."""
        if not self._untried:
            self._untried.extend(self._resolve(self.host, self.port))
            # The previous address comes last, because it may belong to a failed instance.
            if self._untried[0] == self.last:
                self._untried.rotate(-1)
        self.last = self._untried.popleft()
        return self.last

    def forget(self) -> None:
        """Makes the next `take` resolve the name again, because the host may have moved."""
        self._untried.clear()


FOREVER_MS: Final = 2**31 - 1
"""A delay that ends with an event on the connection, not at a given time."""


class ConnectionState(Enum):
    """The state of one connection.

    CONNECTING covers TCP and TLS. AUTHENTICATING is a SASL login; REAUTHENTICATING is a login before the session's end, during
    which requests in flight are answered and new ones wait. PROBING is a separate connection after a failed one, which finds out
    which protocol the other end speaks. AUTHENTICATION_FAILED is DISCONNECTED by a failure that the same settings cause again.
    """

    DISCONNECTED = auto()
    CONNECTING = auto()
    CHECKING_API_VERSIONS = auto()
    AUTHENTICATING = auto()
    READY = auto()
    REAUTHENTICATING = auto()
    PROBING = auto()
    AUTHENTICATION_FAILED = auto()


S = ConnectionState

_ENDS: Final = frozenset({S.DISCONNECTED, S.AUTHENTICATION_FAILED})

NEXT: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    S.DISCONNECTED: frozenset({S.CONNECTING}),
    S.CONNECTING: frozenset({S.CHECKING_API_VERSIONS, S.PROBING}) | _ENDS,
    S.CHECKING_API_VERSIONS: frozenset({S.AUTHENTICATING, S.READY, S.PROBING}) | _ENDS,
    S.AUTHENTICATING: frozenset({S.AUTHENTICATING, S.READY}) | _ENDS,
    S.READY: frozenset({S.REAUTHENTICATING, S.PROBING}) | _ENDS,
    S.REAUTHENTICATING: frozenset({S.READY}) | _ENDS,
    S.PROBING: _ENDS,
    S.AUTHENTICATION_FAILED: frozenset({S.CONNECTING}),
}
"""The allowed transitions between states."""

_PREPARING: Final = frozenset({S.CONNECTING, S.CHECKING_API_VERSIONS, S.AUTHENTICATING, S.REAUTHENTICATING, S.PROBING})
_WITH_DEADLINE: Final = frozenset({S.CONNECTING, S.AUTHENTICATING, S.PROBING})


@dataclass(slots=True)
class NodeConnectionState:
    """One node's connection.

    failures: number of failures since it was last ready. setup_failures: number of failures since TCP last connected.
    deadline_ms: when to give up CONNECTING, AUTHENTICATING or PROBING.
    """

    addresses: HostAddresses
    setup_timeout_ms: int
    backoff_ms: int
    state: ConnectionState = S.DISCONNECTED
    attempted_ms: int = 0
    failures: int = 0
    setup_failures: int = 0
    throttled_until_ms: int = 0
    deadline_ms: int = 0

    def move(self, state: ConnectionState) -> None:
        if state not in NEXT[self.state]:
            raise UsageError(f"a connection that is {self.state.name} cannot become {state.name}")
        self.state = state


class ClusterConnectionStates:
    """The connections of all nodes. A node that was never tried, or was removed, has no state; it may be connected at once."""

    def __init__(self, config: ProducerConfig, *, resolver: Resolver = resolve, rng: random.Random | None = None) -> None:
        self._resolve = resolver
        rng = rng or random.Random()
        self._reconnect = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng=rng)
        self._setup = ExponentialBackoff(config.connection_setup_timeout_ms, config.connection_setup_timeout_max_ms, rng=rng)
        self._nodes: dict[int, NodeConnectionState] = {}
        # No attempt is overdue before this time. It may be earlier than any deadline, because success does not change it.
        self.due_ms = END_OF_TIME_MS

    # What happens to a connection

    def connecting(self, node_id: int, host: str, port: int, now_ms: int) -> Address:
        """Begins an attempt and returns its address. Raises OSError if the name does not resolve, which counts as an attempt."""
        node = self._nodes.get(node_id)
        if node is None or (node.addresses.host, node.addresses.port) != (host, port):
            addresses = HostAddresses(host, port, self._resolve)
            node = NodeConnectionState(addresses, self._setup.backoff_ms(0), self._reconnect.backoff_ms(0))
            self._nodes[node_id] = node
        node.move(S.CONNECTING)
        node.attempted_ms = now_ms
        self._set_deadline(node, now_ms + node.setup_timeout_ms)
        return node.addresses.take()

    def checking_api_versions(self, node_id: int) -> None:
        node = self._nodes[node_id]
        node.move(S.CHECKING_API_VERSIONS)
        self._setup_succeeded(node)

    def authenticating(self, node_id: int, deadline_ms: int) -> None:
        """Begins a login that must end by the deadline, or moves the deadline of the current login."""
        node = self._nodes[node_id]
        node.move(S.AUTHENTICATING)
        self._set_deadline(node, deadline_ms)

    def reauthenticating(self, node_id: int) -> None:
        """Holds back new requests until the session is renewed (`ready`) or the connection is ended."""
        self._nodes[node_id].move(S.REAUTHENTICATING)

    def probing(self, node_id: int, deadline_ms: int) -> Address | None:
        """Keeps the attempt open after its connection was lost. Returns the address that was tried."""
        node = self._nodes[node_id]
        node.move(S.PROBING)
        self._set_deadline(node, deadline_ms)
        return node.addresses.last

    def _set_deadline(self, node: NodeConnectionState, deadline_ms: int) -> None:
        node.deadline_ms = deadline_ms
        self.due_ms = min(self.due_ms, deadline_ms)

    def ready(self, node_id: int) -> None:
        node = self._nodes[node_id]
        node.move(S.READY)
        node.failures = 0
        node.backoff_ms = self._reconnect.backoff_ms(0)

    def disconnected(self, node_id: int, now_ms: int, *, authentication_failed: bool = False) -> None:
        """Records that an attempt failed, or that an established connection was lost."""
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
        node.move(S.AUTHENTICATION_FAILED if authentication_failed else S.DISCONNECTED)

    def _setup_succeeded(self, node: NodeConnectionState) -> None:
        node.setup_failures = 0
        node.setup_timeout_ms = self._setup.backoff_ms(0)

    def remove(self, node_id: int) -> None:
        """Forgets a node, so that it may be connected again without backoff."""
        self._nodes.pop(node_id, None)

    def throttle(self, node_id: int, until_ms: int) -> None:
        """Holds back requests until `until_ms`, or until a later time set before."""
        node = self._nodes[node_id]
        node.throttled_until_ms = max(node.throttled_until_ms, until_ms)

    # Queries

    def is_throttled(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.throttled_until_ms > now_ms

    def throttled_ms(self, now_ms: int) -> dict[int, int]:
        """Returns how long requests to each throttled node are still held back, in ms. From any thread."""
        nodes = list(self._nodes.items())  # an atomic copy
        return {node_id: node.throttled_until_ms - now_ms for node_id, node in nodes if node.throttled_until_ms > now_ms}

    def state(self, node_id: int) -> ConnectionState | None:
        node = self._nodes.get(node_id)
        return node.state if node else None

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.state is S.READY and node.throttled_until_ms <= now_ms

    def is_disconnected(self, node_id: int) -> bool:
        """Returns whether the node was tried or connected, and is now disconnected."""
        return self.state(node_id) in _ENDS

    def open_nodes(self) -> list[int]:
        """Returns the nodes that are connected or being connected to."""
        return [node_id for node_id, node in self._nodes.items() if node.state not in _ENDS]

    def is_preparing(self, node_id: int) -> bool:
        """Returns whether the node becomes ready, or is lost, without further calls."""
        return self.state(node_id) in _PREPARING

    def can_connect(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is None or (node.state in _ENDS and now_ms >= node.attempted_ms + node.backoff_ms)

    def attempted_ms(self, node_id: int) -> int:
        """Returns when the node was last tried; 0 if never."""
        node = self._nodes.get(node_id)
        return node.attempted_ms if node else 0

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """Returns the time for which only an event on the connection can change anything, in ms."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0
        if node.state in _ENDS:
            until = node.attempted_ms + node.backoff_ms
        elif node.state in _WITH_DEADLINE:
            until = node.deadline_ms
        elif node.state is S.READY and node.throttled_until_ms > now_ms:
            until = node.throttled_until_ms
        else:
            return FOREVER_MS
        return max(0, until - now_ms)

    def overdue(self, now_ms: int) -> list[int]:
        """Returns the nodes whose attempt to connect, to log in or to probe must be given up."""
        if now_ms < self.due_ms:
            return []
        deadlines = {node_id: node.deadline_ms for node_id, node in self._nodes.items() if node.state in _WITH_DEADLINE}
        self.due_ms = min(deadlines.values(), default=END_OF_TIME_MS)
        return [node_id for node_id, deadline_ms in deadlines.items() if deadline_ms <= now_ms]

    def setup_timeout_ms(self, node_id: int) -> int:
        return self._nodes[node_id].setup_timeout_ms


# Failures

MAX_NAMED: Final = 5
"""Maximum number of brokers in one error text."""


class ConnectionFailures:
    """The brokers by node id, as last connected, and their failures. Owned by the thread of Connections.

    named_by: the node whose metadata is in use; None before the first. Set by the code that requests metadata.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerAddress] = {}
        self.named_by: int | None = None
        self._reached: set[int] = set()
        self._failures: dict[int, PeerError] = {}

    def connecting(self, node: Node) -> BrokerAddress:
        label = f"bootstrap server {node.host}:{node.port}" if node.id < 0 else str(node)
        broker = self.brokers[node.id] = BrokerAddress(label, node.host, node.port)
        return broker

    def ready(self, node_id: int) -> None:
        self._reached.add(node_id)
        self._failures.pop(node_id, None)

    def was_reached(self, node_id: int) -> bool:
        """Returns whether the node was ever ready."""
        return node_id in self._reached

    def label(self, node_id: int) -> str:
        """Returns a node's readable name."""
        broker = self.brokers.get(node_id)
        return f"broker {node_id}" if broker is None else broker.label

    def last(self, node_id: int) -> PeerError | None:
        """Returns why a disconnected node was lost or not reached; None if there was no failure since it was ready."""
        return self._failures.get(node_id)

    def of(self, node_ids: Iterable[int]) -> str:
        """Returns, as text, why the first few nodes are not connected; empty if nothing failed. From any thread."""
        failures = [f"{self.label(node_id)}: {failure.message}" for node_id in node_ids if (failure := self.last(node_id))]
        more = [f"and {len(failures) - MAX_NAMED} more"] if len(failures) > MAX_NAMED else []
        return "; ".join([*failures[:MAX_NAMED], *more])

    def failed(self, node_id: int, error: PeerError, *, is_first_step: bool) -> PeerError:
        """Records a failure. Returns it, with advice added if there is any.

        is_first_step: whether the connection could not be established at all.
        """
        told = self._with_advice(node_id, error) if is_first_step else error
        before = self._failures.get(node_id)
        self._failures[node_id] = told
        is_final = isinstance(told, AuthenticationError)
        if (is_final or told is not error) and (before is None or before.message != told.message):
            # A repeated failure is not logged again; waiting callers get it as well.
            logger.log(logging.ERROR if is_final else logging.WARNING, "%s", told.message)
        return told

    def _with_advice(self, node_id: int, error: PeerError) -> PeerError:
        """Adds the broker that advertised an address that could never be reached."""
        named_by = None if self.named_by is None else self.brokers.get(self.named_by)
        broker = self.brokers[node_id]
        if node_id < 0 or self.was_reached(node_id) or named_by is None or not isinstance(error, DisconnectedError):
            return error
        if (named_by.host, named_by.port) == (broker.host, broker.port):
            return error
        text = (
            f"{error.message}. {named_by.label} responded, and advertises {broker} for broker {node_id}: if this machine"
            " cannot reach that address, correct advertised.listeners on the broker"
        )
        return DisconnectedError(text, **error.facts | {"advertised": str(broker)})
