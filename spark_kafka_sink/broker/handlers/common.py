"""Helpers of several handlers: rights (Kafka's AuthHelper), late responses, duplicates, topics by id, leaders."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from spark_kafka_sink.broker.acl import CLUSTER_NAME, AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.apis.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

logger = logging.getLogger(__name__)

_OF_TOPIC: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF_GROUP: Final = (
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF_CLUSTER: Final = (
    AclOperation.CREATE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
_SUPPORTED: Final = {ResourceType.TOPIC: _OF_TOPIC, ResourceType.GROUP: _OF_GROUP, ResourceType.CLUSTER: _OF_CLUSTER}
"""The operations of each resource type (`AclEntry.supportedOperations`)."""

OPERATIONS_NOT_ASKED: Final = -(2**31)

_FAILED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TEXTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
"""Kafka's messages for codes that have none."""


def is_allowed(
    services: BrokerServices,
    request: Request,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    logged: bool = True,
) -> bool:
    """Returns whether the request's client may do that. Without an authorizer, every client may do everything.

    `logged`: logs a denial, because the client named this very resource.
    """
    authorizer = services.authorizer
    if authorizer is None:
        return True
    session = request.session
    return authorizer.is_allowed(session.principal, session.client_host, operation, resource_type, name, logged=logged)


def is_allowed_on_any(services: BrokerServices, request: Request, operation: AclOperation, resource_type: ResourceType) -> bool:
    """Returns whether the request's client may do that with at least one resource of the type."""
    authorizer, session = services.authorizer, request.session
    return authorizer is None or authorizer.is_allowed_on_any(session.principal, session.client_host, operation, resource_type)


def check_cluster(services: BrokerServices, request: Request, operation: AclOperation) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED."""
    if not is_allowed(services, request, operation, ResourceType.CLUSTER):
        raise ApiException(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"Request {request} is not authorized.")


def check_right(
    services: BrokerServices, request: Request, operation: AclOperation, resource_type: ResourceType, name: str
) -> None:
    """Raises the authorization error of the resource's type, such as TOPIC_AUTHORIZATION_FAILED."""
    if not is_allowed(services, request, operation, resource_type, name):
        code = _FAILED[resource_type]
        raise ApiException(code, TEXTS.get(code))


def authorized_operations(
    services: BrokerServices, request: Request, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """Returns the operations that a client may perform on a resource, as a bit set (KIP-430)."""
    return sum(
        1 << operation
        for operation in _SUPPORTED[resource_type]
        if is_allowed(services, request, operation, resource_type, name, logged=False)
    )


def cluster_operations(services: BrokerServices, request: Request, *, asked: bool) -> int:
    """Returns the operations that a client may perform on the cluster.

    Returns none if it may not describe it, and OPERATIONS_NOT_ASKED if it did not ask.
    """
    if not asked:
        return OPERATIONS_NOT_ASKED
    if not is_allowed(services, request, AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return authorized_operations(services, request, ResourceType.CLUSTER)


T = TypeVar("T", bound=Hashable)

Handler: TypeAlias = Callable[[BrokerServices, Request], Message | None]
"""A handler. It returns the response's body, or None if it answers itself, now or later. Raises ApiException."""


@contextmanager
def deferred_response(request: Request) -> Iterator[None]:
    """Converts errors to responses in handlers that answer after KafkaApis, which otherwise does it, has returned."""
    try:
        yield
    except ApiException as refused:
        request.answer_error(refused.code, refused.message)
    except Exception:
        logger.exception("Unexpected error while answering %s", request)
        request.answer_error(ErrorCode.UNKNOWN_SERVER_ERROR)


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
    return tuple(NodeEndpoint(broker.node_id, *broker.advertised[listener.name]) for broker in running)
