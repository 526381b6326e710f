"""What consumers and producers ask most is answered in every version, over a socket: other clients may know only old ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.network.client import Client
from tests.broker.rig import batch

TOPIC = "t"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """With a topic of five records, one batch each, at leader epoch 1: what is not a field's default must find its place."""
    with EmbeddedBroker(2) as running:
        running.create_topic(TOPIC, 1, 2)
        running.move_leader(TOPIC, 0, 2)
        running.move_leader(TOPIC, 0, 1)
        with client_of(running) as client:
            for index in range(5):
                written(client, running, b"%d" % index, ALL_APIS[ApiKey.PRODUCE].max_version)
        yield running


def client_of(broker: EmbeddedBroker) -> Client:
    host, port = broker.address(1).rsplit(":", 1)
    return Client(int(port), host)


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with client_of(broker) as connected:
        yield connected


def versions(key: ApiKey) -> range:
    return range(ALL_APIS[key].min_version, ALL_APIS[key].max_version + 1)


def asked(client: Client, key: ApiKey, version: int, body: Message) -> Any:
    return client.ask(key, version, body)


def topic_id(broker: EmbeddedBroker) -> Any:
    return broker.cluster.image.topics[TOPIC].topic_id


def written(client: Client, broker: EmbeddedBroker, value: bytes, version: int) -> Any:
    partition = PartitionProduceData(0, [batch(value)])
    body = ProduceRequest(topic_data=[TopicProduceData(TOPIC, topic_id(broker), [partition])])
    (topic,) = asked(client, ApiKey.PRODUCE, version, body).responses
    return topic.partition_responses[0]


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata(client: Client, version: int) -> None:
    answer = asked(client, ApiKey.METADATA, version, MetadataRequest([MetadataRequestTopic(name=TOPIC)]))
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert [broker.node_id for broker in answer.brokers] == [1, 2]
    assert (topic.error_code, topic.name, partition.leader_id, partition.isr_nodes) == (0, TOPIC, 1, (1, 2))


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(client: Client, version: int) -> None:
    body = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    answer = asked(client, ApiKey.FIND_COORDINATOR, version, body)
    found = answer if version < 4 else answer.coordinators[0]
    assert found.error_code == 0
    assert found.node_id in (1, 2)
