"""The same requests for topics to Kafka 4.1 and to the embedded broker: the same answers, word for word."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.cluster import DescribeClusterRequest
from spark_kafka_sink.protocol.apis.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from spark_kafka_sink.protocol.fields import ZERO_UUID
from tests.broker.as_kafka.pair import Pair
from tests.kafka.fixtures import only_real_kafka

pytestmark = only_real_kafka  # it is what the embedded broker is compared with

SOME_ID = uuid.uuid4()


def topic(name: str, partitions: int = 1, replicas: int = 1, assigned: Sequence[tuple[int, list[int]]] = ()) -> CreatableTopic:
    return CreatableTopic(name, partitions, replicas, [CreatableReplicaAssignment(*each) for each in assigned])


class TestCreateTopics:
    @pytest.mark.parametrize(
        "asked",
        [
            [topic("")],
            [topic(".")],
            [topic("..", 0)],
            [topic("a b")],
            [topic("x" * 250)],
            [topic("n", 0)],
            [topic("n", -2)],
            [topic("n", 1, 0)],
            [topic("n", 1, -2)],
            [topic("n", 0, 0)],
            [topic("n", 1, 3)],
            [topic("n", 10_001)],
            [topic("n", 1, -1, [(0, [1])])],
            [topic("n", -1, 1, [(0, [1])])],
            [topic("n", -1, -1, [(1, [1])])],
            [topic("n", -1, -1, [(-1, [1])])],
            [topic("n", -1, -1, [(0, [1]), (0, [1])])],
            [topic("n", -1, -1, [(0, [])])],
            [topic("n", -1, -1, [(0, [9])])],
            [topic("n", -1, -1, [(0, [1, 1])])],
            [topic("n", -1, -1, [(0, [1]), (1, [1, 1])])],
            [topic("twice"), topic("twice")],
            [topic("__cluster_metadata")],
            [],
        ],
        ids=str,
    )
    def test_what_cannot_be_made(self, both: Pair, asked: list[CreatableTopic]) -> None:
        both.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(asked, validate_only=True))

    def test_what_is_there_and_what_collides_with_it(self, both: Pair) -> None:
        for name in (both.t, both.t.replace(".", "_")):
            both.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([topic(name, 0)], validate_only=True))

    @pytest.mark.parametrize("version", range(2, 8))
    def test_what_is_told_of_one_that_could_be_made(self, both: Pair, version: int) -> None:
        configs = [CreatableTopicConfig("retention.ms", " 5 "), CreatableTopicConfig("cleanup.policy", "compact, delete")]
        wanted = CreatableTopic(both.missing, 3, 1, configs=configs)

        def seen(answer: Any) -> Any:
            (result,) = answer.topics
            assert version < 7 or result.topic_id != ZERO_UUID
            # That one Kafka sets for all brokers when it begins (KIP-966), so it comes from another place.
            told = [config for config in result.configs if config.name != "min.insync.replicas"]
            return result.error_code, result.num_partitions, result.replication_factor, str(told)

        both.ask(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest([wanted], validate_only=True), seen)


class TestDeleteTopics:
    @pytest.mark.parametrize(
        "asked",
        [
            [("none", ZERO_UUID)],
            [("a b", ZERO_UUID)],
            [("", ZERO_UUID)],
            [(None, SOME_ID)],
            [(None, ZERO_UUID)],
            [("none", SOME_ID)],
            [("none", ZERO_UUID)] * 3,
            [(None, SOME_ID)] * 2,
            [],
        ],
        ids=range(9),
    )
    def test_what_cannot_be_deleted(self, both: Pair, asked: list[tuple[str | None, uuid.UUID]]) -> None:
        body = DeleteTopicsRequest([DeleteTopicState(*state) for state in asked], timeout_ms=10_000)
        both.ask(ApiKey.DELETE_TOPICS, 6, body)

    @pytest.mark.parametrize("version", range(1, 6))
    def test_by_name_in_older_versions(self, both: Pair, version: int) -> None:
        body = DeleteTopicsRequest(topic_names=[both.t, both.missing, "twice", "twice"], timeout_ms=10_000)

        def seen(answer: Any) -> Any:
            # Kafka shuffles them, so that their order tells nothing.
            return sorted((result.name, result.error_code, result.error_message) for result in answer.responses)

        both.ask(ApiKey.DELETE_TOPICS, version, body, seen)


class TestCreatePartitions:
    @pytest.mark.parametrize(
        ("count", "assignments"),
        [
            (2, None),
            (1, None),
            (0, None),
            (-1, None),
            (4, [[1]]),
            (3, [[1], [1]]),
            (3, []),
            (3, [[]]),
            (3, [[9]]),
            (3, [[1, 1]]),
            (3, [[-1]]),
            (5, None),
            (3, [[1]]),
        ],
    )
    @pytest.mark.parametrize("version", [0, 3])
    def test_growth(self, both: Pair, count: int, assignments: list[list[int]] | None, version: int) -> None:
        given = None if assignments is None else [CreatePartitionsAssignment(nodes) for nodes in assignments]
        wanted = [CreatePartitionsTopic(both.t, count, given)]
        both.ask(ApiKey.CREATE_PARTITIONS, version, CreatePartitionsRequest(wanted, 10_000, validate_only=True))

    def test_topics_that_are_not_there_or_there_twice(self, both: Pair) -> None:
        for names in ([both.missing], ["a b"], [both.t, both.t], []):
            wanted = [CreatePartitionsTopic(name, 9, None) for name in names]
            both.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(wanted, 10_000, validate_only=True))


class TestDescribeCluster:
    @pytest.mark.parametrize(("version", "endpoint"), [(0, 1), (1, 1), (2, 1), (1, 2), (1, 9)])
    @pytest.mark.parametrize("operations", [True, False])
    def test_brokers_and_what_a_client_may_do(self, both: Pair, version: int, endpoint: int, operations: bool) -> None:
        def seen(answer: Any) -> Any:
            brokers = [(broker.broker_id, broker.rack, broker.is_fenced) for broker in answer.brokers]
            said = answer.error_code, answer.error_message, answer.endpoint_type, answer.cluster_authorized_operations
            return said, answer.controller_id, brokers, len(answer.cluster_id)

        both.ask(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest(operations, endpoint), seen)
