"""Topics grow."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.create_partitions import handle_create_partitions
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.broker.rig import Rig


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


def test_a_trial_makes_nothing() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)

        assert grown(rig, CreatePartitionsTopic("t", 3, None), validate_only=True) == [("t", ErrorCode.NONE)]
        assert len(rig.cluster.image.topics["t"].partitions) == 1


def test_too_many_at_once() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 1)

        assert grown(rig, CreatePartitionsTopic("t", 2**31 - 1, None)) == [("t", ErrorCode.POLICY_VIOLATION)]
