"""What the handlers of groups check first."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.protocol.error_codes import ErrorCode


def check_group(services: BrokerServices, group_id: str) -> None:
    """Raises INVALID_GROUP_ID, and what `check_coordinator` raises."""
    if not group_id:
        raise ApiException(ErrorCode.INVALID_GROUP_ID)
    check_coordinator(services, group_id)


def check_coordinator(services: BrokerServices, group_id: str) -> None:
    """The empty group is one as well, for who only has offsets there. Raises NOT_COORDINATOR."""
    if not is_coordinator(services, group_id):
        raise ApiException(ErrorCode.NOT_COORDINATOR)


def is_coordinator(services: BrokerServices, group_id: str) -> bool:
    return services.cluster.coordinator(CoordinatorType.GROUP, group_id) == services.node_id
