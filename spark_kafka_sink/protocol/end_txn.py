"""EndTxn (26): commits or aborts a transaction."""

from __future__ import annotations

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT16, INT32, INT64, STRING


@message
class EndTxnRequest(Message):
    """`committed`: False aborts."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOLEAN)


@message
class EndTxnResponse(Message):
    """From v5 every end bumps the epoch (KIP-890): id and epoch for the next transaction, -1 where there is an error."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    producer_id: int = wire(INT64, since=5, default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, since=5, default=-1, ignorable=True)


END_TXN = Api(ApiKey.END_TXN, 0, 5, 3, EndTxnRequest, EndTxnResponse)
