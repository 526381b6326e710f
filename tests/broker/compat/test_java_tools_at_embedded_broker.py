"""Kafka's own command line tools work at an embedded broker and say there what they say at Kafka."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.compat import confluent
from tests.broker.compat.conftest import NewTopic
from tests.broker.compat.java_tools import events, tool
from tests.kafka import java

pytestmark = pytest.mark.java


def test_kafka_topics(broker: EmbeddedBroker, servers: str, name: str) -> None:
    created = tool("TopicCommand", servers, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=100000")
    assert created == [f"Created topic {name}."]
    tool("TopicCommand", servers, "--alter", "--topic", name, "--partitions", "3")
    head, *partitions = tool("TopicCommand", servers, "--describe", "--topic", name)
    assert f"Topic: {name}" in head
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in head
    assert "retention.ms=100000" in head
    assert [line.split("\tElr")[0].strip() for line in partitions] == [
        f"Topic: {name}\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1" for index in range(3)
    ]
    tool("TopicCommand", servers, "--delete", "--topic", name)
    assert name not in broker.cluster.image.topics


def test_console_producer_and_consumer(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    given = "k:v\ta\t1\nk2:v2\tb\t\n"
    reading = [f"--property=parse.{part}=true" for part in ("headers", "key")]
    tool("ConsoleProducer", servers, "--topic", topic, *reading, "--compression-codec", "zstd", given=given)
    printing = [f"--property=print.{part}=true" for part in ("partition", "offset", "headers", "key")]
    how = ("--topic", topic, "--from-beginning", "--max-messages", "2")
    lines = tool("consumer.ConsoleConsumer", servers, *how, *printing)
    assert lines[:2] == ["Partition:0\tOffset:0\tk:v\ta\t1", "Partition:0\tOffset:1\tk2:v2\tb\t"]


def test_verifiable_producer_and_consumer(servers: str, new_topic: NewTopic, name: str) -> None:
    topic = new_topic(2)
    told = events(tool("VerifiableProducer", servers, "--topic", topic, "--max-messages", "200", "--acks", "-1"))
    acked = [event for event in told if event["name"] == "producer_send_success"]
    assert sorted(int(event["value"]) for event in acked) == list(range(200))
    assert told[-1]["acked"] == 200

    told = events(tool("VerifiableConsumer", servers, "--topic", topic, "--group-id", name, "--max-messages", "200"))
    names = [event["name"] for event in told]
    assert (names[0], names[1], names[-1]) == ("startup_complete", "partitions_assigned", "shutdown_complete")
    assert sum(event["count"] for event in told if event["name"] == "records_consumed") >= 200
    assert all(event["success"] for event in told if event["name"] == "offsets_committed")
    reader = confluent.consumer(servers, group_id=name)
    committed = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], confluent.TIMEOUT_S)
    reader.close()
    assert sum(max(each.offset, 0) for each in committed) == 200


def test_kafkas_own_test_of_compatibility(servers: str, new_topic: NewTopic) -> None:
    supported = ("offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs", "idempotent-producer")
    answers = [argument for name in supported for argument in (f"--{name}-supported", "true")]
    others = ("--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1")
    printed = tool("ClientCompatibilityTest", servers, "--topic", new_topic(), *answers, *others)
    assert "SUCCESS." in printed


def test_kafka_broker_api_versions_and_kafka_cluster(broker: EmbeddedBroker, servers: str) -> None:
    head, *lines = tool("BrokerApiVersionsCommand", servers)
    assert head == f"{servers} (id: 1 rack: null isFenced: false) -> ("
    apis = {line.split("(")[0].strip(): line for line in lines if "(" in line}
    assert "usable: 13" in apis["Produce"]
    assert "UNSUPPORTED" in apis["ConsumerGroupHeartbeat"]
    assert not any("UNKNOWN" in line for line in lines)
    printed = java.run("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", servers, timeout_s=60)
    assert printed.split() == ["Cluster", "ID:", broker.cluster.cluster_id]
