"""FindCoordinator: the broker that leads a group's or a transactional id's partition of the internal topic."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_TYPES = {0: CoordinatorType.GROUP, 1: CoordinatorType.TRANSACTION}
_FIRST_WITH_MANY_KEYS = 4


def handle_find_coordinator(services: BrokerServices, request: Request) -> FindCoordinatorResponse:
    body: FindCoordinatorRequest = request.body
    if request.version >= _FIRST_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=tuple(_found(services, request, key) for key in body.coordinator_keys))
    found = _found(services, request, body.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(services: BrokerServices, request: Request, key: str) -> Coordinator:
    try:
        return _coordinator(services, request, key)
    except ApiException as error:
        return Coordinator(key, -1, "", -1, error.code, error.message or error.code.name)


def _coordinator(services: BrokerServices, request: Request, key: str) -> Coordinator:
    key_type = request.body.key_type
    kind = _TYPES.get(key_type)
    if kind is None:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")
    node = services.cluster.coordinator(kind, key)
    broker = services.cluster.image.brokers.get(node)
    if broker is None:
        raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    host, port = broker.endpoint(request.listener.name)
    # Kafka says "NONE" here in v1 to v3; Java's own clients read the code only.
    return Coordinator(key, node, host, port, ErrorCode.NONE, None)
