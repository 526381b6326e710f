"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.group_ids import is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.groups import ListGroupsRequest, ListGroupsResponse


def handle_list_groups(services: BrokerServices, request: Request) -> ListGroupsResponse:
    body = request.body
    assert isinstance(body, ListGroupsRequest)
    every = services.group_coordinator.list_groups(body.states_filter, body.types_filter)
    return ListGroupsResponse(groups=tuple(group for group in every if is_coordinator(services, group.group_id)))
