"""What happens to the cluster, for its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from spark_kafka_sink.broker.cluster.metadata_image import BrokerState, MetadataImage, TopicState

logger = logging.getLogger(__name__)


class Event(NamedTuple):
    """`facts`: what the text says, for programs."""

    text: str
    facts: dict[str, Any]


def log_changes(before: MetadataImage, after: MetadataImage) -> None:
    """A listener of `Cluster.on_change`."""
    if logger.isEnabledFor(logging.INFO):
        for event in changes(before, after):
            logger.info(event.text, extra=event.facts)


def changes(before: MetadataImage, after: MetadataImage) -> Iterator[Event]:
    """What happened to topics, to brokers and to settings. Leaders that move because a broker came or went are not told one by
    one."""
    for node, broker in after.brokers.items():
        if node not in before.brokers or before.brokers[node].is_up != broker.is_up:
            yield _broker(broker)
    moves = before.up() == after.up()
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            count = len(topic.partitions)
            yield Event(f"Created topic {name} with {_partitions(count)}", {"topic": name, "partitions": count})
        elif known is not topic:
            yield from _topic(known, topic, moves=moves)
    for name in before.topics:
        if name not in after.topics:
            yield Event(f"Deleted topic {name}", {"topic": name})
    for node, configs in after.configs.items():
        if before.configs.get(node, {}) != configs:
            whose = "every broker" if node < 0 else f"broker {node}"
            yield Event(f"Changed settings of {whose}: {', '.join(configs) or 'none'}", {"broker": node})
    for key, credential in after.scram.items():
        if key not in before.scram or before.scram[key] is not credential:
            mechanism, user = key
            what = "Deleted" if credential is None else "Changed"
            yield Event(f"{what} the credentials of user {user} for {mechanism}", {"user": user, "mechanism": mechanism})


def _broker(broker: BrokerState) -> Event:
    host, port = next(iter(broker.advertised.values()))
    address = f"{host}:{port}"
    text = f"Broker {broker.node_id} is up at {address}" if broker.is_up else f"Broker {broker.node_id} is down"
    return Event(text, {"broker": broker.node_id, "address": address})


def _topic(before: TopicState, after: TopicState, *, moves: bool) -> Iterator[Event]:
    name = after.name
    if len(before.partitions) != len(after.partitions):
        count = len(after.partitions)
        yield Event(f"Topic {name} has {_partitions(count)} now", {"topic": name, "partitions": count})
    if before.configs != after.configs:
        yield Event(f"Changed configs of topic {name}: {', '.join(after.configs) or 'none'}", {"topic": name})
    for old, new in zip(before.partitions, after.partitions, strict=False):
        if moves and old.leader != new.leader:
            facts = {"topic": name, "partition": new.index, "leader": new.leader, "leader_epoch": new.leader_epoch}
            yield Event(f"Broker {new.leader} leads {name}-{new.index} now, after broker {old.leader}", facts)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
