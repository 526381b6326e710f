"""Clusters of other versions than the default: they are of that version, and of the mode that was asked for."""

from __future__ import annotations

import psutil
import pytest
from confluent_kafka import TopicCollection

from tests.kafka.cluster import KafkaCluster
from tests.kafka.version_fixtures import IN_ZOOKEEPER_MODE, only_versions
from tests.kafka.versions import DEFAULT, OLDEST, POMS, broker_jar, jars_of, patch_of

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
USED_ELSEWHERE = "tests/kafka_versions/ uses the same clusters"


def topic_id(cluster: KafkaCluster, topic: str) -> str:
    asked = cluster.admin.describe_topics(TopicCollection([topic]), request_timeout=10)
    return str(asked[topic].result().topic_id)


@only_versions(*sorted(POMS), whole=USED_ELSEWHERE)
def test_a_cluster_runs_the_version_that_its_pom_pins(kafka_version: str, versioned_kafka: KafkaCluster) -> None:
    command = psutil.Process(versioned_kafka.pid(1)).cmdline()
    assert str(jars_of(kafka_version) / "*") in command
    assert (jars_of(kafka_version) / broker_jar(kafka_version)).is_file()


@only_versions(OLDEST, "2.8", "3.7", "3.8", whole=USED_ELSEWHERE)
def test_only_a_cluster_of_old_brokers_has_no_topic_ids(kafka_version: str, versioned_kafka: KafkaCluster) -> None:
    topic = versioned_kafka.create_topic(f"ids-of-{kafka_version}")
    assert (topic_id(versioned_kafka, topic) == NO_ID) == (kafka_version in (OLDEST, IN_ZOOKEEPER_MODE))


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Kafka 0\.8 has no pom"):
        KafkaCluster(version="0.8")


def test_each_pom_pins_a_patch_of_its_version() -> None:
    assert all(patch_of(version).startswith(f"{version}.") for version in POMS)
    assert DEFAULT in POMS
