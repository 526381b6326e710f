"""What the driver asks Kafka before any task starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.errors import MetadataTimeoutError, OptionError
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.spark.driver.publish import ArrowTask
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.plan.data_source import KafkaSinkDataSource
from spark_kafka_sink.spark.plan.first_contact import check_reachable
from spark_kafka_sink.spark.schema import SinkSchema
from tests.kafka.ports import free_ports
from tests.waiting import HOUR_MS

SCHEMA = StructType([StructField("value", BinaryType())])


WAIT_MS = 300
"""Where nobody answers. A broker that answers has an hour for it."""


def given(servers: str, topic: str | None = "events", max_block_ms: int = HOUR_MS) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": servers, "kafka.max.block.ms": str(max_block_ms)}
    return options if topic is None else options | {"topic": topic}


def checked(servers: str, topic: str | None = "events", max_block_ms: int = HOUR_MS) -> SinkOptions:
    return sink_options(given(servers, topic, max_block_ms))


@pytest.fixture
def nowhere() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=False)) as broker:
        broker.create_topic("events", 1)
        yield broker


def test_where_rows_have_timestamps_a_line_says_what_brokers_do_about_old_ones(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spark_kafka_sink.spark.plan.first_contact")
    check_reachable(checked(broker.bootstrap_servers), has_timestamps=True)
    assert [record.getMessage() for record in caplog.records] == [
        "topic events: rows keep the column timestamp; brokers delete rows soon whose timestamp is older than"
        " retention.ms=604,800,000 (7 days) and reject rows whose timestamp is outside message.timestamp.after.max.ms=3,600,000"
    ]


@pytest.mark.parametrize("topic", ["events", None])
def test_a_wrong_address_is_told_with_the_address_and_what_came_of_it(nowhere: str, topic: str | None) -> None:
    with pytest.raises(MetadataTimeoutError) as caught:
        check_reachable(checked(nowhere, topic, WAIT_MS))
    assert f"no broker of bootstrap.servers {nowhere} answered the Spark driver within 0.3 s: " in caught.value.message
    assert "Connection refused" in caught.value.message
    assert caught.value.facts["topic"] == topic


def test_a_task_asks_where_the_driver_cannot_as_on_spark_connect(nowhere: str) -> None:
    task = ArrowTask(SinkSchema(value=0), checked(nowhere, max_block_ms=WAIT_MS), Feed(), is_reachable=False)
    with pytest.raises(MetadataTimeoutError, match=r"answered Spark's task within 0\.3 s: .*that Spark's task may connect"):
        next(task.run(iter(())))


def test_a_missing_topic_is_told_with_what_to_do(broker: EmbeddedBroker) -> None:
    with pytest.raises(
        MetadataTimeoutError, match=r"topic missing: the topic does not exist on .*create the topic, or set"
    ) as caught:
        check_reachable(checked(broker.bootstrap_servers, "missing", max_block_ms=1_500))
    assert caught.value.facts == {"topic": "missing", "error": "UNKNOWN_TOPIC_OR_PARTITION"}


@pytest.mark.parametrize("topic", ["events", None])
def test_a_topic_that_exists_and_rows_with_a_topic_each_are_right(broker: EmbeddedBroker, topic: str | None) -> None:
    check_reachable(checked(broker.bootstrap_servers, topic))


def test_brokers_that_create_topics_create_it() -> None:
    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=True)) as broker:
        for _ in range(2):
            check_reachable(checked(broker.bootstrap_servers, "new"))


def test_a_wrong_address_is_told_in_the_same_words_if_the_topic_shall_be_created(nowhere: str) -> None:
    with pytest.raises(MetadataTimeoutError) as caught:
        check_reachable(sink_options(given(nowhere, max_block_ms=WAIT_MS) | {"topic.create.partitions": "3"}))
    assert f"topic events: no broker of bootstrap.servers {nowhere} answered the Spark driver within 0.3 s: " in str(caught.value)
    assert caught.value.facts["topic"] == "events"


def source(servers: str, max_block_ms: int = WAIT_MS) -> KafkaSinkDataSource:
    return KafkaSinkDataSource(options=CaseInsensitiveDict(given(servers, max_block_ms=max_block_ms)))


def test_the_process_that_plans_needs_the_variable_of_a_reference_until_it_has_reached_kafka(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
    secret = login | {"kafka.sasl.password": "${env:ONLY_ON_EXECUTORS}"}
    made = KafkaSinkDataSource(options=CaseInsensitiveDict(given(broker.bootstrap_servers) | secret))
    for write in (made.writer, made.streamWriter):
        with pytest.raises(OptionError, match="ONLY_ON_EXECUTORS"):
            write(SCHEMA, False)


def test_a_stream_asks_until_it_was_reached_once_and_then_survives_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/somewhere/else")
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        source(servers, HOUR_MS).streamWriter(SCHEMA, False)
    for _ in range(2):
        source(servers).streamWriter(SCHEMA, False)
    with pytest.raises(MetadataTimeoutError):
        source(servers).writer(SCHEMA, False)
    source(servers).streamWriter(SCHEMA, False)  # another query's failed check does not end it
    assert len(list(tmp_path.iterdir())) == 1


def test_a_topic_that_is_deleted_while_a_stream_runs_is_created_again_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with EmbeddedBroker() as broker:
        asked = CaseInsensitiveDict({**given(broker.bootstrap_servers, max_block_ms=60_000), "topic.create.partitions": "3"})
        KafkaSinkDataSource(options=asked).streamWriter(SCHEMA, False)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics(["events"])["events"].result(30)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                KafkaSinkDataSource(options=asked).streamWriter(SCHEMA, False)
        assert len(broker.cluster.image.topics["events"].partitions) == 3
    assert caplog.text.count("topic events was deleted while the stream ran, with its records; created a new one") == 1
    assert caplog.text.count("WARNING") == 1
    KafkaSinkDataSource(options={**asked, "kafka.max.block.ms": "300"}).streamWriter(SCHEMA, False)  # survives an outage


def test_a_stream_asks_while_another_one_still_waits_for_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: str
) -> None:
    """Otherwise its tasks could have brokers create a topic for which the other one has `topic.create.*`."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    asked = []

    def waiting(options: SinkOptions, *, has_timestamps: bool) -> None:
        asked.append(options)
        if len(asked) == 1:
            monkeypatch.setattr("os.getpid", lambda: -1)  # as in another process of Spark's
            source(nowhere).streamWriter(SCHEMA, False)

    monkeypatch.setattr("spark_kafka_sink.spark.plan.first_contact.check_reachable", waiting)
    source(nowhere).streamWriter(SCHEMA, False)
    assert len(asked) == 2


def test_a_stream_that_has_not_reached_kafka_fails_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    for _ in range(2):
        with pytest.raises(MetadataTimeoutError):
            source(nowhere).streamWriter(SCHEMA, False)


def test_where_nothing_can_be_remembered_a_stream_does_not_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "not-there"))
    source(nowhere).streamWriter(SCHEMA, False)


def test_nobody_asks_outside_of_the_processes_in_which_spark_plans(monkeypatch: pytest.MonkeyPatch, nowhere: str) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    source(nowhere).writer(SCHEMA, False)
