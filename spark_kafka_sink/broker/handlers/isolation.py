"""The isolation level that a request names."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_types import IsolationLevel
from spark_kafka_sink.protocol.error_codes import ErrorCode


def isolation_level(level: int) -> IsolationLevel:
    """Raises UNKNOWN_SERVER_ERROR for one that there is not, because that is what Kafka's `IsolationLevel.forId` ends in."""
    try:
        return IsolationLevel(level)
    except ValueError:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR) from None
