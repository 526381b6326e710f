"""What the finalized feature transaction.version changes. The expected answers were recorded from Kafka 4.1.0 brokers whose
storage was formatted with `--feature transaction.version=0` and `=1`; at 2 the same requests are in test_answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import NOBODY, Transactor
from tests.waiting import until

E = ErrorCode


@pytest.fixture
def txn(version: int) -> Iterator[Transactor]:
    config = BrokerConfig(transaction_version=version)
    with EmbeddedBroker(config=config) as broker, Client.at(broker.bootstrap_servers) as client:
        yield Transactor(client, "t", broker.create_topic("topic", 2))


def next_epoch(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return producer._replace(producer_epoch=producer.producer_epoch + 1)


@pytest.mark.parametrize("version", [0, 1])
class TestBoth:
    def test_clients_of_version_1_are_served(self, txn: Transactor) -> None:
        who = txn.init().producer
        assert txn.produce(who, version=11) is E.TRANSACTION_ABORTABLE
        assert txn.add(who, 0) == [E.NONE]
        assert txn.produce(who, version=11) is E.NONE
        assert txn.commit(who, version=4) == (E.NONE, NOBODY)
        assert txn.settled(lambda: txn.commit(who, version=4)).code is E.NONE
        assert txn.abort(who, version=4).code is E.INVALID_TXN_STATE

    def test_a_fence_leaves_no_way_back(self, txn: Transactor) -> None:
        who = txn.init().producer
        assert txn.add(who, 0) == [E.NONE]
        assert txn.init().code is E.CONCURRENT_TRANSACTIONS
        assert txn.settle() == "CompleteAbort"
        assert txn.describe().producer_epoch == 1
        assert txn.init(who).code is E.PRODUCER_FENCED
        assert txn.init().producer.producer_epoch == 2

    def test_after_a_timeout(self, txn: Transactor) -> None:
        who = txn.init(timeout_ms=100).producer
        assert txn.add(who, 0) == [E.NONE]
        until(txn.state, lambda state: state == "CompleteAbort", "not aborted")
        assert txn.describe().producer_epoch == 1
        assert txn.commit(who, version=4).code is E.PRODUCER_FENCED
        assert txn.abort(who, version=4).code is E.PRODUCER_FENCED
        assert txn.commit(who, version=5).code is E.INVALID_TXN_STATE
        assert txn.add(who, 0) == [E.PRODUCER_FENCED]
        assert txn.produce(who, version=11) is E.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [1])
def test_version_1_serves_clients_of_version_2_that_do_not_ask(txn: Transactor) -> None:
    who = txn.init().producer
    assert txn.produce(who) is E.NONE
    assert txn.state() == "Ongoing"
    assert txn.commit(who) == (E.NONE, next_epoch(who))
    assert txn.settled(lambda: txn.commit(who)) == (E.NONE, next_epoch(who))
    assert txn.abort(next_epoch(who)).code is E.NONE
