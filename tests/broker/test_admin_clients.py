"""confluent-kafka's admin client at the embedded broker, as it is at Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.error_codes import ErrorCode

TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(3) as running:
        yield running


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def done(futures: dict[Any, Any]) -> dict[Any, Any]:
    """Each result, or the error's code."""

    def result(future: Any) -> Any:
        try:
            return future.result(TIMEOUT_S)
        except KafkaException as error:
            return ErrorCode(error.args[0].code())

    return {key: result(future) for key, future in futures.items()}


def of_topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


class TestConfluent:
    def test_topics_are_made_listed_described_and_deleted(self, broker: EmbeddedBroker, admin: AdminClient) -> None:
        made = done(admin.create_topics([NewTopic("c.one", 3, 2, config={"retention.ms": "9"}), NewTopic("c.two", 0, 1)]))
        listed = admin.list_topics(timeout=TIMEOUT_S).topics
        described = done(admin.describe_topics(TopicCollection(["c.one", "c.none"])))

        assert made == {"c.one": None, "c.two": ErrorCode.INVALID_PARTITIONS}
        assert len(listed["c.one"].partitions) == 3
        assert [len(partition.replicas) for partition in described["c.one"].partitions] == [2, 2, 2]
        assert described["c.none"] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.cluster.image.topics["c.one"].configs == {"retention.ms": "9"}
        assert done(admin.delete_topics(["c.one", "c.none"])) == {
            "c.one": None,
            "c.none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert "c.one" not in broker.cluster.image.topics

    def test_configs_are_described(self, broker: EmbeddedBroker, admin: AdminClient) -> None:
        broker.create_topic("c.described", configs={"cleanup.policy": "compact"})
        topic, node = of_topic("c.described"), ConfigResource(ResourceType.BROKER, "2")
        found = done(admin.describe_configs([topic, node]))

        assert found[topic]["cleanup.policy"].value == "compact"
        assert found[topic]["cleanup.policy"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert (found[topic]["flush.ms"].is_default, found[node]["broker.id"].value) == (True, "2")
        assert done(admin.describe_configs([of_topic("c.none")])) == {of_topic("c.none"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    def test_configs_are_altered_one_by_one(self, broker: EmbeddedBroker, admin: AdminClient) -> None:
        broker.create_topic("c.altered", configs={"segment.ms": "5"})
        changes = [
            ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ]
        resource = ConfigResource(ResourceType.TOPIC, "c.altered", incremental_configs=changes)
        wrong = ConfigResource(
            ResourceType.TOPIC,
            "c.altered",
            incremental_configs=[ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)],
        )

        assert list(done(admin.incremental_alter_configs([resource])).values()) == [None]
        assert list(done(admin.incremental_alter_configs([wrong])).values()) == [ErrorCode.INVALID_CONFIG]
        assert broker.cluster.image.topics["c.altered"].configs == {"retention.ms": "7", "cleanup.policy": "delete,compact"}

    def test_the_cluster_is_described(self, broker: EmbeddedBroker, admin: AdminClient) -> None:
        found = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)

        assert (found.cluster_id, [node.id for node in found.nodes]) == (broker.cluster.cluster_id, [1, 2, 3])
        assert len(found.authorized_operations) == 7

    def test_records_are_deleted(self, broker: EmbeddedBroker, admin: AdminClient) -> None:
        broker.create_topic("c.records", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for _ in range(5):
            producer.produce("c.records", b"value")
        assert producer.flush(TIMEOUT_S) == 0
        asked = TopicPartition("c.records", 0, 3)
        found = done(admin.delete_records([asked]))
        beginning: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        earliest = done(admin.list_offsets({TopicPartition("c.records", 0): beginning}))

        assert [result.low_watermark for result in found.values()] == [3]
        assert [result.offset for result in earliest.values()] == [3]
