"""What a coordinator finds in its log is what the one before it knew, and who waits when it goes is told."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.coordinator_log import ReplayedRecord
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.internal_topics import GROUP_METADATA_VALUE
from tests.broker.group.world import GROUP, SESSION_MS, World


def test_sessions_begin_anew_when_a_group_is_loaded() -> None:
    world = World()
    world.stable(2)
    world.coordinator.close()
    world.timer.advance(10 * SESSION_MS)
    after = world.restarted()
    world.timer.advance(SESSION_MS - 1)
    assert after.state() == "Stable"
    world.timer.advance(1)
    assert after.state() == "Empty"


def test_the_format_of_the_records_is_that_of_kafka_41() -> None:
    world = World()
    (member,) = world.stable()
    record = world.log.items[-1]
    assert isinstance(record, ReplayedRecord)
    assert record.key == b"\x00\x02\x00\x07readers"
    assert record.value is not None
    value = GROUP_METADATA_VALUE.decode(record.value)
    assert record.value[:2] == b"\x00\x03"
    assert (value.generation, value.protocol, value.leader, value.members[0].assignment) == (1, "range", member, member.encode())


def test_who_waits_to_sync_when_the_coordinator_moves_looks_for_it() -> None:
    world = World()
    leader, follower = world.stable(2)
    joined = [world.join(member) for member in (leader, follower)]
    assert {each.answer.generation_id for each in joined} == {2}
    syncing = world.sync(follower, 2)
    world.coordinator.move({world.log.partition_for(GROUP)})

    assert syncing.error is ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_coordinator_that_is_closed_sends_everybody_away_and_leaves_no_timer() -> None:
    world = World()
    leader, _ = world.stable(2)
    joining = world.join(leader)
    world.coordinator.close()

    assert joining.error is ErrorCode.NOT_COORDINATOR
    assert world.timer.pending() == 0
    with pytest.raises(ApiException, match="COORDINATOR_NOT_AVAILABLE"):
        world.join()
