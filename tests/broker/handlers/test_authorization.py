"""Which ACLs each API needs: with all of them it is served, without any single one it is refused."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from spark_kafka_sink.broker.acl import AclOperation, ResourceType, parse_acls
from spark_kafka_sink.broker.kafka_apis import HANDLERS
from spark_kafka_sink.broker.network.request import Session
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import cluster as administration
from spark_kafka_sink.protocol.apis import configs, transactions
from spark_kafka_sink.protocol.apis.cluster import DescribeClusterRequest, DescribeLogDirsRequest
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from spark_kafka_sink.protocol.apis.groups import (
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
from spark_kafka_sink.protocol.apis.list_transactions import ListTransactionsRequest
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.apis.partition_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest, PartitionProduceData, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.apis.sasl import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from spark_kafka_sink.protocol.apis.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.broker.rig import Rig, batch
from tests.every import every

ANA: Final = "User:ana"
REFUSALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def session(principal: str = ANA) -> Session:
    return Session("127.0.0.1", 1, principal)


def codes(answer: object) -> Iterator[ErrorCode]:
    """Every error code in a response, wherever it is."""
    if isinstance(answer, tuple | list):
        for each in answer:
            yield from codes(each)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield ErrorCode(value)
            else:
                yield from codes(value)


@contextmanager
def cluster(*texts: str) -> Iterator[Rig]:
    """With a topic t, a group g that has an offset in it, and the transactional id x."""
    with Rig(acls=texts, super_users=("User:root",)) as rig:
        rig.cluster.create_topic("t")
        offsets = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 5)])]
        root = session("User:root")
        committed = rig.ask_api(OffsetCommitRequest("g", topics=offsets), ApiKey.OFFSET_COMMIT, session=root)
        begun = rig.ask_api(InitProducerIdRequest("x", 60_000), ApiKey.INIT_PRODUCER_ID, session=root)
        assert set(codes((committed, begun))) == {ErrorCode.NONE}
        yield rig


class Case(NamedTuple):
    """`needed`: the ACLs without which a request is refused, each as operation and resource."""

    key: ApiKey
    body: Callable[[Rig], Message]
    needed: tuple[str, ...]
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.key.name}-{self.needed[0]}"


WRITE_T, READ_T, DESCRIBE_T = "Write --topic t", "Read --topic t", "Describe --topic t"
READ_G, WRITE_X = "Read --group g", "Write --transactional-id x"
T = [transactions.AddPartitionsToTxnTopic("t", [0])]


def produce(**marks: Any) -> Callable[[Rig], ProduceRequest]:
    def body(rig: Rig) -> ProduceRequest:
        topic_id = rig.cluster.image.topics["t"].topic_id
        data = [TopicProduceData("t", topic_id, [PartitionProduceData(0, [batch(b"a", **marks)])])]
        return ProduceRequest(transactional_id="x" if marks else None, topic_data=data)

    return body


def fetch(rig: Rig) -> FetchRequest:
    topic = FetchTopic("t", rig.cluster.image.topics["t"].topic_id, [FetchPartition(0, fetch_offset=0, partition_max_bytes=100)])
    return FetchRequest(max_wait_ms=0, topics=[topic])


OFFSETS = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 6)])]
TXN_OFFSETS = [transactions.TxnOffsetCommitRequestTopic("t", [transactions.TxnOffsetCommitRequestPartition(0, 6)])]
PROTOCOLS = [JoinGroupRequestProtocol("range", b"")]
ANYTHING: Final = (None, None, 1, 1)  # of any principal and host, any operation, allowed or denied
NEW_ACL = administration.AclCreation(2, "t", 3, ANA, "*", 3, 3)

CASES: Final = (
    Case(ApiKey.PRODUCE, produce(), (WRITE_T,)),
    Case(ApiKey.PRODUCE, produce(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), (WRITE_X, WRITE_T)),
    Case(ApiKey.FETCH, fetch, (READ_T,)),
    Case(
        ApiKey.LIST_OFFSETS,
        lambda rig: ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]),
        (DESCRIBE_T,),
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        lambda rig: OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0)])]),
        (DESCRIBE_T,),
    ),
    Case(ApiKey.METADATA, lambda rig: MetadataRequest([MetadataRequestTopic(name="t")]), (DESCRIBE_T,)),
    Case(
        ApiKey.METADATA,
        lambda rig: MetadataRequest([MetadataRequestTopic(name="new")]),
        ("Create --topic new", "Describe --topic new"),
    ),
    Case(ApiKey.FIND_COORDINATOR, lambda rig: FindCoordinatorRequest(coordinator_keys=["g"]), ("Describe --group g",)),
    Case(
        ApiKey.FIND_COORDINATOR,
        lambda rig: FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        ("Describe --transactional-id x",),
    ),
    Case(
        ApiKey.JOIN_GROUP,
        lambda rig: JoinGroupRequest("g", 10_000, 10_000, protocol_type="consumer", protocols=PROTOCOLS),
        (READ_G,),
    ),
    Case(
        ApiKey.SYNC_GROUP,
        lambda rig: SyncGroupRequest("g", 1, "m", protocol_type="consumer", protocol_name="range"),
        (READ_G,),
    ),
    Case(ApiKey.HEARTBEAT, lambda rig: HeartbeatRequest("g", 1, "m"), (READ_G,)),
    Case(ApiKey.LEAVE_GROUP, lambda rig: LeaveGroupRequest("g", members=[MemberIdentity("m")]), (READ_G,)),
    Case(ApiKey.DESCRIBE_GROUPS, lambda rig: DescribeGroupsRequest(["g"]), ("Describe --group g",)),
    Case(ApiKey.DELETE_GROUPS, lambda rig: DeleteGroupsRequest(["g"]), ("Delete --group g",)),
    Case(ApiKey.OFFSET_COMMIT, lambda rig: OffsetCommitRequest("g", topics=OFFSETS), (READ_G, READ_T)),
    Case(
        ApiKey.OFFSET_FETCH,
        lambda rig: OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", [0])])]),
        ("Describe --group g", DESCRIBE_T),
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        lambda rig: OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]),
        ("Delete --group g", READ_T),
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        lambda rig: CreateTopicsRequest([CreatableTopic("new", 1, 1)]),
        ("Create --topic new", "DescribeConfigs --topic new"),
    ),
    Case(ApiKey.DELETE_TOPICS, lambda rig: DeleteTopicsRequest([DeleteTopicState("t")]), ("Delete --topic t",)),
    Case(
        ApiKey.DELETE_TOPICS,
        lambda rig: DeleteTopicsRequest([DeleteTopicState(None, rig.cluster.image.topics["t"].topic_id)]),
        ("Delete --topic t",),
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        lambda rig: CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)]),
        ("Alter --topic t",),
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        lambda rig: DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])]),
        ("Delete --topic t",),
    ),
    Case(ApiKey.INIT_PRODUCER_ID, lambda rig: InitProducerIdRequest(None, 60_000), ("IdempotentWrite --cluster",)),
    Case(ApiKey.INIT_PRODUCER_ID, lambda rig: InitProducerIdRequest(None, 60_000), ("Write --topic any",)),
    Case(ApiKey.INIT_PRODUCER_ID, lambda rig: InitProducerIdRequest("x", 60_000), (WRITE_X,)),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        lambda rig: transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=9, v3_and_below_topics=T
        ),
        (WRITE_X, WRITE_T),
        3,
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        lambda rig: transactions.AddPartitionsToTxnRequest([transactions.AddPartitionsToTxnTransaction("x", 9, 0, topics=T)]),
        ("ClusterAction --cluster",),
    ),
    Case(ApiKey.ADD_OFFSETS_TO_TXN, lambda rig: transactions.AddOffsetsToTxnRequest("x", 9, 0, "g"), (WRITE_X, READ_G)),
    Case(ApiKey.END_TXN, lambda rig: transactions.EndTxnRequest("x", 9, 0, True), (WRITE_X,)),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        lambda rig: transactions.TxnOffsetCommitRequest("x", "g", 9, 0, topics=TXN_OFFSETS),
        (WRITE_X, READ_G, READ_T),
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        lambda rig: transactions.DescribeProducersRequest([transactions.TopicRequest("t", [0])]),
        (READ_T,),
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda rig: transactions.DescribeTransactionsRequest(["x"]),
        ("Describe --transactional-id x",),
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        lambda rig: configs.DescribeConfigsRequest([configs.DescribeConfigsResource(2, "t", None)]),
        ("DescribeConfigs --topic t",),
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        lambda rig: configs.DescribeConfigsRequest([configs.DescribeConfigsResource(4, "1", None)]),
        ("DescribeConfigs --cluster",),
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        lambda rig: administration.AlterConfigsRequest([administration.AlterConfigsResource(2, "t")]),
        ("AlterConfigs --topic t",),
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda rig: configs.IncrementalAlterConfigsRequest([configs.AlterConfigsResource(2, "t")]),
        ("AlterConfigs --topic t",),
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda rig: configs.IncrementalAlterConfigsRequest([configs.AlterConfigsResource(4, "1")]),
        ("AlterConfigs --cluster",),
    ),
    Case(ApiKey.DESCRIBE_LOG_DIRS, lambda rig: DescribeLogDirsRequest(None), ("Describe --cluster",)),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda rig: DescribeUserScramCredentialsRequest(),
        ("Describe --cluster",),
    ),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda rig: AlterUserScramCredentialsRequest([ScramCredentialDeletion("ana", 1)]),
        ("Alter --cluster",),
    ),
    Case(
        ApiKey.DESCRIBE_ACLS,
        lambda rig: administration.DescribeAclsRequest(1, None, 1, *ANYTHING),
        ("Describe --cluster",),
    ),
    Case(ApiKey.CREATE_ACLS, lambda rig: administration.CreateAclsRequest([NEW_ACL]), ("Alter --cluster",)),
    Case(
        ApiKey.DELETE_ACLS,
        lambda rig: administration.DeleteAclsRequest([administration.DeleteAclsFilter(2, "none", 1, *ANYTHING)]),
        ("Alter --cluster",),
    ),
)

NEED_NOTHING: Final = frozenset(
    # What may be asked by everybody, and what is filtered instead of refused.
    {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
    | {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
)


def refusals(case: Case, granted: tuple[str, ...]) -> set[ErrorCode]:
    with cluster(*(f"--allow-principal {ANA} --operation {each}" for each in granted)) as rig:
        answer = rig.ask_api(case.body(rig), case.key, case.version, session=session())
        return {code for code in codes(answer) if code in REFUSALS}


@every("case", CASES)
def test_what_an_api_needs(case: Case) -> None:
    assert refusals(case, case.needed) == set()
    for left in itertools.combinations(case.needed, len(case.needed) - 1):
        assert len(refusals(case, left)) == 1


def test_no_api_is_forgotten() -> None:
    assert {case.key for case in CASES} | NEED_NOTHING == set(HANDLERS)


def ask(rig: Rig, body: Message, key: ApiKey, *, principal: str = ANA) -> Any:
    return rig.ask_api(body, key, session=session(principal))


def test_of_a_produce_only_the_forbidden_partitions_are_refused() -> None:
    with cluster(f"--allow-principal {ANA} --operation Write --topic t") as rig:
        secret = rig.cluster.create_topic("secret")
        data = [
            TopicProduceData(name, rig.cluster.image.topics[name].topic_id, [PartitionProduceData(0, [batch(b"a")])])
            for name in ("secret", "t")
        ]
        answer = ask(rig, ProduceRequest(topic_data=data), ApiKey.PRODUCE)

        assert [each.partition_responses[0].error_code for each in answer.responses] == [29, 0]
        assert rig.log("t").log_end_offset == 1
        assert rig.log(secret.name).log_end_offset == 0


def test_of_all_topics_those_that_one_may_not_describe_are_not_mentioned() -> None:
    with cluster(f"--allow-principal {ANA} --operation Read --topic t") as rig:
        rig.cluster.create_topic("secret")

        assert [topic.name for topic in ask(rig, MetadataRequest(None), ApiKey.METADATA).topics] == ["t"]
        assert len(ask(rig, MetadataRequest(None), ApiKey.METADATA, principal="User:root").topics) == 4


def test_whether_a_forbidden_topic_exists_is_not_told() -> None:
    with cluster() as rig:
        secret = rig.cluster.create_topic("secret")
        asked = [MetadataRequestTopic(name=name) for name in ("secret", "none")]
        for topic in ask(rig, MetadataRequest(asked), ApiKey.METADATA).topics:
            assert (topic.error_code, topic.topic_id.int, topic.partitions) == (29, 0, ())
        (by_id,) = ask(rig, MetadataRequest([MetadataRequestTopic(topic_id=secret.topic_id)]), ApiKey.METADATA).topics
        assert (by_id.error_code, by_id.name) == (29, None)
        for name in ("secret", "none"):
            (deleted,) = ask(rig, DeleteTopicsRequest([DeleteTopicState(name)]), ApiKey.DELETE_TOPICS).responses
            assert (deleted.error_code, deleted.error_message) == (29, "Topic authorization failed.")
        assert "secret" in rig.cluster.image.topics


def test_who_may_create_in_the_cluster_needs_no_right_to_the_topic() -> None:
    with cluster(f"--allow-principal {ANA} --operation Create --cluster") as rig:
        (made,) = ask(rig, CreateTopicsRequest([CreatableTopic("new", 1, 1)]), ApiKey.CREATE_TOPICS).topics

        assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, 29, -1)
        assert "new" in rig.cluster.image.topics


def test_groups_and_transactions_are_listed_for_who_may_describe_them() -> None:
    with cluster(f"--allow-principal {ANA} --operation Describe --group g --transactional-id x") as rig:
        root, other = "User:root", "User:other"

        def listed(principal: str) -> tuple[int, int]:
            groups = ask(rig, ListGroupsRequest(), ApiKey.LIST_GROUPS, principal=principal).groups
            states = ask(rig, ListTransactionsRequest(), ApiKey.LIST_TRANSACTIONS, principal=principal).transaction_states
            return len(groups), len(states)

        assert (listed(root), listed(ANA), listed(other)) == ((1, 1), (1, 1), (0, 0))


def test_authorized_operations_are_what_the_acls_say() -> None:
    with cluster(
        f"--allow-principal {ANA} --operation Write --topic t", f"--allow-principal {ANA} --operation Read --group g"
    ) as rig:
        body = MetadataRequest([MetadataRequestTopic(name="t")], include_topic_authorized_operations=True)
        (topic,) = ask(rig, body, ApiKey.METADATA).topics
        (group,) = ask(rig, DescribeGroupsRequest(["g"], include_authorized_operations=True), ApiKey.DESCRIBE_GROUPS).groups
        described = DescribeClusterRequest(include_cluster_authorized_operations=True)

        assert topic.topic_authorized_operations == 1 << AclOperation.WRITE | 1 << AclOperation.DESCRIBE
        assert group.authorized_operations == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
        assert ask(rig, described, ApiKey.DESCRIBE_CLUSTER).cluster_authorized_operations == 0
        assert ask(rig, described, ApiKey.DESCRIBE_CLUSTER, principal="User:root").cluster_authorized_operations == 8096


class TestAcls:
    def test_one_that_is_made_counts_at_once_and_no_longer_when_it_is_deleted(self) -> None:
        with cluster() as rig:
            asked = MetadataRequest([MetadataRequestTopic(name="t")])
            root = "User:root"
            assert set(codes(ask(rig, administration.CreateAclsRequest([NEW_ACL]), ApiKey.CREATE_ACLS, principal=root))) == {0}
            assert ask(rig, asked, ApiKey.METADATA).topics[0].error_code == 0
            found = ask(rig, administration.DescribeAclsRequest(2, "t", 3, *ANYTHING), ApiKey.DESCRIBE_ACLS, principal=root)
            ((described,),) = (resource.acls for resource in found.resources)
            assert (described.principal, described.operation, described.permission_type) == (ANA, 3, 3)
            deleted = ask(
                rig,
                administration.DeleteAclsRequest([administration.DeleteAclsFilter(2, None, 1, *ANYTHING)]),
                ApiKey.DELETE_ACLS,
                principal=root,
            )
            assert [match.principal for match in deleted.filter_results[0].matching_acls] == [ANA]
            assert ask(rig, asked, ApiKey.METADATA).topics[0].error_code == 29

    def test_a_broker_without_an_authorizer_has_none(self) -> None:
        with Rig() as rig:
            answers = (
                ask(rig, administration.DescribeAclsRequest(1, None, 1, *ANYTHING), ApiKey.DESCRIBE_ACLS),
                ask(rig, administration.CreateAclsRequest([NEW_ACL]), ApiKey.CREATE_ACLS),
                ask(
                    rig,
                    administration.DeleteAclsRequest([administration.DeleteAclsFilter(1, None, 1, *ANYTHING)]),
                    ApiKey.DELETE_ACLS,
                ),
            )

            assert [set(codes(answer)) for answer in answers] == [{ErrorCode.SECURITY_DISABLED}] * 3

    def test_they_are_kept_with_the_cluster(self, tmp_path: Any) -> None:
        given = "--allow-principal User:ana --operation Read --topic given"
        with Rig(acls=[given], data_dir=tmp_path) as rig:
            rig.cluster.add_acls(parse_acls("--deny-principal User:bob --group g --resource-pattern-type prefixed"))
            first = rig.cluster.image.acls
        with Rig(acls=[given], data_dir=tmp_path) as rig:
            assert rig.cluster.image.acls == first
            assert {acl.resource_type for acl in first} == {ResourceType.TOPIC, ResourceType.GROUP}
