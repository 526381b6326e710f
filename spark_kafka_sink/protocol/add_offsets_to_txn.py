"""AddOffsetsToTxn (25): a transaction will commit offsets of a consumer group."""

from __future__ import annotations

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING


@message
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@message
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)


ADD_OFFSETS_TO_TXN = Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
