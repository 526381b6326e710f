"""`check` and `topic.create.*` on each version of Kafka."""

from __future__ import annotations

import pytest

from spark_kafka_sink import Producer
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.driver.check import check
from spark_kafka_sink.spark.driver.checks.report import Status
from spark_kafka_sink.spark.plan.first_contact import create_missing_topic
from tests.kafka.cluster import KafkaCluster
from tests.kafka.kafka import has_leaders
from tests.kafka.version_fixtures import only_versions
from tests.kafka.versions import OLDEST


@only_versions(OLDEST)
def test_a_topic_of_the_old_message_format_is_a_cross_and_its_rows_say_why(versioned_kafka: KafkaCluster, topic: str) -> None:
    old = versioned_kafka.create_topic(f"{topic}-old", 1, config={"message.format.version": "0.10.2"})
    report = check({"kafka.bootstrap.servers": versioned_kafka.bootstrap_servers, "topic": old}, timeout=30)
    (cross,) = (line for line in report.lines if line.status is Status.FAILED)
    assert "message.format.version=0.10.2" in cross.text
    assert "remove message.format.version from the topic's configs" in cross.to_do

    with (
        Producer({"bootstrap.servers": versioned_kafka.bootstrap_servers}) as producer,
        pytest.raises(BrokerError, match=r"UNSUPPORTED_FOR_MESSAGE_FORMAT.*remove that config from the topic"),
    ):
        producer.send(old, b"row").result(30)


def test_check_and_the_creation_of_a_topic(kafka_version: str, versioned_kafka: KafkaCluster, topic: str) -> None:
    servers = {"kafka.bootstrap.servers": versioned_kafka.bootstrap_servers}
    report = check({**servers, "topic": topic}, timeout=30)
    assert report.ok, str(report)
    assert {line.status for line in report.lines if line.name in ("brokers", "topic", "sizes")} == {Status.OK}
    name = f"{topic}-new"
    new = {**servers, "topic": name, "topic.create.partitions": "3", "topic.create.replication.factor": "1"}
    assert check(new, timeout=30).ok
    create_missing_topic(sink_options(new))
    # The other broker of the cluster hears of the topic a little later.
    versioned_kafka.wait_for(lambda: has_leaders(versioned_kafka.metadata(name).topics[name], 3), f"topic {name}", 30)
