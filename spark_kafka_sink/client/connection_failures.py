"""The last connection failure of each broker, with advice; the first one is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.sasl_login import BrokerAddress
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, PeerError

logger = logging.getLogger(__name__)

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
