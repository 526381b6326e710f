"""Handlers that describe, create and delete ACLs for authorized clients (Kafka's AclApis and AclControlManager)."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.broker.acl import CLUSTER_NAME, Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.auth_helper import check_cluster
from spark_kafka_sink.broker.handlers.common import check_is_controller
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.apis.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode


def handle_describe_acls(services: BrokerServices, request: Request) -> DescribeAclsResponse:
    check_cluster(services, request, AclOperation.DESCRIBE)
    if services.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = _filter(request.body)
    found: dict[tuple[ResourceType, str, PatternType], list[AclDescription]] = {}
    for acl in services.cluster.image.acls:
        if wanted.matches(acl):
            described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(described)
    return DescribeAclsResponse(resources=tuple(DescribeAclsResource(*where, tuple(acls)) for where, acls in found.items()))


def handle_create_acls(services: BrokerServices, request: Request) -> CreateAclsResponse:
    body: CreateAclsRequest = request.body
    _check_change(services, request)
    added: list[Acl] = []
    results = []
    for creation in body.creations:
        try:
            added.append(_new_acl(creation))
        except ApiException as error:
            results.append(AclCreationResult(error.code, error.message))
        else:
            results.append(AclCreationResult())
    if added:
        services.cluster.add_acls(added)
    return CreateAclsResponse(results=tuple(results))


def handle_delete_acls(services: BrokerServices, request: Request) -> DeleteAclsResponse:
    body: DeleteAclsRequest = request.body
    _check_change(services, request)
    filters = [_filter(each) for each in body.filters]
    # All filters see the state before the request, as in a single change of Kafka's controller.
    there = services.cluster.image.acls
    for each in filters:
        services.cluster.delete_acls(each)
    results = (tuple(_matching(acl) for acl in there if each.matches(acl)) for each in filters)
    return DeleteAclsResponse(filter_results=tuple(DeleteAclsFilterResult(matching_acls=matching) for matching in results))


def _check_change(services: BrokerServices, request: Request) -> None:
    check_is_controller(services)
    check_cluster(services, request, AclOperation.ALTER)
    if services.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _new_acl(creation: AclCreation) -> Acl:
    """Returns the new ACL. Raises INVALID_REQUEST (`AclApis.handleCreateAcls`, `AclControlManager.validateNewAcl`)."""
    kind = _known(ResourceType, creation.resource_type, "resourceType")
    pattern = _known(PatternType, creation.resource_pattern_type, "patternType")
    operation = _known(AclOperation, creation.operation, "operation")
    permission = _known(Permission, creation.permission_type, "permissionType")
    for value, of_filters, what in (
        (kind, (ResourceType.ANY,), "resourceType"),
        (pattern, (PatternType.ANY, PatternType.MATCH), "patternType"),
        (operation, (AclOperation.ANY,), "operation"),
        (permission, (Permission.ANY,), "permissionType"),
    ):
        if value in of_filters:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"Invalid {what} {value.name}")
    if kind is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if ":" not in creation.principal:
        text = f"expected a string in format principalType:principalName but got {creation.principal}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return Acl(creation.principal, operation, kind, creation.resource_name, pattern, permission, creation.host)


def _filter(asked: Any) -> AclFilter:
    """Returns the filter of a DescribeAclsRequest or a DeleteAclsFilter."""
    return AclFilter(
        _known(ResourceType, asked.resource_type_filter, "resourceType"),
        asked.resource_name_filter,
        _known(PatternType, asked.pattern_type_filter, "patternType"),
        asked.principal_filter,
        asked.host_filter,
        _known(AclOperation, asked.operation, "operation"),
        _known(Permission, asked.permission_type, "permissionType"),
    )


def _known(kind: Any, code: int, what: str) -> Any:
    """Returns the value of a code. A request with an unknown code cannot be parsed, as in Kafka."""
    try:
        return kind(code)
    except ValueError:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown {what} {code}") from None


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        ErrorCode.NONE,
        None,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )
