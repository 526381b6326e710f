"""ListTransactions (66): the transactional ids of a coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import MEGABYTE, Api, ApiKey
from spark_kafka_sink.protocol.fields import INT16, INT32, INT64, STRING, ArrayOf, Message, message, wire


@message
class ListTransactionsRequest(Message):
    """A request for transactions. Empty filters match everything. `duration_filter` is in ms, -1 for none; the pattern is for
    RE2.
    """

    state_filters: Sequence[str] = wire(ArrayOf(STRING), default=())
    producer_id_filters: Sequence[int] = wire(ArrayOf(INT64), default=())
    duration_filter: int = wire(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = wire(STRING, since=2, nullable_since=2, default=None)


@message
class TransactionState(Message):
    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@message
class ListTransactionsResponse(Message):
    """The response. `unknown_state_filters` are not names of a state."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    unknown_state_filters: Sequence[str] = wire(ArrayOf(STRING), default=())
    transaction_states: Sequence[TransactionState] = wire(ArrayOf(TransactionState), default=())


LIST_TRANSACTIONS = Api(
    ApiKey.LIST_TRANSACTIONS, 0, 2, 0, ListTransactionsRequest, ListTransactionsResponse, max_response_bytes=5 * MEGABYTE // 2
)
"""A transaction has about 70 bytes, so the response has room for 37,000."""
