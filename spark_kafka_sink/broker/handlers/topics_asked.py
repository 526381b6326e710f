"""Topics that a request names by name or, in newer versions, by id."""

from __future__ import annotations

import uuid

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.metadata_image import BrokerState, MetadataImage
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch, NodeEndpoint


def topic_name(image: MetadataImage, name: str, topic_id: uuid.UUID, *, by_id: bool) -> str:
    """Raises UNKNOWN_TOPIC_ID for an id that is not known (any more)."""
    if not by_id:
        return name
    known = image.names.get(topic_id)
    if known is None:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_ID)
    return known


def current_leader(image: MetadataImage, topic: str, index: int) -> LeaderIdAndEpoch | None:
    """What goes along with NOT_LEADER_OR_FOLLOWER, so that the client need not ask for metadata (KIP-951)."""
    partition = image.partition(topic, index)
    return None if partition is None else LeaderIdAndEpoch(partition.leader, partition.leader_epoch)


def node_endpoints(image: MetadataImage, node_ids: set[int], listener: Listener) -> tuple[NodeEndpoint, ...]:
    """Of those that run, for who came through this listener."""
    return tuple(_node_endpoint(image.brokers[node], listener) for node in sorted(node_ids) if node in image.up())


def _node_endpoint(broker: BrokerState, listener: Listener) -> NodeEndpoint:
    return NodeEndpoint(broker.node_id, *broker.endpoint(listener.name), broker.rack)
