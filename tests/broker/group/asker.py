"""Members of a group that do what a test says, request by request, in any version, each over its own connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import group_offsets
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.broker.network.client import Client, request_frame
from tests.waiting import until

RANGE: Mapping[str, bytes] = {"range": b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"}
"""A subscription to no topic, as consumers write it."""

_LOADING = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Asker:
    """A connection to a broker, and a group and a topic nobody else uses."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        self._servers = bootstrap_servers
        self._closing = ExitStack()
        self._client = self._closing.enter_context(Client.at(bootstrap_servers))
        self.group = group
        self.topic = topic

    def __enter__(self) -> Self:
        until(lambda: self._find().error_code, lambda code: bool(code == ErrorCode.NONE), "a coordinator")
        until(lambda: self.list_groups().error_code, lambda code: code not in _LOADING, "a coordinator that is loaded")
        until(lambda: self.heartbeat("", 0), lambda code: code not in _LOADING, "a coordinator that is loaded")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    def another(self) -> Asker:
        """The same over a connection of its own, for who waits."""
        other = Asker(self._servers, self.group, self.topic)
        self._closing.enter_context(other._closing)
        return other

    def ask(self, key: ApiKey, version: int, body: Message) -> Any:
        return self._client.ask(key, version, body)

    def _find(self) -> Any:
        return self.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key=self.group, key_type=0))

    # JoinGroup and SyncGroup: sent, and received when the test wants

    def send_join(
        self,
        member_id: str = "",
        version: int = 9,
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        group: str | None = None,
    ) -> None:
        wanted = tuple(JoinGroupRequestProtocol(*protocol) for protocol in protocols.items())
        name = self.group if group is None else group
        body = JoinGroupRequest(name, session_ms, 60_000, member_id, instance, protocol_type, wanted)
        self._client.send(request_frame(ApiKey.JOIN_GROUP, version, body))

    def joined(self, version: int = 9) -> Any:
        return self._client.receive_response(ApiKey.JOIN_GROUP, version)[1]

    def join(self, member_id: str = "", version: int = 9, **options: Any) -> Any:
        self.send_join(member_id, version, **options)
        return self.joined(version)

    def enter(self, version: int = 9) -> Any:
        """A dynamic member that is sent back for its id, and joins with it."""
        answer = self.join(version=version)
        return self.join(answer.member_id, version) if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else answer

    def send_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        version: int = 5,
        *,
        instance: str | None = None,
        protocol: str | None = "range",
        protocol_type: str | None = "consumer",
    ) -> None:
        given = tuple(SyncGroupRequestAssignment(*each) for each in (assignments or {}).items())
        body = SyncGroupRequest(self.group, generation, member_id, instance, protocol_type, protocol, given)
        self._client.send(request_frame(ApiKey.SYNC_GROUP, version, body))

    def synced(self, version: int = 5) -> Any:
        return self._client.receive_response(ApiKey.SYNC_GROUP, version)[1]

    def sync(self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **options: Any) -> Any:
        self.send_sync(member_id, generation, assignments, **options)
        return self.synced(options.get("version", 5))

    def stable(self) -> str:
        """The only member of generation 1."""
        member: str = self.enter().member_id
        assert self.sync(member, 1, {member: b"all"}).error_code == ErrorCode.NONE
        return member

    # The others

    def heartbeat(self, member_id: str, generation: int, version: int = 4, *, instance: str | None = None) -> ErrorCode:
        body = HeartbeatRequest(self.group, generation, member_id, instance if version >= 3 else None)
        return ErrorCode(self.ask(ApiKey.HEARTBEAT, version, body).error_code)

    def leave(self, *members: MemberIdentity, version: int = 5, member_id: str = "") -> Any:
        return self.ask(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(self.group, member_id, members))

    def commit(
        self,
        offsets: Mapping[int, int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        topic: str | None = None,
        metadata: str | None = "note",
        version: int = 9,
        group: str | None = None,
    ) -> list[ErrorCode]:
        """Of partitions of the topic; one code for each."""
        partitions = [
            group_offsets.OffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
            for index, offset in offsets.items()
        ]
        topics = [group_offsets.OffsetCommitRequestTopic(topic or self.topic, partitions)]
        name = self.group if group is None else group
        body = group_offsets.OffsetCommitRequest(name, generation, member_id, instance, topics=topics)
        answer = self.ask(ApiKey.OFFSET_COMMIT, version, body)
        return by_partition(answer)

    def fetch(
        self, partitions: Sequence[int] | None = (0, 1), *, version: int = 9, stable: bool = False, group: str | None = None
    ) -> Any:
        """(error code of the group, {partition: (offset, metadata, code)})"""
        name = self.group if group is None else group
        if version < 8:
            old = None if partitions is None else [group_offsets.OffsetFetchRequestTopic(self.topic, partitions)]
            answer = self.ask(ApiKey.OFFSET_FETCH, version, group_offsets.OffsetFetchRequest(name, old, require_stable=stable))
        else:
            new = None if partitions is None else [group_offsets.OffsetFetchRequestTopics(self.topic, partitions)]
            wanted = [group_offsets.OffsetFetchRequestGroup(name, topics=new)]
            whole = self.ask(ApiKey.OFFSET_FETCH, version, group_offsets.OffsetFetchRequest(groups=wanted, require_stable=stable))
            (answer,) = whole.groups
        found = {
            each.partition_index: (each.committed_offset, each.metadata, ErrorCode(each.error_code))
            for topic in answer.topics
            for each in topic.partitions
        }
        return ErrorCode(answer.error_code), found

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = (), version: int = 5) -> Any:
        return self.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(states, types))

    def delete_offsets(self, *partitions: int, topic: str | None = None, group: str | None = None) -> Any:
        asked = [group_offsets.OffsetDeleteRequestPartition(index) for index in partitions]
        topics = [group_offsets.OffsetDeleteRequestTopic(topic or self.topic, asked)]
        name = self.group if group is None else group
        return self.ask(ApiKey.OFFSET_DELETE, 0, group_offsets.OffsetDeleteRequest(name, topics))


def by_partition(answer: Any) -> list[ErrorCode]:
    """Of the only topic. Kafka names those that do not exist first."""
    partitions = sorted(answer.topics[0].partitions, key=lambda each: int(each.partition_index))
    return [ErrorCode(each.error_code) for each in partitions]
