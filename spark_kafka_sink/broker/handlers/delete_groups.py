"""DeleteGroups: groups without members, with all their offsets."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.group_ids import check_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle_delete_groups(services: BrokerServices, request: Request) -> DeleteGroupsResponse:
    body = request.body
    assert isinstance(body, DeleteGroupsRequest)
    names = dict.fromkeys(body.groups_names)
    return DeleteGroupsResponse(results=tuple(DeletableGroupResult(name, _deleted(services, name)) for name in names))


def _deleted(services: BrokerServices, group_id: str) -> ErrorCode:
    try:
        check_coordinator(services, group_id)
        services.group_coordinator.delete_group(group_id)
    except ApiException as error:
        return error.code
    return ErrorCode.NONE
