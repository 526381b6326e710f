"""The error response of each API: one error for everything in the request (Java's `AbstractRequest.getErrorResponse`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis import (
    cluster,
    configs,
    fetch,
    find_coordinator,
    group_offsets,
    groups,
    list_transactions,
    metadata,
    partition_offsets,
    produce,
    sasl,
    telemetry,
    topics,
    transactions,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message


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
    response: Callable[..., Message], topic_class: Callable[[str, Any], object], partition_class: Callable[[int, int], object]
) -> ErrorResponse:
    def failed(topic: Any, code: int) -> object:
        return topic_class(topic.name, tuple(partition_class(each.partition_index, code) for each in topic.partitions))

    return lambda body, failure: response(topics=tuple(failed(topic, failure.code) for topic in body.topics))


def _by_resource(
    response: Callable[..., Message], field: str, resource_class: Callable[[int, str | None, int, str], object]
) -> ErrorResponse:
    def failed(body: Any, failure: Failure) -> Message:
        said = failure.code, failure.message
        results = (resource_class(*said, resource.resource_type, resource.resource_name) for resource in body.resources)
        return response(**{field: tuple(results)})

    return failed


# Records


def _produce(body: Any, failure: Failure) -> Message | None:
    if body.acks == 0:  # the client expects no response; a closed connection is all that the producer can notice
        return None

    def of_topic(topic: Any) -> produce.TopicProduceResponse:
        code, text = failure.code, failure.message
        failed = (produce.PartitionProduceResponse(each.index, code, -1, error_message=text) for each in topic.partition_data)
        return produce.TopicProduceResponse(topic.name, topic.topic_id, tuple(failed))

    return produce.ProduceResponse(tuple(map(of_topic, body.topic_data)))


def _fetch(body: Any, failure: Failure) -> Message:
    # From v13 the top-level error is enough; older clients look at the partitions.
    responses = () if failure.version >= 13 else failed_fetch(body, failure.code)
    return fetch.FetchResponse(error_code=failure.code, session_id=body.session_id, responses=responses)


def failed_fetch(body: Any, code: int) -> tuple[fetch.FetchableTopicResponse, ...]:
    """Returns the topics of a Fetch, where each partition has the error."""

    def of_topic(topic: Any) -> fetch.FetchableTopicResponse:
        failed = (fetch.PartitionData(each.partition, code, -1, records=()) for each in topic.partitions)
        return fetch.FetchableTopicResponse(topic.topic, topic.topic_id, tuple(failed))

    return tuple(map(of_topic, body.topics))


def _offset_for_leader_epoch(body: Any, failure: Failure) -> Message:
    def of_topic(topic: Any) -> partition_offsets.OffsetForLeaderTopicResult:
        failed = (partition_offsets.EpochEndOffset(failure.code, each.partition) for each in topic.partitions)
        return partition_offsets.OffsetForLeaderTopicResult(topic.topic, tuple(failed))

    return partition_offsets.OffsetForLeaderEpochResponse(topics=tuple(map(of_topic, body.topics)))


def _describe_producers(body: Any, failure: Failure) -> Message:
    def of_topic(topic: Any) -> transactions.TopicResponse:
        failed = (transactions.PartitionResponse(index, failure.code) for index in topic.partition_indexes)
        return transactions.TopicResponse(topic.name, tuple(failed))

    return transactions.DescribeProducersResponse(topics=tuple(map(of_topic, body.topics)))


# Cluster


def _describe_user_scram_credentials(body: Any, failure: Failure) -> Message:
    results = tuple(
        sasl.DescribeUserScramCredentialsResult(user.name, failure.code, failure.message) for user in body.users or ()
    )
    return sasl.DescribeUserScramCredentialsResponse(0, failure.code, failure.message, results)


def _alter_user_scram_credentials(body: Any, failure: Failure) -> Message:
    users = sorted({each.name for each in (*body.deletions, *body.upsertions)})
    results = tuple(sasl.AlterUserScramCredentialsResult(user, failure.code, failure.message) for user in users)
    return sasl.AlterUserScramCredentialsResponse(results=results)


def _api_versions(body: Any, failure: Failure) -> Message:
    # An unknown version gets the supported versions of ApiVersions itself (KIP-511).
    own = metadata.API_VERSIONS
    known = metadata.ApiVersion(own.key, own.min_version, own.max_version)
    return metadata.ApiVersionsResponse(failure.code, (known,) if failure.code == ErrorCode.UNSUPPORTED_VERSION else ())


def _metadata(body: Any, failure: Failure) -> Message:
    failed = tuple(metadata.MetadataResponseTopic(failure.code, topic.name or "", topic.topic_id) for topic in body.topics or ())
    return metadata.MetadataResponse(topics=failed, error_code=failure.code)


def _delete_topics(body: Any, failure: Failure) -> Message:
    asked = body.topics if failure.version >= 6 else [topics.DeleteTopicState(name) for name in body.topic_names]
    return topics.DeleteTopicsResponse(
        responses=tuple(topics.DeletableTopicResult(topic.name, topic.topic_id, failure.code, failure.message) for topic in asked)
    )


# Groups


def _find_coordinator(body: Any, failure: Failure) -> Message:
    if failure.version < 4:
        return find_coordinator.FindCoordinatorResponse(
            error_code=failure.code, error_message=failure.message, node_id=-1, port=-1
        )
    coordinators = tuple(
        find_coordinator.Coordinator(key, -1, "", -1, failure.code, failure.message) for key in body.coordinator_keys
    )
    return find_coordinator.FindCoordinatorResponse(coordinators=coordinators)


def _offset_fetch(body: Any, failure: Failure) -> Message:
    if failure.version >= 8:
        every = tuple(group_offsets.OffsetFetchResponseGroup(group.group_id, error_code=failure.code) for group in body.groups)
        return group_offsets.OffsetFetchResponse(groups=every)

    def of_topic(topic: Any) -> group_offsets.OffsetFetchResponseTopic:
        code = failure.code
        failed = (group_offsets.OffsetFetchResponsePartition(index, -1, error_code=code) for index in topic.partition_indexes)
        return group_offsets.OffsetFetchResponseTopic(topic.name, tuple(failed))

    # v1 has no top-level error.
    asked = (body.topics or ()) if failure.version < 2 else ()
    return group_offsets.OffsetFetchResponse(topics=tuple(map(of_topic, asked)), error_code=failure.code)


def _describe_groups(body: Any, failure: Failure) -> Message:
    return groups.DescribeGroupsResponse(
        groups=tuple(
            groups.DescribedGroup(failure.code, failure.message if failure.version >= 6 else None, group_id)
            for group_id in body.groups
        )
    )


# Transactions


def _add_partitions_to_txn(body: Any, failure: Failure) -> Message:
    if failure.version >= 4:
        return transactions.AddPartitionsToTxnResponse(error_code=failure.code)

    def of_topic(topic: Any) -> transactions.AddPartitionsToTxnTopicResult:
        failed = (transactions.AddPartitionsToTxnPartitionResult(index, failure.code) for index in topic.partitions)
        return transactions.AddPartitionsToTxnTopicResult(topic.name, tuple(failed))

    topics = tuple(map(of_topic, body.v3_and_below_topics))
    return transactions.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _top_level_error_code(response: Callable[..., Message]) -> ErrorResponse:
    return lambda body, failure: response(error_code=failure.code)


ERROR_RESPONSES: Final[Mapping[ApiKey, ErrorResponse]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _by_partition(
        partition_offsets.ListOffsetsResponse,
        partition_offsets.ListOffsetsTopicResponse,
        partition_offsets.ListOffsetsPartitionResponse,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: _by_partition(
        topics.DeleteRecordsResponse,
        topics.DeleteRecordsTopicResult,
        lambda index, code: topics.DeleteRecordsPartitionResult(index, -1, code),
    ),
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    # Older versions have no field for it (KAFKA-12158), so they list no folder.
    ApiKey.DESCRIBE_LOG_DIRS: _top_level_error_code(cluster.DescribeLogDirsResponse),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.METADATA: _metadata,
    ApiKey.DESCRIBE_CLUSTER: lambda body, failure: cluster.DescribeClusterResponse(
        error_code=failure.code, error_message=failure.message
    ),
    ApiKey.CREATE_TOPICS: lambda body, failure: topics.CreateTopicsResponse(
        topics=tuple(
            topics.CreatableTopicResult(topic.name, error_code=failure.code, error_message=failure.message)
            for topic in body.topics
        )
    ),
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: lambda body, failure: topics.CreatePartitionsResponse(
        results=tuple(topics.CreatePartitionsTopicResult(topic.name, failure.code, failure.message) for topic in body.topics)
    ),
    ApiKey.DESCRIBE_ACLS: lambda body, failure: cluster.DescribeAclsResponse(
        error_code=failure.code, error_message=failure.message
    ),
    ApiKey.CREATE_ACLS: lambda body, failure: cluster.CreateAclsResponse(
        results=tuple(cluster.AclCreationResult(failure.code, failure.message) for _ in body.creations)
    ),
    ApiKey.DELETE_ACLS: lambda body, failure: cluster.DeleteAclsResponse(
        filter_results=tuple(cluster.DeleteAclsFilterResult(failure.code, failure.message) for _ in body.filters)
    ),
    ApiKey.DESCRIBE_CONFIGS: _by_resource(configs.DescribeConfigsResponse, "results", configs.DescribeConfigsResult),
    ApiKey.ALTER_CONFIGS: _by_resource(cluster.AlterConfigsResponse, "responses", cluster.AlterConfigsResourceResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _by_resource(
        configs.IncrementalAlterConfigsResponse, "responses", configs.AlterConfigsResourceResponse
    ),
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: lambda body, failure: groups.JoinGroupResponse(
        error_code=failure.code, protocol_name=None if failure.version >= 7 else ""
    ),
    ApiKey.SYNC_GROUP: _top_level_error_code(groups.SyncGroupResponse),
    ApiKey.HEARTBEAT: _top_level_error_code(groups.HeartbeatResponse),
    ApiKey.LEAVE_GROUP: _top_level_error_code(groups.LeaveGroupResponse),
    ApiKey.OFFSET_COMMIT: _by_partition(
        group_offsets.OffsetCommitResponse,
        group_offsets.OffsetCommitResponseTopic,
        group_offsets.OffsetCommitResponsePartition,
    ),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _top_level_error_code(group_offsets.OffsetDeleteResponse),
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _top_level_error_code(groups.ListGroupsResponse),
    ApiKey.DELETE_GROUPS: lambda body, failure: groups.DeleteGroupsResponse(
        results=tuple(groups.DeletableGroupResult(group_id, failure.code) for group_id in body.groups_names)
    ),
    ApiKey.INIT_PRODUCER_ID: lambda body, failure: produce.InitProducerIdResponse(
        error_code=failure.code, producer_id=-1, producer_epoch=-1
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _top_level_error_code(transactions.AddOffsetsToTxnResponse),
    ApiKey.TXN_OFFSET_COMMIT: _by_partition(
        transactions.TxnOffsetCommitResponse,
        transactions.TxnOffsetCommitResponseTopic,
        transactions.TxnOffsetCommitResponsePartition,
    ),
    ApiKey.END_TXN: _top_level_error_code(transactions.EndTxnResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda body, failure: transactions.DescribeTransactionsResponse(
        transaction_states=tuple(
            transactions.TransactionState(failure.code, txn_id, "", 0, 0, 0, 0) for txn_id in body.transactional_ids
        )
    ),
    ApiKey.LIST_TRANSACTIONS: _top_level_error_code(list_transactions.ListTransactionsResponse),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _top_level_error_code(telemetry.GetTelemetrySubscriptionsResponse),
    ApiKey.PUSH_TELEMETRY: _top_level_error_code(telemetry.PushTelemetryResponse),
    ApiKey.SASL_HANDSHAKE: _top_level_error_code(sasl.SaslHandshakeResponse),
    ApiKey.SASL_AUTHENTICATE: lambda body, failure: sasl.SaslAuthenticateResponse(failure.code, failure.message),
}
