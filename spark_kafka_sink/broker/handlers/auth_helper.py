"""Authorization checks of handlers (Kafka's AuthHelper)."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.acl import CLUSTER_NAME, AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode

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


def check_topic(services: BrokerServices, request: Request, operation: AclOperation, topic: str) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED."""
    # Called for each partition of each Produce and Fetch.
    if services.authorizer is not None and not is_allowed(services, request, operation, ResourceType.TOPIC, topic):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise ApiException(code, TEXTS[code])


def check_group_right(services: BrokerServices, request: Request, operation: AclOperation, group_id: str) -> None:
    """Raises GROUP_AUTHORIZATION_FAILED."""
    if not is_allowed(services, request, operation, ResourceType.GROUP, group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        raise ApiException(code, TEXTS[code])


def check_transactional_id(services: BrokerServices, request: Request, operation: AclOperation, transactional_id: str) -> None:
    """Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    if not is_allowed(services, request, operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ApiException(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


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
