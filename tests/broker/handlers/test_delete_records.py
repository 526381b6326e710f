"""Partitions begin later."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.handlers.delete_records import handle_delete_records
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.rig import Rig, batch

Result = tuple[int, int, int]


def deleted(rig: Rig, *asked: tuple[str, list[tuple[int, int]]], version: int = 2, broker: int = 1) -> dict[str, list[Result]]:
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


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("offset", "start"), [(0, 0), (3, 3), (10, 10), (-1, 10)])
def test_up_to_an_offset(version: int, offset: int, start: int) -> None:
    with Rig() as rig:
        filled(rig)

        assert deleted(rig, ("t", [(0, offset)]), version=version) == {"t": [(0, start, ErrorCode.NONE)]}
        assert rig.log("t").log_start_offset == start


def test_a_start_does_not_go_back() -> None:
    with Rig() as rig:
        filled(rig)
        deleted(rig, ("t", [(0, 7)]))

        assert deleted(rig, ("t", [(0, 2)])) == {"t": [(0, 7, ErrorCode.NONE)]}


@pytest.mark.parametrize("offset", [11, -2, -(2**63)])
def test_an_offset_that_is_none(offset: int) -> None:
    with Rig() as rig:
        filled(rig)

        assert deleted(rig, ("t", [(0, offset)])) == {"t": [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]}


def test_each_partition_has_its_own_answer() -> None:
    with Rig() as rig:
        filled(rig)

        assert deleted(rig, ("t", [(0, 1), (9, 0), (-1, 0)]), ("none", [(0, 0)])) == {
            "t": [(0, 1, ErrorCode.NONE), *[(index, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in (9, -1)]],
            "none": [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        }


def test_the_last_of_those_that_name_a_partition_holds() -> None:
    with Rig() as rig:
        filled(rig)

        assert deleted(rig, ("t", [(0, 5), (0, 2)]), ("t", [(1, 0)])) == {"t": [(0, 2, 0), (1, 0, 0)]}


def test_a_compacted_topic_keeps_its_records() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"cleanup.policy": "compact"})

        assert deleted(rig, ("t", [(0, 0)])) == {"t": [(0, -1, ErrorCode.POLICY_VIOLATION)]}


def test_so_does_an_internal_one() -> None:
    with Rig() as rig:
        rig.cluster.internal_topic("__consumer_offsets")

        assert deleted(rig, ("__consumer_offsets", [(0, 0), (99, 0)])) == {
            "__consumer_offsets": [
                (0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION),
                (99, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
        }


def test_only_the_leader_does_it() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])

        assert deleted(rig, ("t", [(0, 0)]), broker=2) == {"t": [(0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]}
