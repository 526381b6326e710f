"""Heartbeat: a member lives, and learns whether it has to join again."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.group_ids import check_group
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.groups import HeartbeatRequest, HeartbeatResponse


def handle_heartbeat(services: BrokerServices, request: Request) -> HeartbeatResponse:
    body = request.body
    assert isinstance(body, HeartbeatRequest)
    check_group(services, body.group_id)
    return HeartbeatResponse(error_code=services.group_coordinator.heartbeat(body))
