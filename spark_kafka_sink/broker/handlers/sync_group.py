"""SyncGroup: answered when the group's leader has assigned."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.group_ids import check_group
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import SyncGroupRequest

_FIRST_WITH_PROTOCOL: Final = 5


def handle_sync_group(services: BrokerServices, request: Request) -> None:
    body = request.body
    assert isinstance(body, SyncGroupRequest)
    if request.version >= _FIRST_WITH_PROTOCOL and (body.protocol_type is None or body.protocol_name is None):
        raise ApiException(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_group(services, body.group_id)
    services.group_coordinator.sync(body, request.answer)
