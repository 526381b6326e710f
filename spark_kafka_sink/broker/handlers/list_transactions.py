"""ListTransactions: the transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.transactional_ids import is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_coordinator import id_filter
from spark_kafka_sink.broker.transaction.transaction_metadata import BY_NAME, TransactionMetadata
from spark_kafka_sink.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


def handle_list_transactions(services: BrokerServices, request: Request) -> ListTransactionsResponse:
    body = request.body
    assert isinstance(body, ListTransactionsRequest)
    every = services.transaction_coordinator.every()
    is_wanted = _filter(body, services.wall_ms())
    return ListTransactionsResponse(
        unknown_state_filters=tuple(name for name in dict.fromkeys(body.state_filters) if name not in BY_NAME),
        transaction_states=tuple(
            TransactionState(each.transactional_id, each.producer_id, each.state.state_name)
            for each in every
            if is_wanted(each) and is_coordinator(services, each.transactional_id)
        ),
    )


def _filter(body: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionMetadata], bool]:
    """Raises INVALID_REGULAR_EXPRESSION. A state that is not known lets nothing through, and an id without a transaction has run
    since 1970, as in Kafka."""
    producers, names = set(map(int, body.producer_id_filters)), set(body.state_filters)
    pattern = id_filter(body.transactional_id_pattern) if body.transactional_id_pattern else None

    def is_wanted(metadata: TransactionMetadata) -> bool:
        return (
            (not producers or metadata.producer_id in producers)
            and (not names or metadata.state.state_name in names)
            and (body.duration_filter < 0 or now_ms - metadata.start_ms > body.duration_filter)
            and (pattern is None or pattern(metadata.transactional_id) is not None)
        )

    return is_wanted
