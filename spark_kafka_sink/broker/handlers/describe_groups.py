"""DescribeGroups: state and members of each group."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.group.group_coordinator import unknown
from spark_kafka_sink.broker.handlers import authorized_operations
from spark_kafka_sink.broker.handlers.group_ids import check_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_FIRST_TO_SAY_NOT_FOUND: Final = 6


def handle_describe_groups(services: BrokerServices, request: Request) -> DescribeGroupsResponse:
    body = request.body
    assert isinstance(body, DescribeGroupsRequest)
    groups = tuple(_described(services, request, group_id) for group_id in body.groups)
    for group in groups:
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations.GROUP
    return DescribeGroupsResponse(groups=groups)


def _described(services: BrokerServices, request: Request, group_id: str) -> DescribedGroup:
    try:
        check_coordinator(services, group_id)
        group = services.group_coordinator.describe_group(group_id)
    except ApiException as error:
        return DescribedGroup(error.code, group_id=group_id)
    return unknown(group_id, has_code=request.version >= _FIRST_TO_SAY_NOT_FOUND) if group is None else group
