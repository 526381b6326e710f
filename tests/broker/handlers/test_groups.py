"""The handlers of groups between several brokers: each serves the groups of the partitions it leads, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.cluster.metadata_image import partition_for
from spark_kafka_sink.broker.handlers.groups import (
    handle_delete_groups,
    handle_describe_groups,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_list_groups,
    handle_sync_group,
)
from spark_kafka_sink.broker.handlers.offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
    handle_txn_offset_commit,
)
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import group_offsets, transactions
from spark_kafka_sink.protocol.apis.group_offsets import OffsetDeleteRequest
from spark_kafka_sink.protocol.apis.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.broker.rig import AnyHandler, Rig

GROUP = "readers"
JOIN = JoinGroupRequest(GROUP, 10_000, 60_000, protocol_type="consumer", protocols=(JoinGroupRequestProtocol("range", b""),))
COMMIT = group_offsets.OffsetCommitRequest(
    GROUP, topics=(group_offsets.OffsetCommitRequestTopic("t", (group_offsets.OffsetCommitRequestPartition(0, 5),)),)
)
FETCH = group_offsets.OffsetFetchRequest(groups=(group_offsets.OffsetFetchRequestGroup(GROUP, topics=None),))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", 1)
        yield rig


def here(rig: Rig) -> int:
    return rig.cluster.coordinator(CoordinatorType.GROUP, GROUP)


def elsewhere(rig: Rig) -> int:
    return 3 - here(rig)


@pytest.mark.parametrize(
    ("handler", "body", "key"),
    [
        (handle_join_group, JOIN, ApiKey.JOIN_GROUP),
        (handle_sync_group, SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range"), ApiKey.SYNC_GROUP),
        (handle_heartbeat, HeartbeatRequest(GROUP, 1, "m"), ApiKey.HEARTBEAT),
        (handle_leave_group, LeaveGroupRequest(GROUP, members=(MemberIdentity("m"),)), ApiKey.LEAVE_GROUP),
        (handle_offset_delete, OffsetDeleteRequest(GROUP), ApiKey.OFFSET_DELETE),
    ],
)
def test_another_broker_refuses_the_whole_request(rig: Rig, handler: AnyHandler, body: Message, key: ApiKey) -> None:
    with pytest.raises(ApiException, match="NOT_COORDINATOR"):
        rig.ask(handler, body, key, broker=elsewhere(rig))


def test_another_broker_refuses_each_of_what_is_asked() -> None:
    with Rig(brokers=2) as rig:
        rig.cluster.create_topic("t", 1)
        other = elsewhere(rig)
        code = ErrorCode.NOT_COORDINATOR
        committed = rig.ask(handle_offset_commit, COMMIT, ApiKey.OFFSET_COMMIT, broker=other).answer
        assert committed.topics[0].partitions[0].error_code == code
        topics = (transactions.TxnOffsetCommitRequestTopic("t", (transactions.TxnOffsetCommitRequestPartition(0, 5),)),)
        in_transaction = transactions.TxnOffsetCommitRequest("id", GROUP, 1, 0, topics=topics)
        transactional = rig.ask(handle_txn_offset_commit, in_transaction, ApiKey.TXN_OFFSET_COMMIT, broker=other).answer
        assert transactional.topics[0].partitions[0].error_code == code
        assert rig.ask(handle_offset_fetch, FETCH, ApiKey.OFFSET_FETCH, broker=other).answer.groups[0].error_code == code
        described = rig.ask(handle_describe_groups, DescribeGroupsRequest([GROUP]), ApiKey.DESCRIBE_GROUPS, broker=other).answer
        assert (described.groups[0].error_code, described.groups[0].group_id) == (code, GROUP)
        deleted = rig.ask(handle_delete_groups, DeleteGroupsRequest([GROUP]), ApiKey.DELETE_GROUPS, broker=other).answer
        assert deleted.results == (DeletableGroupResult(GROUP, code),)


def test_each_broker_lists_the_groups_that_it_coordinates(rig: Rig) -> None:
    rig.ask(handle_offset_commit, COMMIT, ApiKey.OFFSET_COMMIT, broker=here(rig))

    def listed(broker: int) -> list[str]:
        answer = rig.ask(handle_list_groups, ListGroupsRequest(), ApiKey.LIST_GROUPS, broker=broker).answer
        return [group.group_id for group in answer.groups]

    assert (listed(here(rig)), listed(elsewhere(rig))) == ([GROUP], [])


def test_who_waits_when_the_coordinator_moves_is_told_and_joins_there() -> None:
    with Rig(brokers=2, group_initial_rebalance_delay_ms=1000) as rig:
        before, after = here(rig), elsewhere(rig)
        waiting = rig.ask(handle_join_group, JOIN, ApiKey.JOIN_GROUP, 3, broker=before)
        partition = partition_for(GROUP, len(rig.cluster.internal_topic("__consumer_offsets").partitions))
        rig.cluster.move_leader("__consumer_offsets", partition, after)
        assert not waiting.is_answered
        rig.timer.advance(0)
        assert waiting.answer.error_code == ErrorCode.NOT_COORDINATOR

        again = rig.ask(handle_join_group, JOIN, ApiKey.JOIN_GROUP, 3, broker=after)
        rig.timer.advance(1000)
        assert again.answer.generation_id == 1
        with pytest.raises(ApiException, match="NOT_COORDINATOR"):
            rig.ask(handle_join_group, JOIN, ApiKey.JOIN_GROUP, 3, broker=before)
