"""Handlers for consumer groups: join, sync, heartbeat and leave; describe, list and delete."""

from __future__ import annotations

import uuid
from typing import Final

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC, partition_for
from spark_kafka_sink.broker.group.group_coordinator import unknown
from spark_kafka_sink.broker.group.membership import Joiner
from spark_kafka_sink.broker.handlers.common import authorized_operations, check_right, is_allowed
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.apis import groups as api
from spark_kafka_sink.protocol.error_codes import ErrorCode


def check_group(services: BrokerServices, group_id: str) -> None:
    """Raises INVALID_GROUP_ID and NOT_COORDINATOR."""
    if not group_id:
        raise ApiException(ErrorCode.INVALID_GROUP_ID)
    check_coordinator(services, group_id)


def check_coordinator(services: BrokerServices, group_id: str) -> None:
    """Raises NOT_COORDINATOR. The empty group id is valid, for clients that only store offsets there."""
    if not _is_coordinator(services, group_id):
        raise ApiException(ErrorCode.NOT_COORDINATOR)


def _is_coordinator(services: BrokerServices, group_id: str) -> bool:
    return services.cluster.coordinator(CoordinatorType.GROUP, group_id) == services.node_id


def offsets_partition(services: BrokerServices, group_id: str) -> tuple[str, int]:
    """Returns the partition of `__consumer_offsets` with the group's offsets."""
    topic = services.cluster.internal_topic(GROUP_METADATA_TOPIC)
    return topic.name, partition_for(group_id, len(topic.partitions))


_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_TO_REQUIRE_MEMBER_ID: Final = 4
_FIRST_WITH_NO_PROTOCOL: Final = 7
_FIRST_TO_SKIP_ASSIGNMENT: Final = 9


def handle_join_group(services: BrokerServices, request: Request) -> api.JoinGroupResponse | None:
    """Joins a member. The response is sent at the end of the group's rebalance."""
    body: api.JoinGroupRequest = request.body
    check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    config, version = services.config, request.version
    refused = None
    if not body.group_id:
        refused = ErrorCode.INVALID_GROUP_ID
    elif not config.group_min_session_timeout_ms <= body.session_timeout_ms <= config.group_max_session_timeout_ms:
        refused = ErrorCode.INVALID_SESSION_TIMEOUT
    if refused is not None:
        return _understood(api.JoinGroupResponse(error_code=refused, member_id=body.member_id), version)
    check_coordinator(services, body.group_id)
    client_id = request.header.client_id or ""
    has_timeout = version >= _FIRST_WITH_REBALANCE_TIMEOUT
    protocols: dict[str, bytes] = {}
    for protocol in body.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)  # the first of several with one name wins
    joiner = Joiner(
        member_id=body.member_id,
        new_member_id=f"{body.group_instance_id or client_id}-{uuid.uuid4()}",
        group_instance_id=body.group_instance_id,
        client_id=client_id,
        # The format of Java's InetAddress without a host name.
        client_host=f"/{request.session.client_host}",
        rebalance_timeout_ms=body.rebalance_timeout_ms if has_timeout else body.session_timeout_ms,
        session_timeout_ms=body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=protocols,
        requires_known_member_id=version >= _FIRST_TO_REQUIRE_MEMBER_ID,
        may_skip_assignment=version >= _FIRST_TO_SKIP_ASSIGNMENT,
        reason=body.reason or "not provided",
        reply=lambda answer: request.answer(_understood(answer, version)),
    )
    services.group_coordinator.join(body.group_id, joiner)
    return None


def _understood(answer: api.JoinGroupResponse, version: int) -> api.JoinGroupResponse:
    """Returns the response with "no protocol" as null from v7 on, and as an empty string before."""
    answer.protocol_name = answer.protocol_name or (None if version >= _FIRST_WITH_NO_PROTOCOL else "")
    return answer


_FIRST_WITH_PROTOCOL: Final = 5


def handle_sync_group(services: BrokerServices, request: Request) -> None:
    """Syncs a member. The response is sent when the group's leader has assigned partitions."""
    body: api.SyncGroupRequest = request.body
    if request.version >= _FIRST_WITH_PROTOCOL and (body.protocol_type is None or body.protocol_name is None):
        raise ApiException(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    check_group(services, body.group_id)
    services.group_coordinator.sync(body, request.answer)


def handle_heartbeat(services: BrokerServices, request: Request) -> api.HeartbeatResponse:
    body: api.HeartbeatRequest = request.body
    check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    check_group(services, body.group_id)
    return api.HeartbeatResponse(error_code=services.group_coordinator.heartbeat(body))


_FIRST_WITH_SEVERAL: Final = 3


def handle_leave_group(services: BrokerServices, request: Request) -> api.LeaveGroupResponse:
    """Removes members: one up to v2, several from v3 on (KIP-345)."""
    body: api.LeaveGroupRequest = request.body
    check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    check_group(services, body.group_id)
    if request.version >= _FIRST_WITH_SEVERAL:
        return api.LeaveGroupResponse(members=tuple(services.group_coordinator.leave(body.group_id, body.members)))
    (only,) = services.group_coordinator.leave(body.group_id, [api.MemberIdentity(body.member_id)])
    return api.LeaveGroupResponse(error_code=only.error_code)


_FIRST_TO_SAY_NOT_FOUND: Final = 6


def handle_describe_groups(services: BrokerServices, request: Request) -> api.DescribeGroupsResponse:
    body: api.DescribeGroupsRequest = request.body
    groups = tuple(_described_group(services, request, group_id) for group_id in body.groups)
    for group in groups:
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(services, request, ResourceType.GROUP, group.group_id)
    return api.DescribeGroupsResponse(groups=groups)


def _described_group(services: BrokerServices, request: Request, group_id: str) -> api.DescribedGroup:
    try:
        check_right(services, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        check_coordinator(services, group_id)
        group = services.group_coordinator.describe_group(group_id)
    except ApiException as error:
        return api.DescribedGroup(error.code, group_id=group_id)
    return unknown(group_id, has_code=request.version >= _FIRST_TO_SAY_NOT_FOUND) if group is None else group


def handle_list_groups(services: BrokerServices, request: Request) -> api.ListGroupsResponse:
    body: api.ListGroupsRequest = request.body
    every = services.group_coordinator.list_groups(body.states_filter, body.types_filter)
    describe = AclOperation.DESCRIBE
    sees_all = is_allowed(services, request, describe, ResourceType.CLUSTER, logged=False)

    def is_visible(group_id: str) -> bool:
        return sees_all or is_allowed(services, request, describe, ResourceType.GROUP, group_id, logged=False)

    listed = (group for group in every if _is_coordinator(services, group.group_id) and is_visible(group.group_id))
    return api.ListGroupsResponse(groups=tuple(listed))


def handle_delete_groups(services: BrokerServices, request: Request) -> api.DeleteGroupsResponse:
    """Deletes groups without members, with all their offsets."""
    body: api.DeleteGroupsRequest = request.body
    names = dict.fromkeys(body.groups_names)
    return api.DeleteGroupsResponse(
        results=tuple(api.DeletableGroupResult(name, _deleted_group(services, request, name)) for name in names)
    )


def _deleted_group(services: BrokerServices, request: Request, group_id: str) -> ErrorCode:
    try:
        check_right(services, request, AclOperation.DELETE, ResourceType.GROUP, group_id)
        check_coordinator(services, group_id)
        services.group_coordinator.delete_group(group_id)
    except ApiException as error:
        return error.code
    return ErrorCode.NONE
