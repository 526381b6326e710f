"""What must be over when a query is done: its transactions."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.broker.network.client import Client
from tests.kafka.brokers import Brokers
from tests.kafka.kafka import REQUEST_TIMEOUT_S, Kafka

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
DEADLINE_S = 15.0  # less than the shortest transaction.timeout.ms, after which a broker would end them


def assert_nothing_open(brokers: Brokers, query_id: str, topic: str) -> None:
    """No coordinator has an open transaction of the query, and none holds readers of `topic` back."""
    try:
        # EndTxn is answered before the markers are written.
        brokers.wait_for(lambda: not open_transactions(brokers, query_id), "no open transaction", DEADLINE_S)
        brokers.wait_for(lambda: not held_back(brokers, topic), "a last stable offset at the log's end", DEADLINE_S)
    except TimeoutError:
        raise AssertionError(
            f"left open: {open_transactions(brokers, query_id)}; readers are held back by {held_back(brokers, topic)}"
        ) from None


def ongoing(brokers: Brokers, part: str) -> set[str]:
    """The ids with `part` in them whose transactions nobody has begun to end."""
    return {name for name, state in open_transactions(brokers, part).items() if state == "Ongoing"}


def open_transactions(brokers: Brokers, part: str) -> dict[str, str]:
    """Transactional id -> state, of all ids with `part` in them: a query's, or a prefix."""
    return {name: state for found in open_by_coordinator(brokers, part).values() for name, state in found.items()}


def open_by_coordinator(brokers: Brokers, part: str) -> dict[int, dict[str, str]]:
    """The same for each broker that coordinates one of them."""
    listed = {node: _listed(brokers.address(node), part) for node in brokers.broker_ids}
    return {node: found for node, found in listed.items() if found}


def _listed(address: str, part: str) -> dict[str, str]:
    host, _, port = address.rpartition(":")
    with Client(int(port), host) as client:
        answer = client.ask(ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest(state_filters=OPEN))
    assert isinstance(answer, ListTransactionsResponse)
    assert answer.error_code == 0
    states = {each.transactional_id: each.transaction_state for each in answer.transaction_states}
    return {name: state for name, state in states.items() if part in name}


def held_back(kafka: Kafka, topic: str) -> dict[int, int]:
    """Partition -> how many offsets behind its log's end a reader of committed records has to stop."""
    ends = {level: _ends(kafka, topic, level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)}
    behind = {
        number: end - ends[IsolationLevel.READ_COMMITTED][number] for number, end in ends[IsolationLevel.READ_UNCOMMITTED].items()
    }
    return {number: count for number, count in behind.items() if count}


def _ends(kafka: Kafka, topic: str, level: IsolationLevel) -> dict[int, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, number): latest for number in kafka.metadata(topic).topics[topic].partitions}
    asked = kafka.admin.list_offsets(wanted, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
    return {place.partition: answer.result().offset for place, answer in asked.items()}
