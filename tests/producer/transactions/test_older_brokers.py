"""Transactions at older brokers: the program's own work as in Java, those that another process ends are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink import Producer, RecordColumns
from spark_kafka_sink.errors import DeliveryError, UnsupportedVersionError
from spark_kafka_sink.protocol.api import ApiKey
from tests.kafka.embedded import EmbeddedKafka, mixed_kafka
from tests.kafka.witness import read_topic

pytestmark = pytest.mark.embedded

NEEDS = r"exactly-once requires Kafka 3\.8 or newer on every broker, but broker 1"


@pytest.mark.parametrize("like", ["2.1", "3.7"])
def test_begin_and_commit_work_at_every_broker_that_has_transactions(like: str) -> None:
    with EmbeddedKafka(in_memory=True, like=like) as kafka:
        kafka.create_topic("events")
        with Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "own"}) as producer:
            producer.init_transactions()
            for value, ends in [
                (b"a", producer.commit_transaction),
                (b"b", producer.abort_transaction),
                (b"c", producer.commit_transaction),
            ]:
                producer.begin_transaction()
                producer.send("events", value, partition=0).result(30)
                ends()

        def visible() -> list[bytes | None]:
            return [each.value for each in read_topic(kafka.bootstrap_servers, "events", isolation_level="read_committed")]

        kafka.wait_for(lambda: visible() == [b"a", b"c"], "the commits", 30)


@pytest.mark.parametrize("like", ["2.1", "3.7"])
def test_a_transaction_for_others_to_end_is_refused_before_it_begins(like: str) -> None:
    with EmbeddedKafka(in_memory=True, like=like) as kafka:
        asked = kafka.broker.faults.watch(ApiKey.INIT_PRODUCER_ID, times=None)
        settings = {"bootstrap.servers": kafka.bootstrap_servers}
        with Producer(settings, transactional=True) as producer, pytest.raises(UnsupportedVersionError, match=NEEDS):
            producer.transaction("for-others")
        assert asked.hits == 0


def test_nothing_is_written_to_an_older_leader_and_the_transaction_is_aborted() -> None:
    with mixed_kafka() as kafka:
        kafka.create_topic("events", 2, replication=1)
        led_by = {kafka.leader("events", number): number for number in range(2)}
        produced = kafka.broker.faults.watch(ApiKey.PRODUCE, broker=2, times=None)
        settings = {"bootstrap.servers": kafka.bootstrap_servers}
        kafka.broker.move_coordinator("transaction", "for-others", 1)
        with (
            Producer(settings, transactional=True) as producer,
            pytest.raises(DeliveryError, match="1 record failed, 1 was acknowledged") as raised,
            producer.transaction("for-others") as scope,
        ):
            for leader in (1, 2):
                scope.append("events", RecordColumns(1, pa.array([b"row"]), partition=np.array([led_by[leader]], np.int32)))
                scope.flush()
        assert isinstance(raised.value.__cause__, UnsupportedVersionError)
        assert "but broker 2 (" in str(raised.value)
        assert produced.hits == 0
        assert [each.value for each in read_topic(kafka.bootstrap_servers, "events", isolation_level="read_committed")] == []
