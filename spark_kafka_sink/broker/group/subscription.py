"""Which topics a member of a consumer group subscribes to, as far as a broker reads that."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers; those of others (Connect's workers) have metadata that is only theirs."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all of them; None where one is not a ConsumerProtocolSubscription."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> Iterable[str]:
    """v0 is a prefix of every version (`ClassicGroup.computeSubscribedTopics`): version, then an array of strings."""
    _INT16.unpack_from(subscription, 0)
    (count,) = _INT32.unpack_from(subscription, 2)
    offset = 6
    for _ in range(count):
        (size,) = _INT16.unpack_from(subscription, offset)
        offset += 2
        if size < 0 or offset + size > len(subscription):
            raise ValueError(f"a topic of {size} bytes")
        yield subscription[offset : offset + size].decode()
        offset += size
