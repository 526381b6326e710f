"""Records with a time of their own: old ones are counted and warned of, and other units than ms are refused or converted."""

from __future__ import annotations

import logging
import time

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DeliveryError, RecordError
from spark_kafka_sink.producer.base.bad_rows import BadRows
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns
from tests.faults.producing import producer_at
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import DEADLINE_S

LOGGER = "spark_kafka_sink.producer.producer_metadata"
PATIENCE = "spark_kafka_sink.producer.producer_metadata._PATIENCE_S"
YEAR_2020 = 1_577_836_800_000


@pytest.fixture(autouse=True)
def brokers_have_time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATIENCE, DEADLINE_S)


def columns(*timestamps: int) -> RecordColumns:
    return RecordColumns(len(timestamps), value=pa.array([b"v"] * len(timestamps)), timestamp=np.array(timestamps, np.int64))


def test_old_records_are_counted_and_warned_of_once(kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture) -> None:
    topic, now = new_topic(1), time.time_ns() // 1_000_000
    with producer_at(kafka) as producer, producer.scope() as scope:
        for _ in range(2):
            scope.append(topic, columns(YEAR_2020, now, NO_TIMESTAMP))
        producer.send(topic, b"v", timestamp=YEAR_2020).result(60)
        scope.flush()
        assert scope.report().older_than_retention == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert warning.startswith(
        f"topic {topic}: 1 record is older than its retention.ms=604800000: brokers delete such records soon"
    )


def test_the_brokers_are_asked_once_for_many_topics() -> None:
    """With one partition each, of which the last is kept for ever."""
    with EmbeddedBroker() as broker:
        for number in range(5):
            broker.create_topic(f"t{number}", 1, configs={"retention.ms": "-1"} if number == 4 else {})
        asked = broker.faults.watch(ApiKey.DESCRIBE_CONFIGS, times=None)
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer, producer.scope() as scope:
            scope.request_topics(f"t{number}" for number in range(5))
            for number in range(5):
                scope.append(f"t{number}", columns(YEAR_2020))
            assert scope.report().older_than_retention == 4
        assert asked.hits == 1


def test_brokers_that_do_not_answer_are_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(PATIENCE, 0.2)
    with caplog.at_level(logging.INFO, LOGGER), EmbeddedBroker() as broker:
        asked = broker.faults.hold(ApiKey.DESCRIBE_CONFIGS, times=None)
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer, producer.scope() as scope:
            for topic in ("t", "u"):
                broker.create_topic(topic, 1)
                scope.append(topic, columns(YEAR_2020))
            assert scope.report().older_than_retention == 0
        assert asked.hits <= 1, "none where even the connection took longer"
    (given_up,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert given_up.startswith("whether records are older than the retention.ms of their topics is not known: ")


@pytest.mark.parametrize(
    "config", [{"retention.ms": "-1"}, {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}]
)
def test_where_no_record_is_deleted_for_its_timestamp_none_is_counted(
    kafka: Kafka, new_topic: NewTopic, config: dict[str, str]
) -> None:
    topic = new_topic(1, config=config)
    with producer_at(kafka) as producer, producer.scope() as scope:
        scope.append(topic, RecordColumns(1, pa.array([b"v"]), pa.array([b"k"]), timestamp=np.array([YEAR_2020])))
        assert scope.report().older_than_retention == 0


@pytest.mark.parametrize("number", [1_700_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000])
def test_a_time_in_another_unit_is_refused_before_it_is_sent(kafka: Kafka, new_topic: NewTopic, number: int) -> None:
    topic, now, bad = new_topic(1), time.time_ns() // 1_000_000, list[BadRows]()
    with producer_at(kafka) as producer, producer.scope() as scope:
        for send in (lambda: producer.send(topic, timestamp=number), lambda: scope.append(topic, columns(now, number))):
            with pytest.raises(RecordError, match=rf"{number} is in the year .* 2023-11-14T22:13:20Z as .*set timestamp.unit="):
                send()
        scope.append(topic, columns(now, number), on_bad_rows=bad.append)
    assert [each.columns.timestamp.tolist() for each in bad if each.columns.timestamp is not None] == [[number]]
    assert [record.timestamp for record in read_topic(kafka.direct_servers, topic)] == [now]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_a_unit_that_is_set_is_converted(kafka: Kafka, new_topic: NewTopic, unit: str, factor: int) -> None:
    topic = new_topic(1, config={"retention.ms": "-1"})
    with producer_at(kafka, timestamp_unit=unit) as producer:
        producer.send(topic, timestamp=1_700_000_000 * factor).result(60)
        with producer.scope() as scope:
            scope.append(topic, columns(1_700_000_000 * factor))
    assert [record.timestamp for record in read_topic(kafka.direct_servers, topic)] == [1_700_000_000_000] * 2


def test_the_error_of_the_brokers_names_the_unit_that_was_meant(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, config={"message.timestamp.after.max.ms": "3600000"})
    with (
        producer_at(kafka, timestamp_unit="ms") as producer,
        pytest.raises(DeliveryError) as caught,
        producer.scope() as scope,
    ):
        scope.append(topic, columns(1_700_000_000_000_000))
    assert "1700000000000000 is in the year 55840 as milliseconds and 2023-11-14T22:13:20Z as microseconds" in str(caught.value)
