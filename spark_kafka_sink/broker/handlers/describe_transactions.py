"""DescribeTransactions: what their coordinator knows of transactional ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.transactional_ids import is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_metadata import TopicPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle_describe_transactions(services: BrokerServices, request: Request) -> DescribeTransactionsResponse:
    body = request.body
    assert isinstance(body, DescribeTransactionsRequest)
    states = tuple(_described(services, each) for each in body.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=states)


def _described(services: BrokerServices, transactional_id: str) -> TransactionState:
    owns = is_coordinator(services, transactional_id)
    try:
        known = services.transaction_coordinator.describe(transactional_id, is_coordinator=owns)
    except ApiException as error:
        return TransactionState(error.code, transactional_id, "", 0, 0, 0, 0)
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        known.state.state_name,
        known.timeout_ms,
        known.start_ms,
        known.producer_id,
        known.producer_epoch,
        _by_topic(known.partitions),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicData, ...]:
    grouped = itertools.groupby(sorted(partitions), key=lambda each: each.topic)
    return tuple(TopicData(topic, tuple(each.partition for each in of_topic)) for topic, of_topic in grouped)
