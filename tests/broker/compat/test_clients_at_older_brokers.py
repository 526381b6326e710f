"""Clients that are not ours work at a broker that was told to be an older Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic as ConfluentTopic

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.kafka_release import RELEASES
from tests.broker.compat import confluent, kafka_python
from tests.broker.compat.confluent import TIMEOUT_S
from tests.broker.compat.java_tools import TOOLS, tool
from tests.kafka import java
from tests.waiting import until

VALUES = [str(index) for index in range(20)]


@pytest.fixture(params=RELEASES)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with EmbeddedBroker(like=request.param) as broker:
        broker.create_topic("topic", 2)
        broker.create_topic("copy")
        yield broker.bootstrap_servers


def test_confluent_kafka_writes_and_reads(servers: str) -> None:
    admin = confluent.admin(servers)
    admin.create_topics([ConfluentTopic("made", 2, 1)])["made"].result(TIMEOUT_S)
    assert confluent.write(servers, "made", *VALUES, enable_idempotence=True).errors == []
    reader = confluent.consumer(servers, group_id="group")
    try:
        reader.subscribe(["made"])
        assert sorted(confluent.values(confluent.polled(reader, 20))) == sorted(VALUES)
        reader.commit(asynchronous=False)
    finally:
        reader.close()


def test_kafka_python_writes_and_reads(servers: str) -> None:
    with ExitStack() as closing:
        writer = kafka_python.producer(servers, closing)
        for index, value in enumerate(VALUES):
            writer.send("topic", value.encode(), partition=index % 2)
        writer.flush(TIMEOUT_S)
        reader = kafka_python.consumer(servers, closing, "topic", group_id="group")
        assert sorted(next(reader).value.decode() for _ in VALUES) == sorted(VALUES)
        reader.commit()


def test_confluent_kafka_writes_transactions(servers: str) -> None:
    """Read together with the offsets of a group."""
    confluent.write(servers, "topic", *VALUES)
    writer = confluent.producer(servers, transactional_id="t", transaction_timeout_ms=60_000)
    writer.init_transactions(TIMEOUT_S)
    reader = confluent.consumer(servers, group_id="copies")
    try:
        reader.subscribe(["topic"])
        read = confluent.values(confluent.polled(reader, 20))
        for committed in (False, True):
            writer.begin_transaction()
            for value in read:
                writer.produce("copy", value)
            positions = reader.position(reader.assignment())
            writer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), TIMEOUT_S)
            writer.commit_transaction(TIMEOUT_S) if committed else writer.abort_transaction(TIMEOUT_S)

        def offsets() -> list[int]:
            return [each.offset for each in reader.committed([TopicPartition("topic", index) for index in range(2)], TIMEOUT_S)]

        # Before 2.5, OffsetFetch does not wait for the marker of a transaction that has just ended (KIP-447).
        until(offsets, lambda found: found == [10, 10], "the offsets of the transaction")
    finally:
        reader.close()
    assert committed_values(servers, "copy") == read


def committed_values(servers: str, topic: str) -> list[str]:
    reader: Consumer = confluent.consumer(servers, isolation_level="read_committed")
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        return confluent.values(confluent.polled(reader, 20))
    finally:
        reader.close()


@pytest.mark.java
@pytest.mark.parametrize("servers", ["3.7"], indirect=True)
def test_java_writes_and_reads(servers: str) -> None:
    java.run(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", "topic", "--num-records", "100", "--record-size", "10", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={servers}", "--transactional-id", "t", "--transaction-duration-ms", "5"),
        timeout_s=60,
    )
    read = tool("ConsumerPerformance", servers, "--topic", "topic", "--messages", "100", "--timeout", "30000")
    assert ", 100, " in read[-1]
