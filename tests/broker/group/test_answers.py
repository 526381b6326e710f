"""The same requests to Kafka 4.1 and to the embedded broker: the same answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import transactions as txn
from spark_kafka_sink.protocol.apis.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    ListedGroup,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.group.asker import RANGE, Asker, by_partition
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.waiting import until

E = ErrorCode


@pytest.fixture
def asker(kafka: Kafka, new_topic: NewTopic) -> Iterator[Asker]:
    topic = new_topic(2)
    with Asker(kafka.bootstrap_servers, topic, topic) as asker:
        yield asker


@pytest.fixture
def transactor(kafka: Kafka, asker: Asker) -> Iterator[Transactor]:
    """Whose offsets are of the asker's group."""
    with Client.at(kafka.bootstrap_servers) as client:
        found = Transactor(client, asker.group, asker.topic)
        found.find()
        yield found


class TestMembership:
    @pytest.mark.parametrize("version", range(10))
    def test_a_life_in_every_version(self, asker: Asker, version: int) -> None:
        answer = asker.enter(version)
        member = answer.member_id
        assert member.startswith("test-")
        assert answer == JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer" if version >= 7 else None,
            protocol_name="range",
            leader=member,
            member_id=member,
            members=(JoinGroupResponseMember(member, None, RANGE["range"]),),
        )
        sync_version = min(version, 5)
        assert asker.sync(member, 1, {member: b"all"}, version=sync_version) == SyncGroupResponse(
            protocol_type="consumer" if sync_version == 5 else None,
            protocol_name="range" if sync_version == 5 else None,
            assignment=b"all",
        )
        assert asker.heartbeat(member, 1, min(version, 4)) is E.NONE
        leave_version = min(version, 5)
        if leave_version < 3:
            assert asker.leave(version=leave_version, member_id=member) == LeaveGroupResponse()
        else:
            left = asker.leave(MemberIdentity(member), version=leave_version)
            assert left == LeaveGroupResponse(members=(MemberResponse(member, None, E.NONE),))
        assert asker.heartbeat(member, 1) is E.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", [3, 6, 9])
    def test_joins_that_are_refused(self, asker: Asker, version: int) -> None:
        def refused(**options: Any) -> tuple[ErrorCode, str, str | None]:
            answer = asker.join(version=version, **options)
            assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
            return E(answer.error_code), answer.member_id, answer.protocol_name

        none = None if version >= 7 else ""
        assert refused(group="", member_id="m") == (E.INVALID_GROUP_ID, "m", none)
        assert refused(session_ms=5_999, member_id="m") == (E.INVALID_SESSION_TIMEOUT, "m", none)
        assert refused(session_ms=1_800_001) == (E.INVALID_SESSION_TIMEOUT, "", none)
        assert refused(member_id="m") == (E.UNKNOWN_MEMBER_ID, "m", none)
        assert refused(protocols={}) == (E.INCONSISTENT_GROUP_PROTOCOL, "", none)
        assert refused(protocol_type="") == (E.INCONSISTENT_GROUP_PROTOCOL, "", none)
        asker.stable()
        assert refused(protocol_type="connect") == (E.INCONSISTENT_GROUP_PROTOCOL, "", none)
        assert refused(protocols={"sticky": b""}) == (E.INCONSISTENT_GROUP_PROTOCOL, "", none)
        assert refused(member_id="m") == (E.UNKNOWN_MEMBER_ID, "m", none)
        if version >= 4:
            new = asker.join(version=version)
            assert (new.error_code, new.protocol_name) == (E.MEMBER_ID_REQUIRED, none)

    def test_two_members_and_a_rebalance(self, asker: Asker) -> None:
        first = asker.stable()
        other = asker.another()
        second = other.join().member_id
        other.send_join(second)
        until(lambda: asker.heartbeat(first, 1), lambda code: code is E.REBALANCE_IN_PROGRESS, "no rebalance")
        assert asker.sync(first, 1).error_code == E.REBALANCE_IN_PROGRESS
        assert asker.commit({0: 1}, generation=1, member_id=first) == [E.NONE]
        leading = asker.join(first)
        following = other.joined()
        assert (leading.generation_id, following.generation_id) == (2, 2)
        assert {member.member_id for member in leading.members} == {first, second}
        assert (following.members, following.leader) == ((), first)

        other.send_sync(second, 2)
        assert asker.heartbeat(second, 2) is E.NONE
        assert asker.commit({0: 1}, generation=2, member_id=first) == [E.REBALANCE_IN_PROGRESS]
        assert asker.sync(first, 2, {first: b"1", second: b"2"}).assignment == b"1"
        assert other.synced().assignment == b"2"
        assert asker.heartbeat(second, 1) is E.ILLEGAL_GENERATION
        assert asker.join(second).generation_id == 2
        assert asker.sync(second, 2).assignment == b"2"

    def test_syncs_that_are_refused(self, asker: Asker) -> None:
        assert asker.sync("m", 1).error_code == E.UNKNOWN_MEMBER_ID
        member = asker.stable()
        assert asker.sync("m", 1).error_code == E.UNKNOWN_MEMBER_ID
        assert asker.sync(member, 2).error_code == E.ILLEGAL_GENERATION
        assert asker.sync(member, 1, protocol="sticky").error_code == E.INCONSISTENT_GROUP_PROTOCOL
        assert asker.sync(member, 1, protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
        assert asker.sync(member, 1, protocol=None).error_code == E.INCONSISTENT_GROUP_PROTOCOL
        assert asker.sync(member, 1, protocol=None, version=4) == SyncGroupResponse(assignment=b"all")

    def test_a_static_member_is_restarted(self, asker: Asker) -> None:
        first = asker.join(instance="a").member_id
        assert first.startswith("a-")
        assert asker.sync(first, 1, {first: b"all"}, instance="a").assignment == b"all"
        again = asker.join(instance="a", version=8)
        assert (again.leader, again.members, again.generation_id) == (first, (), 1)
        last = asker.join(instance="a")
        assert (last.leader, last.skip_assignment, len(last.members), last.generation_id) == (last.member_id, True, 1, 1)
        assert asker.heartbeat(again.member_id, 1, instance="a") is E.FENCED_INSTANCE_ID
        assert asker.heartbeat(last.member_id, 1, instance="b") is E.UNKNOWN_MEMBER_ID
        assert asker.heartbeat(last.member_id, 1) is E.NONE
        fenced = asker.join(again.member_id, instance="a")
        assert (fenced.error_code, fenced.protocol_name) == (E.FENCED_INSTANCE_ID, None)
        assert asker.commit({0: 1}, generation=1, member_id=first, instance="a") == [E.FENCED_INSTANCE_ID]

    def test_leaving(self, asker: Asker) -> None:
        def codes(*members: MemberIdentity) -> list[ErrorCode]:
            answer = asker.leave(*members)
            assert answer.error_code == E.NONE
            return [E(member.error_code) for member in answer.members]

        assert codes(MemberIdentity("m"), MemberIdentity("", "a")) == [E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
        assert asker.leave(version=2, member_id="m") == LeaveGroupResponse(error_code=E.UNKNOWN_MEMBER_ID)
        static = asker.join(instance="a").member_id
        pending = asker.join().member_id
        assert codes(MemberIdentity("m"), MemberIdentity("m", "a")) == [E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID]
        assert codes(MemberIdentity(pending), MemberIdentity("", "a")) == [E.NONE, E.NONE]
        assert asker.heartbeat(static, 1) is E.UNKNOWN_MEMBER_ID


class TestOffsets:
    @pytest.mark.parametrize("version", range(2, 10))
    def test_commits_in_every_version(self, asker: Asker, version: int) -> None:
        member = asker.stable()
        assert asker.commit({0: 5, 7: 1}, generation=1, member_id=member, version=version) == [
            E.NONE,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert asker.commit({0: 6}, generation=2, member_id=member, version=version) == [E.ILLEGAL_GENERATION]
        assert asker.commit({0: 6}, generation=1, member_id="m", version=version) == [E.UNKNOWN_MEMBER_ID]
        assert asker.commit({0: 6}, version=version) == [E.UNKNOWN_MEMBER_ID]
        assert asker.commit({0: 6}, topic="no-such-topic", version=version) == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert asker.fetch() == (E.NONE, {0: (5, "note", E.NONE), 1: (-1, "", E.NONE)})

    @pytest.mark.parametrize("version", range(1, 10))
    def test_fetches_in_every_version(self, asker: Asker, version: int) -> None:
        assert asker.fetch(version=version) == (E.NONE, {0: (-1, "", E.NONE), 1: (-1, "", E.NONE)})
        assert asker.commit({0: 5}, metadata=None) == [E.NONE]
        assert asker.fetch(version=version) == (E.NONE, {0: (5, "", E.NONE), 1: (-1, "", E.NONE)})
        assert asker.fetch([9], version=version) == (E.NONE, {9: (-1, "", E.NONE)})
        if version >= 2:
            assert asker.fetch(None, version=version) == (E.NONE, {0: (5, "", E.NONE)})

    def test_commits_for_a_group_that_nobody_knows(self, asker: Asker) -> None:
        assert asker.commit({0: 1}, generation=1, member_id="m", version=8) == [E.ILLEGAL_GENERATION]
        assert asker.commit({0: 1}, generation=1, member_id="m", version=9) == [E.GROUP_ID_NOT_FOUND]
        assert asker.commit({0: 1}, metadata="x" * 4096) == [E.NONE]
        assert asker.commit({0: 2, 1: 3}, metadata="x" * 4097) == [E.OFFSET_METADATA_TOO_LARGE] * 2
        assert asker.fetch(None)[1][0][0] == 1

    def test_the_group_without_a_name_has_offsets_only(self, asker: Asker) -> None:
        assert asker.commit({0: 1}, group="") == [E.NONE]
        assert asker.fetch([0], group="") == (E.NONE, {0: (1, "note", E.NONE)})
        assert asker.delete_offsets(0, group="").error_code == E.INVALID_GROUP_ID

    def test_deleting_offsets(self, asker: Asker) -> None:
        def codes(*partitions: int, topic: str | None = None) -> list[ErrorCode]:
            answer = asker.delete_offsets(*partitions, topic=topic)
            assert answer.error_code == E.NONE
            return by_partition(answer)

        assert asker.delete_offsets(0).error_code == E.GROUP_ID_NOT_FOUND
        asker.commit({0: 1, 1: 2})
        assert codes(0, 7) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert asker.fetch(None) == (E.NONE, {1: (2, "note", E.NONE)})
        name = asker.topic.encode()
        subscribed = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)
        member = asker.join(version=3, protocols={"range": subscribed}).member_id
        asker.sync(member, 1, {member: b""})
        assert codes(1) == [E.GROUP_SUBSCRIBED_TO_TOPIC]
        assert codes(0, topic="no-such-topic") == [E.UNKNOWN_TOPIC_OR_PARTITION]

    def test_deleting_offsets_of_a_group_that_does_not_consume(self, asker: Asker) -> None:
        asker.join(version=3, protocol_type="connect", protocols={"sessioned": b""})
        assert asker.delete_offsets(0).error_code == E.NON_EMPTY_GROUP


class TestAdministration:
    def test_a_group_is_described(self, asker: Asker) -> None:
        def described(version: int = 6) -> DescribedGroup:
            body = DescribeGroupsRequest([asker.group], include_authorized_operations=version >= 3)
            (group,) = asker.ask(ApiKey.DESCRIBE_GROUPS, version, body).groups
            assert isinstance(group, DescribedGroup)
            return group

        text = f"Group {asker.group} not found."
        assert described() == DescribedGroup(E.GROUP_ID_NOT_FOUND, text, asker.group, "Dead")
        assert (described(5).error_code, described(5).group_state) == (E.NONE, "Dead")
        member = asker.enter().member_id
        # Kafka describes what is in its log, a moment later.
        host = until(described, lambda group: len(group.members) == 1, "not described").members[0].client_host
        assert host == "/127.0.0.1"
        completing = DescribedGroupMember(member, None, "test", host)
        assert described() == DescribedGroup(
            E.NONE, None, asker.group, "CompletingRebalance", "consumer", "", (completing,), authorized_operations=3400
        )
        asker.sync(member, 1, {member: b"all"})
        stable = DescribedGroupMember(member, None, "test", host, RANGE["range"], b"all")
        assert described(0) == DescribedGroup(E.NONE, None, asker.group, "Stable", "consumer", "range", (stable,))
        asker.leave(MemberIdentity(member))
        assert described(2) == DescribedGroup(E.NONE, None, asker.group, "Empty", "consumer")

    def test_groups_are_listed(self, asker: Asker) -> None:
        def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = (), version: int = 5) -> list[ListedGroup]:
            return [each for each in asker.list_groups(states, types, version).groups if each.group_id == asker.group]

        assert listed() == []
        asker.commit({0: 1})
        assert until(listed, bool, "not listed") == [ListedGroup(asker.group, "", "Empty", "classic")]
        asker.stable()
        stable = ListedGroup(asker.group, "consumer", "Stable", "classic")
        assert listed() == listed(("STABLE ",)) == listed(types=("Classic",)) == [stable]
        for nothing in (
            listed(("Empty", "Dead")),
            listed(("nonsense",)),
            listed(types=("consumer",)),
            listed(types=("nonsense",)),
        ):
            assert nothing == []
        assert listed(version=4) == [ListedGroup(asker.group, "consumer", "Stable")]
        assert listed(version=0) == [ListedGroup(asker.group, "consumer")]

    def test_groups_are_deleted(self, asker: Asker) -> None:
        def deleted(version: int = 2) -> ErrorCode:
            answer = asker.ask(ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest([asker.group, asker.group]))
            assert isinstance(answer, DeleteGroupsResponse)
            assert answer.results == (DeletableGroupResult(asker.group, answer.results[0].error_code),)
            return E(answer.results[0].error_code)

        assert deleted() is E.GROUP_ID_NOT_FOUND
        member = asker.stable()
        assert asker.commit({0: 1}, generation=1, member_id=member) == [E.NONE]
        assert deleted() is E.NON_EMPTY_GROUP
        asker.leave(MemberIdentity(member))
        assert deleted(0) is E.NONE
        assert asker.fetch(None) == (E.NONE, {})


class TestTransactions:
    def test_offsets_count_when_the_transaction_commits(self, asker: Asker, transactor: Transactor) -> None:
        who = transactor.settled(transactor.init).producer
        asker.commit({0: 1, 1: 2})
        assert transactor.commit_offset(who, 5) is E.NONE
        assert asker.fetch(None) == (E.NONE, {0: (1, "note", E.NONE), 1: (2, "note", E.NONE)})
        unstable = {0: (-1, "", E.UNSTABLE_OFFSET_COMMIT), 1: (2, "note", E.NONE)}
        for version in (7, 8, 9):
            assert (
                asker.fetch(stable=True, version=version) == asker.fetch(None, stable=True, version=version) == (E.NONE, unstable)
            )
        who = transactor.commit(who).producer
        transactor.settle()
        assert asker.fetch([0], stable=True) == (E.NONE, {0: (5, "", E.NONE)})

        assert transactor.commit_offset(who, 6) is E.NONE
        transactor.abort(who)
        transactor.settle()
        assert asker.fetch([0], stable=True) == (E.NONE, {0: (5, "", E.NONE)})

    @pytest.mark.parametrize(
        ("version", "code"), [(2, E.INVALID_TXN_STATE), (3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)]
    )
    def test_the_coordinator_must_know_of_the_group(
        self, asker: Asker, transactor: Transactor, version: int, code: ErrorCode
    ) -> None:
        who = transactor.settled(transactor.init).producer
        assert transactor.commit_offset(who, 5, version) is code
        assert transactor.add_offsets(who) is E.NONE
        assert transactor.commit_offset(who, 5, version) is E.NONE
        assert transactor.commit(who, 4).code is E.NONE
        until(lambda: asker.fetch([0])[1][0][0], lambda offset: bool(offset == 5), "not committed")

    def test_whoever_is_not_the_producer_is_refused(self, asker: Asker, transactor: Transactor) -> None:
        first = transactor.settled(transactor.init).producer
        assert transactor.commit_offset(first._replace(producer_id=first.producer_id + 1_000), 5) is E.INVALID_PRODUCER_ID_MAPPING
        second = transactor.settled(transactor.init).producer
        assert transactor.commit_offset(first, 5) is E.INVALID_PRODUCER_EPOCH
        assert transactor.commit_offset(second, 6) is E.NONE
        assert transactor.commit_offset(first, 5, 3) is E.INVALID_PRODUCER_EPOCH

    def test_consumers_are_fenced_by_generation_and_member(self, asker: Asker, transactor: Transactor) -> None:
        who = transactor.settled(transactor.init).producer
        member = asker.stable()

        def commit(version: int = 5, index: int = 0, **others: Any) -> ErrorCode:
            partition = txn.TxnOffsetCommitRequestPartition(index, 5)
            topics = [txn.TxnOffsetCommitRequestTopic(asker.topic, [partition])]
            fields: dict[str, Any] = {"group_id": asker.group, **others}
            body = txn.TxnOffsetCommitRequest(asker.group, **fields, producer_id=who[0], producer_epoch=who[1], topics=topics)
            answer = asker.ask(ApiKey.TXN_OFFSET_COMMIT, version, body)
            return E(answer.topics[0].partitions[0].error_code)

        assert commit(group_id="") is E.INVALID_GROUP_ID
        assert commit(index=7) is E.UNKNOWN_TOPIC_OR_PARTITION
        assert commit(generation_id=1, member_id="m") is E.UNKNOWN_MEMBER_ID
        assert commit(generation_id=2, member_id=member) is E.ILLEGAL_GENERATION
        assert commit(generation_id=1, member_id=member, group_instance_id="a") is E.UNKNOWN_MEMBER_ID
        assert commit(generation_id=1, member_id=member) is E.NONE
        assert commit() is E.NONE
