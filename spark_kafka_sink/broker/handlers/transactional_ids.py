"""What the handlers of transactions have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

KNOWS_PRODUCER_FENCED: Final[Mapping[ApiKey, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""From this version on (KIP-588); older clients are told INVALID_PRODUCER_EPOCH."""


def is_coordinator(services: BrokerServices, transactional_id: str) -> bool:
    """Whether this broker is the one to ask about the id."""
    # An empty one has no coordinator, and the coordinator refuses it first.
    return not transactional_id or services.cluster.coordinator(CoordinatorType.TRANSACTION, transactional_id) == services.node_id


def as_understood(code: ErrorCode, request: Request) -> ErrorCode:
    """The code in the words of the request's version."""
    if code is ErrorCode.PRODUCER_FENCED and request.version < KNOWS_PRODUCER_FENCED[request.api.key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
