"""An embedded broker, and requests to it over real sockets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.apis.partition_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from spark_kafka_sink.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.broker.network.client import Client

END = -1


def connected(broker: EmbeddedBroker, node: int = 1) -> Client:
    return Client.at(broker.address(node))


def produce(topic: str, *partitions: int, acks: int = -1) -> ProduceRequest:
    """One record for each."""
    records = [small_batch([NewRecord(b"key", b"value", timestamp=1)])]
    data = tuple(PartitionProduceData(index, records) for index in partitions or (0,))
    return ProduceRequest(None, acks, 5_000, (TopicProduceData(topic, partition_data=data),))


def produced(client: Client, topic: str, *partitions: int) -> dict[int, int]:
    """Error codes by partition."""
    answer: Any = client.ask(ApiKey.PRODUCE, 9, produce(topic, *partitions))
    return {each.index: each.error_code for topic in answer.responses for each in topic.partition_responses}


def end_offset(client: Client, topic: str, partition: int = 0) -> int:
    asked = ListOffsetsTopic(topic, (ListOffsetsPartition(partition, timestamp=END),))
    answer: Any = client.ask(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(-1, 0, (asked,)))
    (found,) = answer.topics[0].partitions
    assert found.error_code == 0
    return int(found.offset)


def metadata_request(topics: Sequence[str] | None = None) -> MetadataRequest:
    return MetadataRequest(None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics))


def metadata(client: Client, topics: Sequence[str] | None = None) -> Any:
    return client.ask(ApiKey.METADATA, 9, metadata_request(topics))
