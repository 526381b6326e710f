"""Helpers of handlers in several domains: late answers, repeated entries, topics by id, leaders."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch, NodeEndpoint

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)

Handler: TypeAlias = Callable[[BrokerServices, Request], Message | None]
"""Returns the response's body, or None if it has answered by itself or will later. Raises ApiException."""


@contextmanager
def deferred_response(request: Request) -> Iterator[None]:
    """Turns errors into the response, for a handler that answers after KafkaApis, which does so otherwise, has returned."""
    try:
        yield
    except ApiException as refused:
        answer_error(request, refused.code, refused.message)
    except Exception:
        logger.exception("Unexpected error while answering %s", request)
        answer_error(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def answer_error(request: Request, code: ErrorCode, message: str | None = None) -> None:
    """Answers with an error unless the handler failed after it had answered: then that answer stands."""
    if not request.is_answered:
        request.answer_error(code, message)


def repeated(values: Iterable[T]) -> list[T]:
    """Returns each value that occurs more than once, in order: Kafka refuses these where it cannot know which one counts."""
    return [value for value, count in Counter(values).items() if count > 1]


def check_is_controller(services: BrokerServices) -> None:
    """Raises NOT_CONTROLLER in a cluster with ZooKeeper if this broker is not the controller. With KRaft brokers forward."""
    if services.config.release.has_zookeeper and services.node_id != services.cluster.controller_id():
        raise ApiException(ErrorCode.NOT_CONTROLLER)


def topic_name(image: MetadataImage, name: str, topic_id: uuid.UUID, *, by_id: bool) -> str:
    """Returns the name of a topic that a request names or, from some version on, gives the id of. Raises UNKNOWN_TOPIC_ID."""
    if not by_id:
        return name
    known = image.names.get(topic_id)
    if known is None:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_ID)
    return known


def current_leader(image: MetadataImage, topic: str, index: int) -> LeaderIdAndEpoch | None:
    """Returns what goes with NOT_LEADER_OR_FOLLOWER, so that the client need not ask for metadata (KIP-951)."""
    partition = image.partition(topic, index)
    return None if partition is None else LeaderIdAndEpoch(partition.leader, partition.leader_epoch)


def node_endpoints(image: MetadataImage, node_ids: set[int], listener: Listener) -> tuple[NodeEndpoint, ...]:
    """Returns the addresses of those that run, for a client of this listener."""
    running = (image.brokers[node] for node in sorted(node_ids) if node in image.up())
    return tuple(NodeEndpoint(broker.node_id, *broker.endpoint(listener.name), broker.rack) for broker in running)
