"""Kafka's own command line tools work at an embedded broker and say there what they say at Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ScramMechanism

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.compat import confluent
from tests.broker.compat.conftest import NewTopic
from tests.broker.compat.java_tools import events, table, tool
from tests.kafka import java
from tests.kafka.witness import read_topic

pytestmark = pytest.mark.java


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


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


@pytest.mark.whole("18 s; two other clients join groups in tests/broker/test_consumer_groups.py")
def test_console_consumer_in_a_group_and_kafka_consumer_groups(servers: str, new_topic: NewTopic, name: str) -> None:
    topic = new_topic(2)
    confluent.write(servers, topic, "0", "1", "2", "3", "4")
    how = ("--topic", topic, "--from-beginning", "--group", name)
    first = tool("consumer.ConsoleConsumer", servers, *how, "--max-messages", "2")[:2]
    second = tool("consumer.ConsoleConsumer", servers, *how, "--max-messages", "3")[:3]
    assert sorted(first + second) == ["0", "1", "2", "3", "4"]

    def groups(*arguments: str) -> list[str]:
        return tool("consumer.group.ConsumerGroupCommand", servers, *arguments)

    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    described = table(groups("--describe", "--group", name))
    assert sorted(tuple(row[column] for column in columns) for row in described) == [
        (topic, "0", "3", "3", "0"),
        (topic, "1", "2", "2", "0"),
    ]
    moved = table(groups("--reset-offsets", "--group", name, "--topic", topic, "--shift-by", "-1", "--execute"))
    assert sorted((row["PARTITION"], row["NEW-OFFSET"]) for row in moved) == [("0", "2"), ("1", "1")]
    assert {"GROUP": name, "STATE": "Empty"} in table(groups("--list", "--state"))
    assert groups("--delete", "--group", name) == [f"Deletion of requested consumer groups ('{name}') was successful."]


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


@pytest.mark.whole("many starts of Java; confluent-kafka and kafka-python list and abort transactions")
def test_kafka_transactions(servers: str, new_topic: NewTopic, name: str) -> None:
    topic = new_topic()
    writer = confluent.producer(servers, transactional_id=name)
    writer.init_transactions(confluent.TIMEOUT_S)
    writer.begin_transaction()
    writer.produce(topic, "value")
    assert writer.flush(confluent.TIMEOUT_S) == 0

    (listed,) = [row for row in words(tool("TransactionsCommand", servers, "list")) if row[0] == name]
    (described,) = [
        row for row in words(tool("TransactionsCommand", servers, "describe", "--transactional-id", name)) if name in row
    ]
    partition = ("--topic", topic, "--partition", "0")
    _, producing = words(tool("TransactionsCommand", servers, "describe-producers", *partition))
    producer_id = listed[2]
    assert (listed[1], listed[3]) == ("1", "Ongoing")
    assert (described[0], described[1], described[2], described[4], described[-1]) == (
        "1",
        name,
        producer_id,
        "Ongoing",
        f"{topic}-0",
    )
    assert (producing[0], producing[1], producing[-1]) == (producer_id, "0", "0")
    writer.abort_transaction(confluent.TIMEOUT_S)


@pytest.mark.whole("14 s; tests/broker/test_transactional_clients.py commits offsets in transactions, and Java writes them")
def test_transactions_are_copied_by_kafkas_own_copier(servers: str, new_topic: NewTopic, name: str) -> None:
    source, target = new_topic(), new_topic()
    values = [str(index) for index in range(1000)]
    confluent.write(servers, source, *values, linger_ms=5)
    printed = java.run(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", servers, "--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transactional-id", name, "--consumer-group", name, "--transaction-size", "20"),
        *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
        timeout_s=60,
    )
    copied = read_topic(servers, target, isolation_level="read_committed")
    assert [(record.value or b"").decode() for record in copied] == values
    # A third was aborted and tried again, as chance would have it.
    assert printed.count('"stage":"ProcessLoop"') > len(values) / 20 + 5


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


@pytest.mark.whole("many starts of Java; the configs of topics have the same tool")
def test_kafka_configs_of_users(servers: str, name: str) -> None:
    """It changes them. To describe them it asks for client quotas as well, which are not there."""
    entity = ("--entity-type", "users", "--entity-name", name)
    for added in ("SCRAM-SHA-256=[iterations=8192,password=secret-word]", "SCRAM-SHA-512=[password=secret-word]"):
        tool("kafka.admin.ConfigCommand", servers, "--alter", *entity, "--add-config", added)
    tool("kafka.admin.ConfigCommand", servers, "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    admin = confluent.admin(servers)
    described: Any = admin.describe_user_scram_credentials([name])
    infos = described[name].result(confluent.TIMEOUT_S).scram_credential_infos
    assert [(info.mechanism, info.iterations) for info in infos] == [(ScramMechanism.SCRAM_SHA_256, 8192)]
