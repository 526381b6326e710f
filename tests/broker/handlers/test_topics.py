"""Topics are created, extended and deleted, their records deleted, their sizes told."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.topics import (
    handle_create_partitions,
    handle_create_topics,
    handle_delete_records,
    handle_delete_topics,
    handle_describe_log_dirs,
)
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from spark_kafka_sink.protocol.apis.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID
from tests.broker.rig import Rig
from tests.every import every

# CreateTopics


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    wanted = [CreatableTopicConfig(config.replace("_", "."), value) for config, value in configs.items()]
    return CreatableTopic(name, partitions, replicas, configs=wanted)


def created(rig: Rig, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Mapping[str, Any]:
    body = CreateTopicsRequest(topics, validate_only=validate_only)
    answer = rig.ask(handle_create_topics, body, ApiKey.CREATE_TOPICS, version).answer
    return {result.name: result for result in answer.topics}


@every("version", range(2, 8))
def test_it_is_there_in_every_version(version: int) -> None:
    with Rig() as rig:
        result = created(rig, topic("t", 3), version=version)["t"]

        assert (result.error_code, result.error_message) == (0, None)
        assert len(rig.cluster.image.topics["t"].partitions) == 3
        assert (result.num_partitions, result.replication_factor) == ((3, 1) if version >= 5 else (-1, -1))
        assert result.topic_id == (rig.cluster.image.topics["t"].topic_id if version >= 7 else ZERO_UUID)
        assert bool(result.configs) == (version >= 5)


def test_a_trial_makes_nothing() -> None:
    with Rig() as rig:
        result = created(rig, topic("t", 4), validate_only=True)["t"]

        assert (result.error_code, result.num_partitions) == (0, 4)
        assert not rig.cluster.image.topics


def test_replicas_as_they_are_assigned() -> None:
    with Rig(brokers=3) as rig:
        assigned = [CreatableReplicaAssignment(1, [3, 1]), CreatableReplicaAssignment(0, [2, 3])]
        result = created(rig, CreatableTopic("t", -1, -1, assigned))["t"]

        assert (result.num_partitions, result.replication_factor) == (2, 2)
        assert [partition.replicas for partition in rig.cluster.image.topics["t"].partitions] == [(2, 3), (3, 1)]


# CreatePartitions


def grown(rig: Rig, *topics: CreatePartitionsTopic, version: int = 3) -> list[tuple[str, int]]:
    results: Any = rig.ask(
        handle_create_partitions, CreatePartitionsRequest(topics), ApiKey.CREATE_PARTITIONS, version
    ).answer.results
    return [(result.name, result.error_code) for result in results]


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_have_logs_and_leaders(version: int) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)

        assert grown(rig, CreatePartitionsTopic("t", 3, None), version=version) == [("t", ErrorCode.NONE)]
        assert [rig.log("t", index).log_end_offset for index in range(3)] == [0, 0, 0]
        assert [partition.leader for partition in rig.cluster.image.topics["t"].partitions] == [1, 1, 1]


# DeleteTopics


def deleted(rig: Rig, *asked: tuple[str | None, uuid.UUID]) -> list[tuple[str | None, uuid.UUID, int, str | None]]:
    body = DeleteTopicsRequest([DeleteTopicState(*state) for state in asked])
    results: Any = rig.ask(handle_delete_topics, body, ApiKey.DELETE_TOPICS, 6).answer.responses
    return [(result.name, result.topic_id, result.error_code, result.error_message) for result in results]


def test_by_name_and_by_id_it_is_gone_with_its_logs() -> None:
    with Rig() as rig:
        first, second = rig.cluster.create_topic("first", 2), rig.cluster.create_topic("second")

        assert deleted(rig, ("first", ZERO_UUID), (None, second.topic_id)) == [
            ("first", first.topic_id, ErrorCode.NONE, None),
            ("second", second.topic_id, ErrorCode.NONE, None),
        ]
        assert not rig.cluster.image.topics
        assert rig.shared.logs.get("first", 1) is None


# DeleteRecords


def test_only_the_leader_deletes_records() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])
        body = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])])
        (topic,) = rig.ask(handle_delete_records, body, ApiKey.DELETE_RECORDS, broker=2).answer.topics
        (told,) = topic.partitions
        assert (told.low_watermark, told.error_code) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# DescribeLogDirs


def described(rig: Rig, topics: list[DescribableLogDirTopic] | None, broker: int = 1) -> Any:
    asked = rig.ask(handle_describe_log_dirs, DescribeLogDirsRequest(topics), ApiKey.DESCRIBE_LOG_DIRS, broker=broker)
    (result,) = asked.answer.results
    return result


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


def test_a_broker_tells_of_its_own_replicas() -> None:
    with Rig(2) as rig:
        rig.cluster.create_topic("single", assignments=[(0, [1]), (1, [2])])
        rig.cluster.create_topic("double", 1, 2)

        assert set(sizes(described(rig, None, broker=1))) == {("single", 0), ("double", 0)}
        assert set(sizes(described(rig, None, broker=2))) == {("single", 1), ("double", 0)}


def test_the_folder_is_named_with_the_room_that_is_left(tmp_path: Path) -> None:
    with Rig(data_dir=tmp_path) as rig:
        result = described(rig, None)

        assert result.log_dir == str(tmp_path)
        assert 0 < result.usable_bytes <= result.total_bytes


def test_in_memory_there_is_no_folder() -> None:
    with Rig() as rig:
        result = described(rig, None)

        assert (result.log_dir, result.total_bytes, result.usable_bytes) == (":memory:", -1, -1)
