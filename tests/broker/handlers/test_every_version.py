"""What consumers and producers ask most is answered in every version, over a socket: other clients may know only old ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.partition_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.records.decoder import decode_batches
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


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(client: Client, broker: EmbeddedBroker, version: int) -> None:
    first, second = (written(client, broker, value, version) for value in (b"one", b"two"))
    assert (first.error_code, second.error_code, second.base_offset - first.base_offset) == (0, 0, 1)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(client: Client, broker: EmbeddedBroker, version: int) -> None:
    topic = FetchTopic(TOPIC, topic_id(broker), [FetchPartition(0, fetch_offset=2, partition_max_bytes=1)])
    answer = asked(client, ApiKey.FETCH, version, FetchRequest(topics=[topic], session_epoch=0))
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    assert partition.high_watermark >= 5
    (found,) = decode_batches(b"".join(partition.records))
    assert found.base_offset == 2


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(client: Client, version: int) -> None:
    for timestamp, offset in ((-2, 0), (1, 0)):
        topic = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=timestamp)])
        (answered,) = asked(client, ApiKey.LIST_OFFSETS, version, ListOffsetsRequest(-1, topics=[topic])).topics
        (partition,) = answered.partitions
        assert (partition.error_code, partition.offset) == (0, offset)
        assert (partition.leader_epoch > 0) is (version >= 4)


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
