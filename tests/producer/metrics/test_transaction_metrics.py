"""The time that calls about transactions take is counted, each in the metric of its own, unless the call fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import TransactionTimeoutError, UsageError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from tests.producer.transactions.transacting import scoped, under_id

STEPS = ("init", "begin", "send-offsets", "prepare", "commit", "abort")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(transaction_state_log_num_partitions=2)) as broker:
        yield broker


def times(producer: Producer) -> dict[str, float]:
    metrics = producer.metrics()["producer-metrics"]
    return {step: metrics[f"txn-{step}-time-ns-total"] for step in STEPS}


def counted(producer: Producer, call: Callable[[], object]) -> set[str]:
    """The metrics that a call adds to; none of them more than the call takes."""
    before = times(producer)
    begun_ns = time.monotonic_ns()
    call()
    took_ns = time.monotonic_ns() - begun_ns
    after = times(producer)
    assert all(after[step] - before[step] <= took_ns for step in STEPS)
    return {step for step in STEPS if after[step] > before[step]}


def test_each_call_counts_its_time(broker: EmbeddedBroker) -> None:
    with under_id(broker.bootstrap_servers, "timed", initialized=False) as producer:
        assert set(times(producer).values()) == {0}
        assert counted(producer, producer.init_transactions) == {"init"}
        assert counted(producer, producer.begin_transaction) == {"begin"}
        producer.send("timed", b"1")
        assert counted(producer, lambda: producer.send_offsets_to_transaction({("timed", 0): 1}, "timed")) == {"send-offsets"}
        assert counted(producer, producer.commit_transaction) == {"commit"}
        producer.begin_transaction()
        producer.send("timed", b"2")
        assert counted(producer, producer.abort_transaction) == {"abort"}


def test_a_transaction_of_its_own_counts_as_init_and_as_abort_if_it_is_not_prepared(broker: EmbeddedBroker) -> None:
    with scoped(broker.bootstrap_servers) as producer:
        assert counted(producer, lambda: producer.transaction("own").close()) == {"init", "abort"}


def test_sending_no_offsets_counts_nowhere_as_in_java(broker: EmbeddedBroker) -> None:
    with under_id(broker.bootstrap_servers, "no-offsets") as producer:
        producer.begin_transaction()
        assert counted(producer, lambda: producer.send_offsets_to_transaction({}, "timed")) == set()
        producer.abort_transaction()


def test_a_call_that_times_out_counts_nowhere_and_the_next_one_its_own_wait(broker: EmbeddedBroker) -> None:
    with under_id(broker.bootstrap_servers, "late") as producer:
        producer.begin_transaction()
        producer.send("timed", b"1").result()
        with broker.faults.hold(ApiKey.END_TXN), pytest.raises(TransactionTimeoutError):
            producer.commit_transaction(0.2)
        assert times(producer)["commit"] == 0
        assert counted(producer, producer.commit_transaction) == {"commit"}


def test_a_call_that_fails_counts_nowhere(broker: EmbeddedBroker) -> None:
    def commit_nothing() -> None:
        with pytest.raises(UsageError, match=r"commit_transaction\(\) is not allowed"):
            producer.commit_transaction()

    with under_id(broker.bootstrap_servers, "failing") as producer:
        assert counted(producer, commit_nothing) == set()
