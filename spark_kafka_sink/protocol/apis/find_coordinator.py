"""FindCoordinator (10): the coordinator of a group or a transactional id; from v4 on for several keys (KIP-699)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import INT8, INT16, INT32, STRING, ArrayOf, Message, message, wire


@message
class FindCoordinatorRequest(Message):
    """A request for coordinators. `key_type`: 0 group, 1 transactional id, 2 share group. Up to v3 `key`, from v4
    `coordinator_keys`.
    """

    key: str = wire(STRING, until=3, default="")
    key_type: int = wire(INT8, since=1, default=0)
    coordinator_keys: Sequence[str] = wire(ArrayOf(STRING), since=4, default=())


@message
class Coordinator(Message):
    """A coordinator. After an error, the node is -1, the host empty and the port -1."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@message
class FindCoordinatorResponse(Message):
    """The response: up to v3 one coordinator in its own fields, from v4 on `coordinators`."""

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, until=3, default=0)
    error_message: str | None = wire(STRING, since=1, until=3, nullable_since=1, default=None, ignorable=True)
    node_id: int = wire(INT32, until=3, default=0)
    host: str = wire(STRING, until=3, default="")
    port: int = wire(INT32, until=3, default=0)
    coordinators: Sequence[Coordinator] = wire(ArrayOf(Coordinator), since=4, default=())


FIND_COORDINATOR = Api(ApiKey.FIND_COORDINATOR, 0, 6, 3, FindCoordinatorRequest, FindCoordinatorResponse)
