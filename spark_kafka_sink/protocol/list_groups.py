"""ListGroups (16): the groups that a broker coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, STRING, ArrayOf


@message
class ListGroupsRequest(Message):
    """Empty filters let everything through."""

    states_filter: Sequence[str] = wire(ArrayOf(STRING), since=4, default=())
    types_filter: Sequence[str] = wire(ArrayOf(STRING), since=5, default=())


@message
class ListedGroup(Message):
    """`group_type`: classic, consumer, share or streams."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="", ignorable=True)
    group_type: str = wire(STRING, since=5, default="", ignorable=True)


@message
class ListGroupsResponse(Message):
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    groups: Sequence[ListedGroup] = wire(ArrayOf(ListedGroup), default=())


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, 0, 5, 3, ListGroupsRequest, ListGroupsResponse)
