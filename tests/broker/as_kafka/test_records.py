"""The same requests for records, producers and epochs to Kafka 4.1 and to the embedded broker: the same answers."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.partition_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from spark_kafka_sink.protocol.apis.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from spark_kafka_sink.protocol.apis.transactions import DescribeProducersRequest, TopicRequest
from tests.broker.as_kafka.pair import Pair
from tests.every import every
from tests.kafka.fixtures import only_real_kafka
from tests.tiers import whole_but

pytestmark = only_real_kafka  # it is what the embedded broker is compared with


def deleting(topic: str, partitions: list[tuple[int, int]]) -> DeleteRecordsRequest:
    return DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(*each) for each in partitions])], 5_000)


@every("partitions", [[(0, 5)], [(0, -2)], [(0, -1)], [(0, 0), (1, 0)], [(9, 1), (-1, 0)], [(0, 0), (0, -2)]])
def test_records_deleted(both: Pair, partitions: list[tuple[int, int]]) -> None:
    def seen(answer: Any) -> Any:
        # Kafka's are in the order of a hash map.
        return [(topic.name, sorted(map(str, topic.partitions))) for topic in answer.topics]

    for name in (both.t, both.missing):
        both.ask(ApiKey.DELETE_RECORDS, 2, deleting(name, partitions), seen)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", ""])
def test_records_deleted_of_a_topic_that_is_not_to_delete(both: Pair, policy: str) -> None:
    both.create(CreatableTopic(both.missing, 1, 1, configs=[CreatableTopicConfig("cleanup.policy", policy)]))
    both.ask(ApiKey.DELETE_RECORDS, 2, deleting(both.missing, [(0, 0)]))


@every("partitions", [[0, 1], [9, -1], [0, 0], []])
def test_producers_described(both: Pair, partitions: list[int]) -> None:
    for name in (both.t, both.missing, "a b"):
        both.ask(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest([TopicRequest(name, partitions)]))


@every("asked", [(0, -1, 0), (0, 0, 0), (0, 0, 5), (0, 0, -1), (0, 5, 0), (0, -5, 0), (9, -1, 0)])
@pytest.mark.parametrize("version", whole_but([2, 3, 4], {4}, "tests/protocol compares older versions with Java's"))
def test_ends_of_epochs(both: Pair, asked: tuple[int, int, int], version: int) -> None:
    for name in (both.t, both.missing):
        body = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(name, [OffsetForLeaderPartition(*asked)])])
        both.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)
