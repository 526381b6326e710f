"""A member of a group (Kafka's ClassicGroupMember)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_kafka_sink.protocol.groups import JoinGroupResponse, SyncGroupResponse

JoinReply: TypeAlias = Callable[[JoinGroupResponse], None]
SyncReply: TypeAlias = Callable[[SyncGroupResponse], None]

Protocols: TypeAlias = Mapping[str, bytes]
"""Assignors in the member's order of preference, each with the member's subscription as that assignor understands it."""

NO_ASSIGNMENT: Final = b""


@dataclass(slots=True)
class GroupMember:
    """Timeouts in ms. `join_reply`, `sync_reply`: where the answer goes that this member waits for.

    is_new: it has not yet been told its generation, so that it cannot send heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_reply is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Who waits for an answer cannot send heartbeats. A new member can be expired even so: it may never come back."""
        return not self.is_new and (self.awaits_join or self.sync_reply is not None)

    def matches(self, protocols: Protocols) -> bool:
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate that this member likes best; it supports all of them."""
        return next(name for name in self.protocols if name in candidates)
