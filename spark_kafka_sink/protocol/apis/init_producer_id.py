"""InitProducerId (22): the producer id and epoch of idempotent and transactional batches."""

from __future__ import annotations

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING


@message
class InitProducerIdRequest(Message):
    """A request for a producer id. `producer_id` and `producer_epoch` are the current ones, to bump the epoch (KIP-360); -1:
    none.

    `transaction_timeout_ms` is used only with a transactional id; Java sends 2^31 - 1 without one.
    """

    transactional_id: str | None = wire(STRING, nullable_since=0, default=None)
    transaction_timeout_ms: int = wire(INT32, default=2**31 - 1)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@message
class InitProducerIdResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16, default=0)


INIT_PRODUCER_ID = Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2, InitProducerIdRequest, InitProducerIdResponse)
