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
from spark_kafka_sink.protocol.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from spark_kafka_sink.protocol.wire_types import ZERO_UUID
from tests.broker.rig import Rig, batch
from tests.every import every

# CreateTopics


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    wanted = [CreatableTopicConfig(config.replace("_", "."), value) for config, value in configs.items()]
    return CreatableTopic(name, partitions, replicas, configs=wanted)


def created(rig: Rig, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Mapping[str, Any]:
    body = CreateTopicsRequest(topics, validate_only=validate_only)
    answer = rig.ask(handle_create_topics, body, ApiKey.CREATE_TOPICS, version).answer
    return {result.name: result for result in answer.topics}


def codes(results: Mapping[str, Any]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(result.error_code) for name, result in results.items()}


@every("version", range(2, 8))
def test_it_is_there_in_every_version(version: int) -> None:
    with Rig() as rig:
        result = created(rig, topic("t", 3), version=version)["t"]

        assert (result.error_code, result.error_message) == (0, None)
        assert len(rig.cluster.image.topics["t"].partitions) == 3
        assert (result.num_partitions, result.replication_factor) == ((3, 1) if version >= 5 else (-1, -1))
        assert result.topic_id == (rig.cluster.image.topics["t"].topic_id if version >= 7 else ZERO_UUID)
        assert bool(result.configs) == (version >= 5)


def test_its_configs_and_where_they_come_from() -> None:
    with Rig(topic_defaults={"segment.ms": "5"}) as rig:
        rig.cluster.alter_broker_configs(-1, lambda _: {"log.flush.interval.ms": "6"})
        configs = created(rig, topic("t", retention_ms=" 7 "))["t"].configs
        found = {config.name: (config.value, config.config_source) for config in configs}

        assert found["retention.ms"] == (" 7 ", 1)
        assert found["flush.ms"] == ("6", 3)
        assert found["segment.ms"] == ("5", 4)
        assert found["cleanup.policy"] == ("delete", 5)
        assert [config.name for config in configs] == sorted(found)
        assert "internal.segment.bytes" not in found


def test_its_logs_are_kept_as_it_says() -> None:
    with Rig() as rig:
        created(rig, topic("t", max_message_bytes="99"))

        assert rig.log("t").config.max_message_bytes == 99


def test_one_that_is_refused_keeps_no_other_from_being_made() -> None:
    with Rig() as rig:
        results = created(rig, topic("a b"), topic("t"), topic("none", 0))

        assert codes(results) == {
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "t": ErrorCode.NONE,
            "none": ErrorCode.INVALID_PARTITIONS,
        }
        assert list(rig.cluster.image.topics) == ["t"]


def test_one_that_is_asked_for_twice_is_not_made_at_all() -> None:
    with Rig() as rig:
        body = CreateTopicsRequest([topic("twice"), topic("t"), topic("twice"), topic("twice")])
        answer = rig.ask(handle_create_topics, body, ApiKey.CREATE_TOPICS).answer

        assert [(result.name, result.error_code, result.error_message) for result in answer.topics] == [
            ("t", ErrorCode.NONE, None),
            ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ]
        assert list(rig.cluster.image.topics) == ["t"]


def test_kafkas_own_log_is_no_topic() -> None:
    with Rig() as rig:
        result = created(rig, topic("__cluster_metadata"))["__cluster_metadata"]

        assert (result.error_code, result.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        )


def test_coordinators_topics_can_be_made_by_clients() -> None:
    with Rig() as rig:
        assert codes(created(rig, topic("__consumer_offsets", 2))) == {"__consumer_offsets": ErrorCode.NONE}


def test_a_trial_makes_nothing() -> None:
    with Rig() as rig:
        result = created(rig, topic("t", 4), validate_only=True)["t"]

        assert (result.error_code, result.num_partitions) == (0, 4)
        assert not rig.cluster.image.topics


def test_too_many_partitions_of_all_topics_together_refuse_them_all() -> None:
    with Rig() as rig:
        request = CreateTopicsRequest([topic("a", 6000), topic("b", 4001)])
        asked = rig.ask_api(request, ApiKey.CREATE_TOPICS)

        assert {(result.name, result.error_code, result.error_message) for result in asked.topics} == {
            (name, ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.") for name in "ab"
        }


def test_replicas_as_they_are_assigned() -> None:
    with Rig(brokers=3) as rig:
        assigned = [CreatableReplicaAssignment(1, [3, 1]), CreatableReplicaAssignment(0, [2, 3])]
        result = created(rig, CreatableTopic("t", -1, -1, assigned))["t"]

        assert (result.num_partitions, result.replication_factor) == (2, 2)
        assert [partition.replicas for partition in rig.cluster.image.topics["t"].partitions] == [(2, 3), (3, 1)]


def test_the_last_of_two_values_of_a_config_holds() -> None:
    with Rig() as rig:
        twice = [CreatableTopicConfig("retention.ms", "1"), CreatableTopicConfig("retention.ms", "2")]
        created(rig, CreatableTopic("t", 1, 1, configs=twice))

        assert rig.cluster.image.topics["t"].configs == {"retention.ms": "2"}


# CreatePartitions


def grown(rig: Rig, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False) -> list[tuple[str, int]]:
    body = CreatePartitionsRequest(topics, validate_only=validate_only)
    results: Any = rig.ask(handle_create_partitions, body, ApiKey.CREATE_PARTITIONS, version).answer.results
    return [(result.name, result.error_code) for result in results]


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_have_logs_and_leaders(version: int) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)

        assert grown(rig, CreatePartitionsTopic("t", 3, None), version=version) == [("t", ErrorCode.NONE)]
        assert [rig.log("t", index).log_end_offset for index in range(3)] == [0, 0, 0]
        assert [partition.leader for partition in rig.cluster.image.topics["t"].partitions] == [1, 1, 1]


def test_each_topic_has_its_own_answer() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", 2)
        assigned = [CreatePartitionsAssignment([2])]
        topics = [
            CreatePartitionsTopic("t", 3, assigned),
            CreatePartitionsTopic("none", 3, None),
            CreatePartitionsTopic("t2", 1, []),
        ]

        assert grown(rig, *topics) == [
            ("t", ErrorCode.NONE),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t2", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert rig.cluster.image.topics["t"].partitions[2].replicas == (2,)


def test_one_that_is_named_twice_stays_as_it_is() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)
        topics = [CreatePartitionsTopic("t", count, None) for count in (2, 3)]

        assert grown(rig, *topics) == [("t", ErrorCode.INVALID_REQUEST)]
        assert len(rig.cluster.image.topics["t"].partitions) == 1


def test_a_trial_adds_no_partitions() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)

        assert grown(rig, CreatePartitionsTopic("t", 3, None), validate_only=True) == [("t", ErrorCode.NONE)]
        assert len(rig.cluster.image.topics["t"].partitions) == 1


def test_too_many_at_once() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)

        assert grown(rig, CreatePartitionsTopic("t", 2**31 - 1, None)) == [("t", ErrorCode.POLICY_VIOLATION)]


SOME_ID = uuid.uuid4()


# DeleteTopics


def deleted(rig: Rig, *asked: tuple[str | None, uuid.UUID]) -> list[tuple[str | None, uuid.UUID, int, str | None]]:
    body = DeleteTopicsRequest([DeleteTopicState(*state) for state in asked])
    results: Any = rig.ask(handle_delete_topics, body, ApiKey.DELETE_TOPICS, 6).answer.responses
    return [(result.name, result.topic_id, result.error_code, result.error_message) for result in results]


@every("version", range(1, 6))
def test_by_name_in_older_versions(version: int) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        body = DeleteTopicsRequest(topic_names=["t", "none"])
        results = rig.ask(handle_delete_topics, body, ApiKey.DELETE_TOPICS, version).answer.responses

        assert [(result.name, result.error_code) for result in results] == [
            ("t", ErrorCode.NONE),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert not rig.cluster.image.topics


def test_by_name_and_by_id_it_is_gone_with_its_logs() -> None:
    with Rig() as rig:
        first, second = rig.cluster.create_topic("first", 2), rig.cluster.create_topic("second")

        assert deleted(rig, ("first", ZERO_UUID), (None, second.topic_id)) == [
            ("first", first.topic_id, ErrorCode.NONE, None),
            ("second", second.topic_id, ErrorCode.NONE, None),
        ]
        assert not rig.cluster.image.topics
        assert rig.shared.logs.get("first", 1) is None


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("none", ZERO_UUID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        ((None, SOME_ID), ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        ((None, ZERO_UUID), ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        (("t", SOME_ID), ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
    ],
)
def test_what_cannot_be_deleted(asked: tuple[str | None, uuid.UUID], code: ErrorCode, words: str) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")

        assert deleted(rig, asked) == [(*asked, code, words)]
        assert "t" in rig.cluster.image.topics


def test_what_is_named_twice_stays() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        twice = [("t", ZERO_UUID)] * 3 + [(None, SOME_ID)] * 2

        assert deleted(rig, *twice) == [
            ("t", ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
            (None, SOME_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
        ]
        assert "t" in rig.cluster.image.topics


def test_what_is_named_by_name_and_by_id_stays() -> None:
    with Rig() as rig:
        topic_id = rig.cluster.create_topic("t").topic_id
        words = "The provided topic name maps to an ID that was already supplied."

        assert deleted(rig, ("t", ZERO_UUID), (None, topic_id)) == [("t", topic_id, ErrorCode.INVALID_REQUEST, words)]
        assert "t" in rig.cluster.image.topics


def test_a_coordinators_topic_can_be_deleted_as_in_kafka() -> None:
    with Rig() as rig:
        rig.cluster.internal_topic("__consumer_offsets")

        assert deleted(rig, ("__consumer_offsets", ZERO_UUID))[0][2] == ErrorCode.NONE


# DeleteRecords

Result = tuple[int, int, int]


def records_deleted(
    rig: Rig, *asked: tuple[str, list[tuple[int, int]]], version: int = 2, broker: int = 1
) -> dict[str, list[Result]]:
    """Partition, new start and error code, by topic."""
    topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(*each) for each in partitions]) for name, partitions in asked]
    body = DeleteRecordsRequest(topics)
    answer = rig.ask(handle_delete_records, body, ApiKey.DELETE_RECORDS, version, broker=broker).answer
    return {
        topic.name: [(result.partition_index, result.low_watermark, result.error_code) for result in topic.partitions]
        for topic in answer.topics
    }


def filled(rig: Rig) -> None:
    rig.cluster.create_topic("t", 2)
    for _ in range(5):
        rig.log("t").append_as_leader(batch(b"a", b"b"), 0)


@every("version", range(3))
@every("offset, start", [(0, 0), (3, 3), (10, 10), (-1, 10)])
def test_up_to_an_offset(version: int, offset: int, start: int) -> None:
    with Rig() as rig:
        filled(rig)

        assert records_deleted(rig, ("t", [(0, offset)]), version=version) == {"t": [(0, start, ErrorCode.NONE)]}
        assert rig.log("t").log_start_offset == start


def test_a_start_does_not_go_back() -> None:
    with Rig() as rig:
        filled(rig)
        records_deleted(rig, ("t", [(0, 7)]))

        assert records_deleted(rig, ("t", [(0, 2)])) == {"t": [(0, 7, ErrorCode.NONE)]}


@pytest.mark.parametrize("offset", [11, -2, -(2**63)])
def test_an_offset_that_is_none(offset: int) -> None:
    with Rig() as rig:
        filled(rig)

        assert records_deleted(rig, ("t", [(0, offset)])) == {"t": [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]}


def test_each_partition_has_its_own_answer() -> None:
    with Rig() as rig:
        filled(rig)

        assert records_deleted(rig, ("t", [(0, 1), (9, 0), (-1, 0)]), ("none", [(0, 0)])) == {
            "t": [(0, 1, ErrorCode.NONE), *[(index, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in (9, -1)]],
            "none": [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        }


def test_the_last_of_those_that_name_a_partition_holds() -> None:
    with Rig() as rig:
        filled(rig)

        assert records_deleted(rig, ("t", [(0, 5), (0, 2)]), ("t", [(1, 0)])) == {"t": [(0, 2, 0), (1, 0, 0)]}


def test_a_compacted_topic_keeps_its_records() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"cleanup.policy": "compact"})

        assert records_deleted(rig, ("t", [(0, 0)])) == {"t": [(0, -1, ErrorCode.POLICY_VIOLATION)]}


def test_so_does_an_internal_one() -> None:
    with Rig() as rig:
        rig.cluster.internal_topic("__consumer_offsets")

        assert records_deleted(rig, ("__consumer_offsets", [(0, 0), (99, 0)])) == {
            "__consumer_offsets": [
                (0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION),
                (99, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
        }


def test_only_the_leader_does_it() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])

        assert records_deleted(rig, ("t", [(0, 0)]), broker=2) == {"t": [(0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]}


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


def test_each_partition_has_the_size_of_its_log() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 2)
        rig.cluster.create_topic("other")
        data = batch(b"value")
        rig.log("t", 1).append_as_leader(data, 0)

        assert sizes(described(rig, None)) == {("t", 0): 0, ("t", 1): len(data), ("other", 0): 0}
        assert sizes(described(rig, [DescribableLogDirTopic("t", [1, 9])])) == {("t", 1): len(data)}
        assert sizes(described(rig, [])) == {}


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
