"""When an id's epochs are used up it goes on under another producer id, at whatever step that happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.faults.producing import numbers
from tests.producer.transactions.transacting import deadline, scoped, somebody_else, under_id, until_read
from tests.tiers import whole_but

LAST_EPOCH = 32_766


def set_epoch(broker: EmbeddedBroker, identity: str, epoch: int) -> None:
    """As if the id had been used 32,766 times."""
    states = broker._started().transaction_coordinator._states
    with states.locked(identity) as place:
        assert place.metadata is not None
        states.append(place, replace(place.metadata, producer_epoch=epoch))


@pytest.mark.parametrize("before", whole_but([0, 1, 2, 3], [0, 1], "further from the last epoch"))
def test_transactions_go_on_in_order_through_the_last_epoch(broker: EmbeddedBroker, topic: str, before: int) -> None:
    under_id(broker.bootstrap_servers, topic).close()
    set_epoch(broker, topic, LAST_EPOCH - before)
    with under_id(broker.bootstrap_servers, topic) as producer:
        for turn in range(6):
            producer.begin_transaction()
            for row in range(3):
                producer.send(topic, b"%d" % (turn * 3 + row))
            producer.commit_transaction()
    until_read(broker, topic, list(range(18)))


def prepared(producer: Producer, identity: str, topic: str, row: int) -> TransactionHandle:
    with producer.transaction(identity) as scope:
        scope.append(topic, numbers([row]))
        handle = scope.prepare()
    assert handle is not None
    return handle


@pytest.mark.parametrize("before", whole_but([0, 1, 2, 3], [0, 1], "further from the last epoch"))
def test_a_transaction_of_the_last_epoch_is_committed_by_somebody_else(broker: EmbeddedBroker, topic: str, before: int) -> None:
    with scoped(broker.bootstrap_servers) as producer, somebody_else(broker) as other:
        first = prepared(producer, topic, topic, 0)
        other.end([first], True, deadline())
        until_read(broker, topic, [0])
        set_epoch(broker, topic, LAST_EPOCH - before)
        producer_ids = {first.producer_id}
        for row in range(1, 5):
            handle = prepared(producer, topic, topic, row)
            producer_ids.add(handle.producer_id)
            assert other.end([handle], True, deadline())[topic].outcome is Outcome.COMMITTED
            assert other.end([handle], True, deadline())[topic].outcome is Outcome.COMMITTED
    assert len(producer_ids) == 2
    until_read(broker, topic, list(range(5)))
