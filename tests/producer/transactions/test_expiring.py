"""Transactions whose calls have timed out, and whose batches expire: they go on as far as they can, and hold up no close()."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DeliveryTimeoutError, TransactionTimeoutError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.producing import producer_on
from tests.producer.transactions.transacting import state_of, under_id, until_ended, until_read
from tests.tiers import whole_but
from tests.waiting import HOUR_S, wait_until

SOON_S = 60.0
# A batch that was refused once expires before it is sent again. Metadata that a busy machine does not answer at once is asked for
# again after the same back-off, so that is much shorter than max.block.ms.
EXPIRING: dict[str, Any] = {
    "request_timeout_ms": 3_000,
    "delivery_timeout_ms": 3_000,
    "retry_backoff_ms": 4_000,
    "retry_backoff_max_ms": 4_000,
    "max_block_ms": 30_000,
}


def send_what_expires(broker: EmbeddedBroker, producer: Producer, topic: str) -> Any:
    """A record was sent before it: what expires needs no connection and no producer id first."""
    refused = broker.faults.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=None, topic=topic)
    sent = producer.send(topic, b"1")
    refused.wait()
    return sent


def close(producer: Producer) -> None:
    producer.close(HOUR_S)


@pytest.mark.parametrize("transaction_version", [2], ids=["any"], indirect=True)
def test_a_producer_that_closes_waits_for_its_last_batch_no_longer_than_that_lives(broker: EmbeddedBroker, topic: str) -> None:
    producer = producer_on(broker.bootstrap_servers, **EXPIRING)
    wait_until(lambda: producer.send(topic, b"0").exception(SOON_S) is None, "a first record")
    sent = send_what_expires(broker, producer, topic)
    close(producer)
    assert isinstance(sent.exception(0), DeliveryTimeoutError)


@pytest.mark.parametrize(
    "transaction_version", whole_but([1, 2], [2], "3 s; version 2 is in make test"), ids=["tv1", "tv2"], indirect=True
)
def test_a_producer_that_closes_aborts_as_soon_as_a_batch_has_expired(broker: EmbeddedBroker, topic: str) -> None:
    producer = under_id(broker.bootstrap_servers, topic, **EXPIRING)
    producer.begin_transaction()
    producer.send(topic, b"0").result(SOON_S)
    sent = send_what_expires(broker, producer, topic)
    close(producer)
    assert isinstance(sent.exception(0), DeliveryTimeoutError)
    until_ended(broker, topic)
    assert state_of(broker, topic) == "CompleteAbort"


@pytest.mark.parametrize("transaction_version", [1], ids=["tv1"], indirect=True)
def test_a_partition_is_added_though_the_commit_that_waits_for_it_has_timed_out(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        loading = broker.faults.fail(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        sent = producer.send(topic, b"1")
        with pytest.raises(TransactionTimeoutError):
            producer.commit_transaction(0.1)
        loading.remove()
        assert sent.exception(SOON_S) is None
        producer.commit_transaction()
    until_read(broker, topic, [1])


def test_a_producer_that_closes_commits_what_a_commit_that_timed_out_has_begun_to(broker: EmbeddedBroker, topic: str) -> None:
    producer = under_id(broker.bootstrap_servers, topic)
    producer.begin_transaction()
    producer.send(topic, b"1")
    with broker.faults.hold(ApiKey.PRODUCE, topic=topic), pytest.raises(TransactionTimeoutError):
        producer.commit_transaction(0.1)
    close(producer)
    until_read(broker, topic, [1])
