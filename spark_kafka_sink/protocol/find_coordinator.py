"""FindCoordinator (10): which broker coordinates a group or a transactional id; from v4 several keys at once (KIP-699)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT8, INT16, INT32, STRING, ArrayOf


@message
class FindCoordinatorRequest(Message):
    """`key_type`: 0 group, 1 transactional id, 2 share group. Up to v3 `key`, from v4 `coordinator_keys`."""

    key: str = wire(STRING, until=3, default="")
    key_type: int = wire(INT8, since=1, default=0)
    coordinator_keys: Sequence[str] = wire(ArrayOf(STRING), since=4, default=())


@message
class Coordinator(Message):
    """Node -1 with an empty host and port -1 where there is an error."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@message
class FindCoordinatorResponse(Message):
    """Up to v3 one coordinator in the fields themselves, from v4 `coordinators`."""

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, until=3, default=0)
    error_message: str | None = wire(STRING, since=1, until=3, nullable_since=1, default=None, ignorable=True)
    node_id: int = wire(INT32, until=3, default=0)
    host: str = wire(STRING, until=3, default="")
    port: int = wire(INT32, until=3, default=0)
    coordinators: Sequence[Coordinator] = wire(ArrayOf(Coordinator), since=4, default=())


FIND_COORDINATOR = Api(ApiKey.FIND_COORDINATOR, 0, 6, 3, FindCoordinatorRequest, FindCoordinatorResponse)
