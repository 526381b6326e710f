"""Records are fetched, offsets listed, the ends of epochs told."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.fetch import handle_fetch, handle_offset_for_leader_epoch
from spark_kafka_sink.broker.log.log_types import AppendOrigin
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.partition_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.small_batches import NewRecord, decode_batches, small_batch
from tests.broker.rig import Asked, Rig, batch

NAMED, BY_ID = 12, 17


def fetch(rig: Rig, *offsets: int, topic: str = "t", max_wait_ms: int = 500, **fields: Any) -> Asked:
    """From each partition of the topic at its offset."""
    asked = [FetchPartition(number, fetch_offset=offset, partition_max_bytes=1 << 20) for number, offset in enumerate(offsets)]
    body = FetchRequest(max_wait_ms=max_wait_ms, topics=[FetchTopic(topic, partitions=asked)], **{"min_bytes": 1, **fields})
    return rig.ask(handle_fetch, body, ApiKey.FETCH, NAMED)


def values(asked: Asked, partition: int = 0) -> list[bytes | None]:
    data = b"".join(asked.answer.responses[0].partitions[partition].records)
    return [record.value for stored in decode_batches(data, cut_off=True) for record in stored.records()]


def error(asked: Asked) -> int:
    code: int = asked.answer.responses[0].partitions[0].error_code
    return code


def test_what_is_there_is_answered_at_once() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        rig.log("t").append_as_leader(batch(b"a", b"b"), 0)

        asked = fetch(rig, 0)

        assert values(asked) == [b"a", b"b"]
        partition = asked.answer.responses[0].partitions[0]
        assert (partition.high_watermark, partition.log_start_offset, partition.aborted_transactions) == (2, 0, None)


def test_an_empty_log_is_waited_for_and_the_first_record_is_answered() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        asked = fetch(rig, 0)
        waited = not asked.is_answered

        rig.log("t").append_as_leader(batch(b"a"), 0)

        assert waited
        assert values(asked) == [b"a"]
        assert rig.shared.fetch_purgatory.watched() == 0


def test_it_waits_for_min_bytes_over_all_partitions() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 2)
        one = batch(b"a")
        asked = fetch(rig, 0, 0, min_bytes=2 * len(one))

        rig.log("t", 0).append_as_leader(one, 0)
        after_one = asked.is_answered
        rig.log("t", 1).append_as_leader(batch(b"b"), 0)

        assert not after_one
        assert (values(asked, 0), values(asked, 1)) == ([b"a"], [b"b"])


@pytest.mark.parametrize("isolation", [0, 1])
def test_at_the_end_of_a_segment_it_does_not_wait_for_what_is_in_the_next(isolation: int) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        rig.log("t").append_as_leader(batch(b"a"), 0)
        rig.log("t").roll()
        rig.log("t").append_as_leader(batch(b"b"), 0)

        older = fetch(rig, 0, min_bytes=10_000, isolation_level=isolation)
        newest = fetch(rig, 1, min_bytes=10_000, isolation_level=isolation)

        assert values(older) == [b"a"]
        assert not newest.is_answered


def test_when_its_time_is_over_it_answers_what_there_is() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        asked = fetch(rig, 0, min_bytes=10_000, max_wait_ms=300)
        rig.log("t").append_as_leader(batch(b"a"), 0)

        rig.timer.advance(299)
        before = asked.is_answered
        rig.timer.advance(1)

        assert not before
        assert values(asked) == [b"a"]


def test_a_leader_that_moves_ends_the_wait_with_the_new_one() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1, 2])])
        asked = fetch(rig, 0)

        rig.cluster.move_leader("t", 0, 2)
        rig.timer.advance(0)

        assert error(asked) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = asked.answer.responses[0].partitions[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (2, 1)


def test_a_topic_is_found_by_its_id_and_an_unknown_id_is_told_apart() -> None:
    with Rig() as rig:
        topic = rig.cluster.create_topic("t")
        rig.log("t").append_as_leader(batch(b"a"), 0)
        topics = [
            FetchTopic(topic_id=each, partitions=[FetchPartition(0, partition_max_bytes=1000)])
            for each in (topic.topic_id, uuid.uuid4())
        ]

        answer = rig.ask(handle_fetch, FetchRequest(max_wait_ms=500, topics=topics), ApiKey.FETCH, BY_ID).answer

        assert [each.topic_id for each in answer.responses] == [each.topic_id for each in topics]
        assert [each.partitions[0].error_code for each in answer.responses] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (0, -1, ErrorCode.NONE),
        (0, 0, ErrorCode.NONE),
        (0, 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (9, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_nobody_gets_a_session(session_id: int, epoch: int, code: ErrorCode) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        answer = fetch(rig, 0, max_wait_ms=0, session_id=session_id, session_epoch=epoch).answer
        assert (answer.error_code, answer.session_id) == (code, 0)


def test_the_end_of_the_broker_ends_every_wait() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        asked = fetch(rig, 0)
    assert asked.is_answered


def test_a_fetch_of_an_internal_topic_is_not_answered_by_the_coordinator_that_writes_it() -> None:
    with Rig() as rig:
        topic = rig.cluster.internal_topic("__consumer_offsets").name
        asked = fetch(rig, 0, topic=topic)

        keyed = small_batch([NewRecord(b"k", b"a", timestamp=1)])
        rig.log(topic).append_as_leader(keyed, 0, origin=AppendOrigin.COORDINATOR)
        under_its_lock = asked.is_answered
        rig.timer.advance(0)

        assert not under_its_lock
        assert values(asked) == [b"a"]


# OffsetForLeaderEpoch


def end(rig: Rig, epoch: int, *, topic: str = "t", version: int = 4, broker: int = 1) -> tuple[int, int, int]:
    """Error code, epoch and offset."""
    topics = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, epoch)])]
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


def test_who_does_not_lead_does_not_know() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", assignments=[(0, [1])])

        assert end(rig, 0, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
        assert end(rig, 0, topic="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
