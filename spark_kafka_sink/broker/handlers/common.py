"""Helpers of several handlers: late responses, duplicates, topics by id, leaders."""

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
from spark_kafka_sink.protocol.apis.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)

Handler: TypeAlias = Callable[[BrokerServices, Request], Message | None]
"""A handler. It returns the response's body, or None if it answers itself, now or later. Raises ApiException."""


@contextmanager
def deferred_response(request: Request) -> Iterator[None]:
    """Converts errors to responses in handlers that answer after KafkaApis, which otherwise does it, has returned."""
    try:
        yield
    except ApiException as refused:
        answer_error(request, refused.code, refused.message)
    except Exception:
        logger.exception("Unexpected error while answering %s", request)
        answer_error(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def answer_error(request: Request, code: ErrorCode, message: str | None = None) -> None:
    """Answers with an error. If the handler failed after it had answered, the first response is kept."""
    if not request.is_answered:
        request.answer_error(code, message)


def repeated(values: Iterable[T]) -> list[T]:
    """Returns each value that occurs more than once, in order. Kafka refuses duplicates that it cannot resolve."""
    return [value for value, count in Counter(values).items() if count > 1]


def check_is_controller(services: BrokerServices) -> None:
    """Raises NOT_CONTROLLER if a ZooKeeper cluster has another controller. With KRaft, brokers forward requests."""
    if services.config.release.is_2_1 and services.node_id != services.cluster.controller_id():
        raise ApiException(ErrorCode.NOT_CONTROLLER)


def topic_name(image: MetadataImage, name: str, topic_id: uuid.UUID, *, by_id: bool) -> str:
    """Returns the name of a topic in a request, which newer versions give by id. Raises UNKNOWN_TOPIC_ID."""
    if not by_id:
        return name
    known = image.names.get(topic_id)
    if known is None:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_ID)
    return known


def current_leader(image: MetadataImage, topic: str, index: int) -> LeaderIdAndEpoch | None:
    """Returns the new leader to add to NOT_LEADER_OR_FOLLOWER, which saves the client a metadata request (KIP-951)."""
    partition = image.partition(topic, index)
    return None if partition is None else LeaderIdAndEpoch(partition.leader, partition.leader_epoch)


def node_endpoints(image: MetadataImage, node_ids: set[int], listener: Listener) -> tuple[NodeEndpoint, ...]:
    """Returns the addresses of the running brokers, for a client of this listener."""
    running = (image.brokers[node] for node in sorted(node_ids) if node in image.up())
    return tuple(NodeEndpoint(broker.node_id, *broker.endpoint(listener.name), broker.rack) for broker in running)
