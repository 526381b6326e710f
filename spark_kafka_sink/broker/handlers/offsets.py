"""Handlers for offsets of consumer groups: commit, with or without a transaction, fetch and delete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.group.committed_offsets import Codes, Committer, Offsets, TransactionalProducer
from spark_kafka_sink.broker.group.group_log import NO_EXPIRY, OffsetAndMetadata, client_code
from spark_kafka_sink.broker.handlers.common import check_right, deferred_response, is_allowed
from spark_kafka_sink.broker.handlers.groups import check_coordinator, check_group, offsets_partition
from spark_kafka_sink.broker.log.log_types import NO_SEQUENCE, TopicPartition
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import (
    Failures,
    Guards,
    TransactionSupportedOperation,
    operation_of,
)
from spark_kafka_sink.protocol.apis import group_offsets as api
from spark_kafka_sink.protocol.apis.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

T = TypeVar("T")

_CommittedTopics: TypeAlias = Sequence[api.OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]


def _offsets_of(topics: _CommittedTopics, now_ms: int, expire_timestamp_ms: int = NO_EXPIRY) -> Offsets:
    return {
        TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms,
            expire_timestamp_ms,
        )
        for topic in topics
        for partition in topic.partitions
    }


def _refused_topics(
    services: BrokerServices, request: Request, operation: AclOperation, topics: Iterable[str], *, logged: bool = True
) -> frozenset[str]:
    if services.authorizer is None:
        return frozenset()
    return frozenset(
        topic for topic in set(topics) if not is_allowed(services, request, operation, ResourceType.TOPIC, topic, logged=logged)
    )


def _without(offsets: Offsets, refused: Collection[str]) -> tuple[Offsets, Codes]:
    """Returns the offsets of other topics, and the codes of those that are refused."""
    if not refused:
        return offsets, {}
    kept = {one: offset for one, offset in offsets.items() if one.topic not in refused}
    return kept, dict.fromkeys((one for one in offsets if one.topic in refused), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _existing(image: MetadataImage, offsets: Offsets) -> Offsets:
    return {one: offset for one, offset in offsets.items() if image.partition(*one) is not None}


def _committed(services: BrokerServices, offsets: Offsets, commit: Callable[[Offsets], Codes]) -> Codes:
    """Commits the offsets of partitions that exist. Returns a code for each of them."""
    known = _existing(services.cluster.image, offsets)
    try:
        return commit(known) if known else {}
    except ApiException as error:
        return dict.fromkeys(known, error.code)


def _by_topic(
    topics: Any, codes: Codes, topic_class: Callable[[str, Any], T], partition_class: Callable[[int, ErrorCode], Any]
) -> tuple[T, ...]:
    """Returns a response's topics in the order of the request. A partition without a code does not exist."""

    def of_partition(topic: str, index: int) -> Any:
        return partition_class(index, codes.get(TopicPartition(topic, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    return tuple(
        topic_class(topic.name, tuple(of_partition(topic.name, each.partition_index) for each in topic.partitions))
        for topic in topics
    )


_DEFAULT_RETENTION: Final = -1


def handle_offset_commit(services: BrokerServices, request: Request) -> api.OffsetCommitResponse:
    body: api.OffsetCommitRequest = request.body
    check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    refused = _refused_topics(services, request, AclOperation.READ, (topic.name for topic in body.topics))
    by = Committer(body.group_id, body.generation_id_or_member_epoch, body.member_id, body.group_instance_id)

    def commit(offsets: Offsets) -> Codes:
        check_coordinator(services, body.group_id)
        return services.group_coordinator.commit_offsets(by, offsets, request.version)

    now_ms = services.wall_ms()
    keep_ms = body.retention_time_ms
    given = _offsets_of(body.topics, now_ms, NO_EXPIRY if keep_ms == _DEFAULT_RETENTION else now_ms + keep_ms)
    offsets, unauthorized = _without(given, refused)
    codes = {**_committed(services, offsets, commit), **unauthorized}
    topics = _by_topic(body.topics, codes, api.OffsetCommitResponseTopic, api.OffsetCommitResponsePartition)
    return api.OffsetCommitResponse(topics=topics)


def handle_txn_offset_commit(services: BrokerServices, request: Request) -> TxnOffsetCommitResponse | None:
    """Stores offsets that take effect when the producer's transaction commits.

    The transaction's coordinator must know the group's partition first. From v5 on it adds the partition itself (KIP-890).
    """
    body: TxnOffsetCommitRequest = request.body
    check_right(services, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    unreadable = _refused_topics(services, request, AclOperation.READ, (topic.name for topic in body.topics))
    offsets, unauthorized = _without(_offsets_of(body.topics, services.wall_ms()), unreadable)
    if not _existing(services.cluster.image, offsets):
        return _txn_response(body, unauthorized)
    operation = operation_of(request.version, generic_since=4)
    guards: dict[tuple[str, int], VerificationGuard] = {}

    def begin() -> Guards:
        guards.clear()
        partition = offsets_partition(services, body.group_id)
        guard = services.replica_manager.led(*partition).log.maybe_start_transaction_verification(
            body.producer_id,
            NO_SEQUENCE,
            body.producer_epoch,
            supports_epoch_bump=operation is TransactionSupportedOperation.ADD_PARTITION,
        )
        if guard is not None:  # otherwise the transaction already has offsets in this partition
            guards[partition] = guard
        return dict(guards)

    def commit(known: Offsets) -> Codes:
        by = Committer(body.group_id, body.generation_id, body.member_id, body.group_instance_id)
        producer = TransactionalProducer(body.producer_id, body.producer_epoch, next(iter(guards.values()), None))
        return services.group_coordinator.commit_transactional_offsets(by, producer, known)

    def refused(code: ErrorCode) -> TxnOffsetCommitResponse:
        existing = _existing(services.cluster.image, offsets)
        return _txn_response(body, {**dict.fromkeys(existing, client_code(code)), **unauthorized})

    def go_on(failures: Failures) -> None:
        with deferred_response(request):
            if failures:
                request.answer(refused(next(iter(failures.values()))))
            else:
                request.answer(_txn_response(body, {**_committed(services, offsets, commit), **unauthorized}))

    try:
        check_group(services, body.group_id)
        services.add_partitions_to_txn_manager.add_or_verify_with_patience(
            body.transactional_id, body.producer_id, body.producer_epoch, begin, operation, go_on
        )
    except ApiException as error:
        return refused(error.code)
    return None


def _txn_response(body: TxnOffsetCommitRequest, codes: Codes) -> TxnOffsetCommitResponse:
    topics = _by_topic(body.topics, codes, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
    return TxnOffsetCommitResponse(topics=topics)


_FIRST_WITH_SEVERAL_GROUPS: Final = 8

_FetchedTopics: TypeAlias = Sequence[api.OffsetFetchRequestTopic] | Sequence[api.OffsetFetchRequestTopics] | None
"""The requested partitions; None: all that the group has an offset for."""

_Fetched: TypeAlias = Mapping[str, list[tuple[int, int, int, str, ErrorCode]]]
"""Results by topic: partition, offset, leader epoch, metadata, error code."""


def handle_offset_fetch(services: BrokerServices, request: Request) -> api.OffsetFetchResponse:
    """Returns offsets, from v8 on for several groups at once (KIP-709)."""
    body: api.OffsetFetchRequest = request.body
    if request.version >= _FIRST_WITH_SEVERAL_GROUPS:
        return api.OffsetFetchResponse(groups=tuple(_group(services, request, group) for group in body.groups))
    fetched = _fetched(services, request, body.group_id, body.topics)
    return api.OffsetFetchResponse(
        topics=tuple(
            api.OffsetFetchResponseTopic(topic, tuple(api.OffsetFetchResponsePartition(*fields) for fields in partitions))
            for topic, partitions in fetched.items()
        )
    )


def _group(services: BrokerServices, request: Request, group: api.OffsetFetchRequestGroup) -> api.OffsetFetchResponseGroup:
    try:
        fetched = _fetched(services, request, group.group_id, group.topics)
    except ApiException as error:
        return api.OffsetFetchResponseGroup(group.group_id, error_code=error.code)
    topics = tuple(
        api.OffsetFetchResponseTopics(topic, tuple(api.OffsetFetchResponsePartitions(*fields) for fields in partitions))
        for topic, partitions in fetched.items()
    )
    return api.OffsetFetchResponseGroup(group.group_id, topics)


def _fetched(services: BrokerServices, request: Request, group_id: str, topics: _FetchedTopics) -> _Fetched:
    describe = AclOperation.DESCRIBE
    check_right(services, request, describe, ResourceType.GROUP, group_id)
    check_coordinator(services, group_id)
    asked = None if topics is None else [TopicPartition(topic.name, one) for topic in topics for one in topic.partition_indexes]
    refused = _refused_topics(services, request, describe, (one.topic for one in asked or ()))
    wanted = None if asked is None else [one for one in asked if one.topic not in refused]
    fetched = services.group_coordinator.fetch_offsets(group_id, wanted, require_stable=request.body.require_stable)
    if asked is None:
        # Topics that the client may not see are omitted.
        hidden = _refused_topics(services, request, describe, (one.topic for one in fetched), logged=False)
        fetched = {one: found for one, found in fetched.items() if one.topic not in hidden}
    by_topic: dict[str, list[tuple[int, int, int, str, ErrorCode]]] = {topic.name: [] for topic in topics or ()}
    for one, found in fetched.items():
        offset = found.offset
        fields = one.partition, offset.offset, offset.leader_epoch, offset.metadata, found.error_code
        by_topic.setdefault(one.topic, []).append(fields)
    for one in asked or ():
        if one.topic in refused:
            by_topic[one.topic].append((one.partition, -1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return by_topic


def handle_offset_delete(services: BrokerServices, request: Request) -> api.OffsetDeleteResponse:
    """Deletes a group's offsets of some partitions (KIP-496)."""
    body: api.OffsetDeleteRequest = request.body
    check_right(services, request, AclOperation.DELETE, ResourceType.GROUP, body.group_id)
    refused = _refused_topics(services, request, AclOperation.READ, (topic.name for topic in body.topics))
    check_group(services, body.group_id)
    asked = [TopicPartition(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
    allowed = [one for one in asked if one.topic not in refused]
    existing = [one for one in allowed if services.cluster.image.partition(*one) is not None]
    codes: Codes = {
        **services.group_coordinator.delete_offsets(body.group_id, existing),
        **dict.fromkeys((one for one in asked if one.topic in refused), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
    topics = _by_topic(body.topics, codes, api.OffsetDeleteResponseTopic, api.OffsetDeleteResponsePartition)
    return api.OffsetDeleteResponse(topics=topics)
