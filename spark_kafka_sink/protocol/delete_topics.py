"""DeleteTopics (20): topics by name, from v6 by name or id (KIP-516)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, STRING, UUID, ZERO_UUID, ArrayOf


@message
class DeleteTopicState(Message):
    """By id `name` is None; by name `topic_id` is ZERO_UUID."""

    name: str | None = wire(STRING, nullable_since=0, default=None)
    topic_id: uuid.UUID = wire(UUID, default=ZERO_UUID)


@message
class DeleteTopicsRequest(Message):
    """Up to v5 `topic_names`, from v6 `topics`."""

    topics: Sequence[DeleteTopicState] = wire(ArrayOf(DeleteTopicState), since=6, default=())
    topic_names: Sequence[str] = wire(ArrayOf(STRING), until=5, default=(), ignorable=True)
    timeout_ms: int = wire(INT32, default=0)


@message
class DeletableTopicResult(Message):
    """`name` is None for an unknown topic asked for by id."""

    name: str | None = wire(STRING, nullable_since=6)
    topic_id: uuid.UUID = wire(UUID, since=6, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@message
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[DeletableTopicResult] = wire(ArrayOf(DeletableTopicResult), default=())


DELETE_TOPICS = Api(ApiKey.DELETE_TOPICS, 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse)
