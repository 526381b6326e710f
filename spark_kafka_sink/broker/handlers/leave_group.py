"""LeaveGroup: one member up to v2, several from v3 on (KIP-345)."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.group_ids import check_group
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_FIRST_WITH_SEVERAL: Final = 3


def handle_leave_group(services: BrokerServices, request: Request) -> LeaveGroupResponse:
    body = request.body
    assert isinstance(body, LeaveGroupRequest)
    check_group(services, body.group_id)
    if request.version >= _FIRST_WITH_SEVERAL:
        return LeaveGroupResponse(members=tuple(services.group_coordinator.leave(body.group_id, body.members)))
    (only,) = services.group_coordinator.leave(body.group_id, [MemberIdentity(body.member_id)])
    return LeaveGroupResponse(error_code=only.error_code)
