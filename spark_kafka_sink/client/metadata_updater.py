"""What a NetworkClient needs of metadata: whom it can ask, what to ask, and where answers and failures go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse


@dataclass(frozen=True, slots=True)
class MetadataRequestAndVersion:
    """A request for metadata as it is made; the same object comes back with its answer.

    `body` makes the message for the version of the Metadata API that the broker turned out to speak. `update_version` is
    what `request_update()` returned last when it was made: who waits for that version or an older one is served by its
    answer. `partial`: it asks for new topics only, the answer says nothing of the others.
    """

    body: Callable[[int], MetadataRequest]
    update_version: int
    partial: bool


class MetadataUpdater(Protocol):
    """Called on the thread that polls the NetworkClient; times are monotonic milliseconds. None of it may wait.

    A `node_label` names a broker for people: `bootstrap server host:port`, or `broker 1 (host:port)`.
    """

    def nodes(self) -> Mapping[int, Node]:
        """The brokers of the last answer by id; empty before the first one: then bootstrap.servers are asked."""
        ...

    def time_to_next_update_ms(self, now_ms: int) -> int:
        """0: an update is due now. Back-off after `failed_attempt` and after an unchanged answer is in it."""
        ...

    def next_request(self, now_ms: int) -> MetadataRequestAndVersion:
        """What to ask now. Until `update` or `failed_attempt` follows, no other request is made."""
        ...

    def asking(self, node_label: str, doing: str) -> None:
        """A broker is being asked now, or connected to for that; `doing` is for error texts. The next call here ends it."""
        ...

    def update(self, request: MetadataRequestAndVersion, response: MetadataResponse, node_label: str, now_ms: int) -> bool:
        """The answer to `request`, as it came: it may have no brokers, or an error code for every topic. False: it is of no use
        (an error of the whole answer, or no brokers) and counts as a failed attempt."""
        ...

    def failed_attempt(self, node_label: str, error: str, now_ms: int) -> None:
        """A broker could not be reached while an update was due, or a request for metadata came to nothing."""
        ...

    def rebootstrap(self) -> None:
        """Forget the brokers: bootstrap.servers are to be asked again, as at the start. What is known of topics stays."""
        ...

    def request_update(self) -> int:
        """Ask for an update (a lost connection may mean that metadata is stale); the version to wait for."""
        ...
