"""The error response of each API: one error for everything in the request (Java's `AbstractRequest.getErrorResponse`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis import alter_configs, configs, transactions
from spark_kafka_sink.protocol.apis.acls import (
    AclCreationResult,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsResponse,
    DescribeAclsResponse,
)
from spark_kafka_sink.protocol.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from spark_kafka_sink.protocol.apis.cluster import DescribeClusterResponse, DescribeLogDirsResponse
from spark_kafka_sink.protocol.apis.configs import DescribeConfigsResponse, DescribeConfigsResult
from spark_kafka_sink.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from spark_kafka_sink.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from spark_kafka_sink.protocol.apis.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from spark_kafka_sink.protocol.apis.groups import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupResponse,
)
from spark_kafka_sink.protocol.apis.init_producer_id import InitProducerIdResponse
from spark_kafka_sink.protocol.apis.list_transactions import ListTransactionsResponse
from spark_kafka_sink.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic
from spark_kafka_sink.protocol.apis.partition_offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from spark_kafka_sink.protocol.apis.sasl import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.apis.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from spark_kafka_sink.protocol.apis.topics import (
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from spark_kafka_sink.protocol.apis.transactions import (
    AddOffsetsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    TransactionState,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

T = TypeVar("T")


class Failure(NamedTuple):
    """The error and the version of the response. `message` is used if the response has a field for it."""

    code: int
    message: str | None
    version: int


ErrorResponse: TypeAlias = Callable[[Any, Failure], Message | None]
"""Builds the response from the request's body and the failure. None: no response, the connection is closed."""


def error_response(api: AnyApi, version: int, body: Message, code: ErrorCode, message: str | None) -> Message | None:
    """Returns the error response, or None if the API cannot report an error and the connection must be closed."""
    make = ERROR_RESPONSES.get(api.key)
    return None if make is None else make(body, Failure(int(code), message, version))


def _by_partition(
    body: Any, topic_class: Callable[[str, Any], T], partition_class: Callable[[int, int], Any], failure: Failure
) -> tuple[T, ...]:
    return tuple(
        topic_class(topic.name, tuple(partition_class(each.partition_index, failure.code) for each in topic.partitions))
        for topic in body.topics
    )


def _by_resource(resources: Any, resource_class: Callable[[int, str | None, int, str], T], failure: Failure) -> tuple[T, ...]:
    return tuple(
        resource_class(failure.code, failure.message, resource.resource_type, resource.resource_name) for resource in resources
    )


# Records


def _produce(body: Any, failure: Failure) -> Message | None:
    if body.acks == 0:  # the client expects no response; a closed connection is all that the producer can notice
        return None
    return ProduceResponse(
        tuple(
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                tuple(
                    PartitionProduceResponse(partition.index, failure.code, -1, error_message=failure.message)
                    for partition in topic.partition_data
                ),
            )
            for topic in body.topic_data
        )
    )


def _fetch(body: Any, failure: Failure) -> Message:
    # From v13 the top-level error is enough; older clients look at the partitions.
    topics = () if failure.version >= 13 else body.topics
    responses = tuple(
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            tuple(PartitionData(partition.partition, failure.code, -1, records=()) for partition in topic.partitions),
        )
        for topic in topics
    )
    return FetchResponse(error_code=failure.code, session_id=body.session_id, responses=responses)


def _list_offsets(body: Any, failure: Failure) -> Message:
    return ListOffsetsResponse(topics=_by_partition(body, ListOffsetsTopicResponse, ListOffsetsPartitionResponse, failure))


def _offset_for_leader_epoch(body: Any, failure: Failure) -> Message:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic.topic, tuple(EpochEndOffset(failure.code, partition.partition) for partition in topic.partitions)
            )
            for topic in body.topics
        )
    )


def _delete_records(body: Any, failure: Failure) -> Message:
    def of_partition(index: int, code: int) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(index, -1, code)

    return DeleteRecordsResponse(topics=_by_partition(body, DeleteRecordsTopicResult, of_partition, failure))


def _describe_producers(body: Any, failure: Failure) -> Message:
    return transactions.DescribeProducersResponse(
        topics=tuple(
            transactions.TopicResponse(
                topic.name,
                tuple(transactions.PartitionResponse(index, failure.code) for index in topic.partition_indexes),
            )
            for topic in body.topics
        )
    )


# Cluster


def _describe_user_scram_credentials(body: Any, failure: Failure) -> Message:
    results = tuple(DescribeUserScramCredentialsResult(user.name, failure.code, failure.message) for user in body.users or ())
    return DescribeUserScramCredentialsResponse(0, failure.code, failure.message, results)


def _alter_user_scram_credentials(body: Any, failure: Failure) -> Message:
    users = sorted({each.name for each in (*body.deletions, *body.upsertions)})
    results = tuple(AlterUserScramCredentialsResult(user, failure.code, failure.message) for user in users)
    return AlterUserScramCredentialsResponse(results=results)


def _api_versions(body: Any, failure: Failure) -> Message:
    # An unknown version gets the supported versions of ApiVersions itself (KIP-511).
    known = ApiVersion(API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    return ApiVersionsResponse(failure.code, (known,) if failure.code == ErrorCode.UNSUPPORTED_VERSION else ())


def _metadata(body: Any, failure: Failure) -> Message:
    topics = tuple(MetadataResponseTopic(failure.code, topic.name or "", topic.topic_id) for topic in body.topics or ())
    return MetadataResponse(topics=topics, error_code=failure.code)


def _create_topics(body: Any, failure: Failure) -> Message:
    return CreateTopicsResponse(
        topics=tuple(
            CreatableTopicResult(topic.name, error_code=failure.code, error_message=failure.message) for topic in body.topics
        )
    )


def _delete_topics(body: Any, failure: Failure) -> Message:
    asked = body.topics if failure.version >= 6 else [DeleteTopicState(name) for name in body.topic_names]
    return DeleteTopicsResponse(
        responses=tuple(DeletableTopicResult(topic.name, topic.topic_id, failure.code, failure.message) for topic in asked)
    )


def _create_partitions(body: Any, failure: Failure) -> Message:
    return CreatePartitionsResponse(
        results=tuple(CreatePartitionsTopicResult(topic.name, failure.code, failure.message) for topic in body.topics)
    )


def _alter_configs(body: Any, failure: Failure) -> Message:
    responses = _by_resource(body.resources, alter_configs.AlterConfigsResourceResponse, failure)
    return alter_configs.AlterConfigsResponse(responses=responses)


def _incremental_alter_configs(body: Any, failure: Failure) -> Message:
    responses = _by_resource(body.resources, configs.AlterConfigsResourceResponse, failure)
    return configs.IncrementalAlterConfigsResponse(responses=responses)


# Groups


def _find_coordinator(body: Any, failure: Failure) -> Message:
    if failure.version < 4:
        return FindCoordinatorResponse(error_code=failure.code, error_message=failure.message, node_id=-1, port=-1)
    coordinators = tuple(Coordinator(key, -1, "", -1, failure.code, failure.message) for key in body.coordinator_keys)
    return FindCoordinatorResponse(coordinators=coordinators)


def _offset_commit(body: Any, failure: Failure) -> Message:
    return OffsetCommitResponse(topics=_by_partition(body, OffsetCommitResponseTopic, OffsetCommitResponsePartition, failure))


def _offset_fetch(body: Any, failure: Failure) -> Message:
    if failure.version >= 8:
        groups = tuple(OffsetFetchResponseGroup(group.group_id, error_code=failure.code) for group in body.groups)
        return OffsetFetchResponse(groups=groups)
    # v1 has no top-level error.
    topics = (body.topics or ()) if failure.version < 2 else ()
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                topic.name,
                tuple(OffsetFetchResponsePartition(index, -1, error_code=failure.code) for index in topic.partition_indexes),
            )
            for topic in topics
        ),
        error_code=failure.code,
    )


def _describe_groups(body: Any, failure: Failure) -> Message:
    return DescribeGroupsResponse(
        groups=tuple(
            DescribedGroup(failure.code, failure.message if failure.version >= 6 else None, group_id) for group_id in body.groups
        )
    )


# Transactions


def _add_partitions_to_txn(body: Any, failure: Failure) -> Message:
    if failure.version >= 4:
        return transactions.AddPartitionsToTxnResponse(error_code=failure.code)
    return transactions.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            transactions.AddPartitionsToTxnTopicResult(
                topic.name,
                tuple(transactions.AddPartitionsToTxnPartitionResult(index, failure.code) for index in topic.partitions),
            )
            for topic in body.v3_and_below_topics
        )
    )


def _txn_offset_commit(body: Any, failure: Failure) -> Message:
    topics = _by_partition(body, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition, failure)
    return TxnOffsetCommitResponse(topics=topics)


def _describe_transactions(body: Any, failure: Failure) -> Message:
    return DescribeTransactionsResponse(
        transaction_states=tuple(TransactionState(failure.code, txn_id, "", 0, 0, 0, 0) for txn_id in body.transactional_ids)
    )


def _top_level_error_code(response: Callable[..., Message]) -> ErrorResponse:
    return lambda body, failure: response(error_code=failure.code)


ERROR_RESPONSES: Final[Mapping[ApiKey, ErrorResponse]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    # Older versions have no field for it (KAFKA-12158), so they list no folder.
    ApiKey.DESCRIBE_LOG_DIRS: _top_level_error_code(DescribeLogDirsResponse),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.METADATA: _metadata,
    ApiKey.DESCRIBE_CLUSTER: lambda body, failure: DescribeClusterResponse(
        error_code=failure.code, error_message=failure.message
    ),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DESCRIBE_ACLS: lambda body, failure: DescribeAclsResponse(error_code=failure.code, error_message=failure.message),
    ApiKey.CREATE_ACLS: lambda body, failure: CreateAclsResponse(
        results=tuple(AclCreationResult(failure.code, failure.message) for _ in body.creations)
    ),
    ApiKey.DELETE_ACLS: lambda body, failure: DeleteAclsResponse(
        filter_results=tuple(DeleteAclsFilterResult(failure.code, failure.message) for _ in body.filters)
    ),
    ApiKey.DESCRIBE_CONFIGS: lambda body, failure: DescribeConfigsResponse(
        results=_by_resource(body.resources, DescribeConfigsResult, failure)
    ),
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: lambda body, failure: JoinGroupResponse(
        error_code=failure.code, protocol_name=None if failure.version >= 7 else ""
    ),
    ApiKey.SYNC_GROUP: _top_level_error_code(SyncGroupResponse),
    ApiKey.HEARTBEAT: _top_level_error_code(HeartbeatResponse),
    ApiKey.LEAVE_GROUP: _top_level_error_code(LeaveGroupResponse),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _top_level_error_code(OffsetDeleteResponse),
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _top_level_error_code(ListGroupsResponse),
    ApiKey.DELETE_GROUPS: lambda body, failure: DeleteGroupsResponse(
        results=tuple(DeletableGroupResult(group_id, failure.code) for group_id in body.groups_names)
    ),
    ApiKey.INIT_PRODUCER_ID: lambda body, failure: InitProducerIdResponse(
        error_code=failure.code, producer_id=-1, producer_epoch=-1
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _top_level_error_code(AddOffsetsToTxnResponse),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.END_TXN: _top_level_error_code(EndTxnResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _top_level_error_code(ListTransactionsResponse),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _top_level_error_code(GetTelemetrySubscriptionsResponse),
    ApiKey.PUSH_TELEMETRY: _top_level_error_code(PushTelemetryResponse),
    ApiKey.SASL_HANDSHAKE: _top_level_error_code(SaslHandshakeResponse),
    ApiKey.SASL_AUTHENTICATE: lambda body, failure: SaslAuthenticateResponse(failure.code, failure.message),
}
