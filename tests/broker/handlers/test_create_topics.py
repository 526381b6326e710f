"""Topics are made as a client asks, or it is told why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.create_topics import handle_create_topics
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from spark_kafka_sink.protocol.wire_types import ZERO_UUID
from tests.broker.rig import Rig


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    wanted = [CreatableTopicConfig(config.replace("_", "."), value) for config, value in configs.items()]
    return CreatableTopic(name, partitions, replicas, configs=wanted)


def created(rig: Rig, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Mapping[str, Any]:
    body = CreateTopicsRequest(topics, validate_only=validate_only)
    answer = rig.ask(handle_create_topics, body, ApiKey.CREATE_TOPICS, version).answer
    return {result.name: result for result in answer.topics}


def codes(results: Mapping[str, Any]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(result.error_code) for name, result in results.items()}


@pytest.mark.parametrize("version", range(2, 8))
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
