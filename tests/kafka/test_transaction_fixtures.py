"""The Kafkas for tests on transactions speak the version they are asked for, and forbid what a test forbids."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink.protocol.api_versions import ApiVersionsResponse
from tests.broker.network.client import Client
from tests.kafka.acls import KafkaWithAcls, acls
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.test_cluster import produce
from tests.kafka.witness import read_topic


def finalized_level(kafka: Kafka) -> int:
    """Of transaction.version; 0 where ApiVersions does not list it."""
    host, _, port = kafka.bootstrap_servers.partition(",")[0].rpartition(":")
    with Client(int(port), host) as client:
        answer: ApiVersionsResponse = client.api_versions(4)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert levels["metadata.version"] > 0
    return levels.get("transaction.version", 0)


def transactional(kafka: Kafka, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    return producer


def test_producers_have_version_2_unless_they_ask_for_less(kafka: Kafka, kafka_tv1: Kafka) -> None:
    assert (finalized_level(kafka), finalized_level(kafka_tv1)) == (2, 0)


def test_a_transaction_is_read_once_it_is_committed(
    transaction_kafka: Kafka, transaction_version: int, new_topic: NewTopic
) -> None:
    assert finalized_level(transaction_kafka) == {1: 0, 2: 2}[transaction_version]
    topic = new_topic(on=transaction_kafka)
    producer = transactional(transaction_kafka, topic)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(30)
    servers = transaction_kafka.direct_servers
    # A commit is answered when it is certain; the marker that lets a consumer read on is written after that.
    transaction_kafka.wait_for(lambda: len(read_topic(servers, topic, isolation_level="read_committed")) > 0, "the marker", 20)
    assert [record.value for record in read_topic(servers, topic, isolation_level="read_committed")] == [b"committed"]


def test_what_no_acl_forbids_is_allowed(kafka_with_acls: KafkaWithAcls, new_topic: NewTopic) -> None:
    assert not acls(kafka_with_acls)
    produce(kafka_with_acls.bootstrap_servers, topic := new_topic(on=kafka_with_acls), [b"allowed"])
    assert len(read_topic(kafka_with_acls.bootstrap_servers, topic)) == 1


def test_transactional_ids_that_begin_so_may_be_forbidden(kafka_with_acls: KafkaWithAcls) -> None:
    with kafka_with_acls.denied(ResourceType.TRANSACTIONAL_ID, "app.", AclOperation.WRITE, prefixed=True):
        with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            transactional(kafka_with_acls, "app.1")
        transactional(kafka_with_acls, "apps.1")
    transactional(kafka_with_acls, "app.1")


def test_an_operation_on_a_topic_may_be_forbidden_without_the_others(kafka_with_acls: KafkaWithAcls, new_topic: NewTopic) -> None:
    topic, errors = new_topic(on=kafka_with_acls), list[str | None]()
    kafka_with_acls.deny(ResourceType.TOPIC, topic, AclOperation.WRITE)
    producer = Producer({"bootstrap.servers": kafka_with_acls.bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"forbidden", on_delivery=lambda error, _: errors.append(error.name() if error else None))
    producer.flush(30)
    assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
    assert read_topic(kafka_with_acls.bootstrap_servers, topic) == []
