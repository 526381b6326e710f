"""JoinGroup: answered when the group's rebalance is over."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.group.classic_group import Protocols
from spark_kafka_sink.broker.group.membership import Joiner
from spark_kafka_sink.broker.handlers.group_ids import check_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_TO_REQUIRE_MEMBER_ID: Final = 4
_FIRST_WITH_NO_PROTOCOL: Final = 7
_FIRST_TO_SKIP_ASSIGNMENT: Final = 9


def handle_join_group(services: BrokerServices, request: Request) -> JoinGroupResponse | None:
    body = request.body
    assert isinstance(body, JoinGroupRequest)
    refused = _refused(services, body)
    if refused is not None:
        return _understood(JoinGroupResponse(error_code=refused, member_id=body.member_id), request.version)
    check_coordinator(services, body.group_id)
    services.group_coordinator.join(body.group_id, _joiner(body, request))
    return None


def _refused(services: BrokerServices, body: JoinGroupRequest) -> ErrorCode | None:
    if not body.group_id:
        return ErrorCode.INVALID_GROUP_ID
    config = services.config
    if not config.group_min_session_timeout_ms <= body.session_timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return None


def _joiner(body: JoinGroupRequest, request: Request) -> Joiner:
    version = request.version
    client_id = request.header.client_id or ""
    has_timeout = version >= _FIRST_WITH_REBALANCE_TIMEOUT
    return Joiner(
        member_id=body.member_id,
        new_member_id=f"{body.group_instance_id or client_id}-{uuid.uuid4()}",
        group_instance_id=body.group_instance_id,
        client_id=client_id,
        # As Java's InetAddress is written, without a host name.
        client_host=f"/{request.session.client_host}",
        rebalance_timeout_ms=body.rebalance_timeout_ms if has_timeout else body.session_timeout_ms,
        session_timeout_ms=body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=_protocols(body.protocols),
        requires_known_member_id=version >= _FIRST_TO_REQUIRE_MEMBER_ID,
        may_skip_assignment=version >= _FIRST_TO_SKIP_ASSIGNMENT,
        reason=body.reason or "not provided",
        reply=lambda answer: request.answer(_understood(answer, version)),
    )


def _protocols(asked: Sequence[JoinGroupRequestProtocol]) -> Protocols:
    """Of one that stands there twice the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in asked:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def _understood(answer: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """No protocol is null from v7 on, and empty before."""
    answer.protocol_name = answer.protocol_name or (None if version >= _FIRST_WITH_NO_PROTOCOL else "")
    return answer
