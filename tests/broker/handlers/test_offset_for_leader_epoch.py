"""Where epochs ended, by which a consumer finds what was cut off."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.partition_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.rig import Rig, batch


def end(rig: Rig, epoch: int, *, current: int = -1, topic: str = "t", version: int = 4, broker: int = 1) -> tuple[int, int, int]:
    """Error code, epoch and offset."""
    topics = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, current, epoch)])]
    body = OffsetForLeaderEpochRequest(topics=topics)
    handled = rig.ask(handle_offset_for_leader_epoch, body, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, broker=broker)
    (found,) = handled.answer.topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def led(rig: Rig, *epochs: int) -> None:
    """A partition whose leaders wrote two records in each of `epochs`; nothing in those between."""
    rig.cluster.create_topic("t")
    for epoch in epochs:
        while rig.cluster.image.topics["t"].partitions[0].leader_epoch < epoch:
            rig.cluster.move_leader("t", 0, 1)
        rig.log("t").append_as_leader(batch(b"a", b"b"), epoch)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_the_next_one_begins(version: int) -> None:
    with Rig() as rig:
        led(rig, 0, 2, 3)

        assert [end(rig, epoch, version=version) for epoch in (0, 1, 2, 3)] == [(0, 0, 2), (0, 0, 2), (0, 2, 4), (0, 3, 6)]


@pytest.mark.parametrize("epoch", [4, -1, 2**31 - 1, -(2**31)])
def test_of_an_epoch_that_there_was_not_nothing_is_known(epoch: int) -> None:
    with Rig() as rig:
        led(rig, 0, 3)

        assert end(rig, epoch) == (0, -1, -1)


def test_an_epoch_in_which_nothing_was_written_yet() -> None:
    with Rig() as rig:
        led(rig, 0)
        rig.cluster.move_leader("t", 0, 1)
        rig.cluster.move_leader("t", 0, 1)

        assert [end(rig, epoch) for epoch in (0, 1, 2, 3)] == [(0, 0, 2), (0, 0, 2), (0, 2, 2), (0, -1, -1)]


def test_a_partition_to_which_nobody_ever_wrote() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")

        assert [end(rig, epoch) for epoch in (0, 1)] == [(0, 0, 0), (0, -1, -1)]


@pytest.mark.parametrize(
    ("current", "code"),
    [(1, ErrorCode.NONE), (-1, ErrorCode.NONE), (0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_who_asks_with_another_epoch_than_the_leaders(current: int, code: ErrorCode) -> None:
    with Rig() as rig:
        led(rig, 0, 1)

        assert end(rig, 0, current=current) == ((0, 0, 2) if code is ErrorCode.NONE else (code, -1, -1))


def test_who_does_not_lead_does_not_know() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])

        assert end(rig, 0, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
        assert end(rig, 0, topic="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
