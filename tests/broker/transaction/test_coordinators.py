"""Several brokers: each answers for the transactional ids that it coordinates, and for no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor

E = ErrorCode
NOBODY = ProducerIdAndEpoch(7, 0)


@pytest.fixture
def brokers() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(2) as cluster:
        cluster.create_topic("topic", 2, 2)
        yield cluster


def coordinator(brokers: EmbeddedBroker) -> int:
    return brokers.cluster.coordinator(CoordinatorType.TRANSACTION, "t")


def test_the_other_broker_is_not_its_coordinator(brokers: EmbeddedBroker) -> None:
    own = coordinator(brokers)
    with Client.at(brokers.address(own)) as right, Client.at(brokers.address(3 - own)) as wrong:
        asked, other = Transactor(right, "t", "topic"), Transactor(wrong, "t", "topic")
        producer = asked.init().producer
        assert other.init().code is E.NOT_COORDINATOR
        assert other.init(identity="").code is E.INVALID_REQUEST
        assert other.add(producer, 0) == [E.NOT_COORDINATOR]
        assert other.add_offsets(producer) is E.NOT_COORDINATOR
        assert other.commit(producer).code is E.NOT_COORDINATOR
        assert other.describe().error_code == E.NOT_COORDINATOR
        assert list(other.listed().transaction_states) == []
        assert [each.transactional_id for each in asked.listed().transaction_states] == ["t"]


def test_a_transaction_goes_on_with_another_coordinator(brokers: EmbeddedBroker) -> None:
    own = coordinator(brokers)
    with Client.at(brokers.address(own)) as first:
        producer = Transactor(first, "t", "topic").init().producer
        assert Transactor(first, "t", "topic").add(producer, 0) == [E.NONE]
        topic = brokers.cluster.internal_topic("__transaction_state")
        for partition in topic.partitions:
            brokers.move_leader(topic.name, partition.index, 3 - own)
        assert Transactor(first, "t", "topic").commit(producer).code is E.NOT_COORDINATOR
    with Client.at(brokers.address(3 - own)) as second:
        moved = Transactor(second, "t", "topic")
        assert moved.state() == "Ongoing"
        assert moved.commit(producer, version=4).code is E.NONE
        assert moved.settle() == "CompleteCommit"


def test_any_broker_gives_ids_to_idempotent_producers(brokers: EmbeddedBroker) -> None:
    given = set()
    for broker_id in brokers.broker_ids:
        with Client.at(brokers.address(broker_id)) as client:
            given.add(Transactor(client, "t", "topic").init_idempotent().producer.producer_id)
    assert len(given) == 2
