"""Creates and describes topics through a ClusterClient."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest, only_one
from spark_kafka_sink.errors import BrokerError, UnsupportedVersionError
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.protocol.api import MEGABYTE, ApiKey
from spark_kafka_sink.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from spark_kafka_sink.protocol.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.apis.partition_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTimestamp,
    ListOffsetsTopic,
)
from spark_kafka_sink.protocol.apis.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import ZERO_UUID

BROKER_DEFAULT: Final = -1
"""Number of partitions or replicas by which brokers apply their default (KIP-464, since Kafka 2.4)."""

TOPIC: Final = 2
BROKER: Final = 4
"""Types of resources that have configs (ConfigResource.Type)."""

RETENTION: Final = "retention.ms"
_TIME_LIMITS: Final = (
    RETENTION,
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",  # before Kafka 3.6
)
_NO_LIMIT: Final = 2**63 - 1

_AT_ONCE: Final = 1000
_CREATE_TIMEOUT_MS: Final = 10_000
_SHOWS_RIGHTS_SINCE: Final = 8
_BACKOFF: Final = ExponentialBackoff(50, 500)


def new_topic(
    name: str,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> CreatableTopic:
    """Returns the argument of `create_topic`. configs: topic configs by Kafka's names."""
    given = [CreatableTopicConfig(name=config, value=value) for config, value in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor, configs=given)


def create_topic(
    client: ClusterClient, topic: CreatableTopic, deadline: float, *, validate_only: bool = False
) -> CreatableTopicResult:
    """Creates a topic, and retries transient errors. Returns the controller's result with any other error code.

    Args:
        client: of the cluster.
        topic: the new topic.
        deadline: on time.monotonic's clock.
        validate_only: whether the controller only checks the request.
    """
    waiter = ResponseWaiter(deadline, _BACKOFF)
    while True:
        with waiter.told_as_well():
            result = ask_to_create(client, topic, deadline, validate_only=validate_only)
        if not error_facts(result.error_code).retriable:
            return result
        waiter.note(f"CreateTopics of {topic.name}", error_facts(result.error_code).name)
        waiter.again()


def ask_to_create(
    client: ClusterClient, topic: CreatableTopic, deadline: float, *, validate_only: bool = False
) -> CreatableTopicResult:
    """Asks the controller once to create a topic. Returns its result with any error code."""
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_CREATE_TIMEOUT_MS, validate_only=validate_only)
    try:
        return _result(client.ask_controller(CREATE_TOPICS, request, lambda answer: _result(answer).error_code, deadline))
    except UnsupportedVersionError as error:
        text = f"topic {topic.name!r} was not created: {error.message}; create it with the tools of the service"
        raise UnsupportedVersionError(text, **error.facts, topic=topic.name) from error


def _result(answer: CreateTopicsResponse) -> CreatableTopicResult:
    return only_one(answer.topics, CREATE_TOPICS.key, "topic")


def creation_error(client: ClusterClient, result: CreatableTopicResult) -> BrokerError:
    """Returns the error of a topic that was not created."""
    text = f"topic {result.name!r} was not created: the controller answered {error_facts(result.error_code).name}"
    if result.error_message and result.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text = f"{text}: {quoted(result.error_message)}"
    return client.rights.error(text, ApiKey.CREATE_TOPICS, result.error_code, result.name, topic=result.name)


def wait_for_leaders(client: ClusterClient, name: str, deadline: float) -> int:
    """Waits until each partition of a new topic has a leader. Returns the number of partitions."""
    waiter = ResponseWaiter(deadline, _BACKOFF)
    while True:
        with waiter.told_as_well():
            partitions, code = client.topic(name, deadline)
        if partitions and len(client.known().available_partitions(name)) == partitions:
            return partitions
        if code and not error_facts(code).retriable:
            raise metadata_error(client, name, code)
        waiter.note(f"topic {name}", error_facts(code).name if code else "not every partition has a leader yet")
        waiter.again()


def metadata_error(client: ClusterClient, name: str, code: int, *, grants: str | None = None) -> BrokerError:
    """Returns the error of a topic that cannot be described. grants: as for `Rights.denied`; None: those of a producer."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return BrokerError(f"topic {name!r} does not exist", topic=name, error_code=int(code), error=error_facts(code).name)
    text = f"topic {name!r}: the broker answered {error_facts(code).name}"
    return client.rights.error(text, ApiKey.METADATA, code, name, grants=grants, topic=name)


_WHOLE_METADATA: Final = replace(METADATA, max_response_bytes=100 * MEGABYTE)
"""Nobody knows how large a cluster is. Only people ask for all its topics, through a command or a check."""


def topics_metadata(
    client: ClusterClient, names: Sequence[str] | None, deadline: float, node_id: int | None = None
) -> MetadataResponse:
    """Returns brokers and topics, with the client's rights on each topic if brokers report them (Kafka 2.3). Creates no topic.

    Args:
        client: of the cluster.
        names: of the topics; None for all.
        deadline: on time.monotonic's clock.
        node_id: the broker to ask; None for any.
    """
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]

    def body(version: int) -> MetadataRequest:
        return MetadataRequest(
            topics, allow_auto_topic_creation=False, include_topic_authorized_operations=version >= _SHOWS_RIGHTS_SINCE
        )

    return client.ask(node_id, METADATA if names is not None else _WHOLE_METADATA, body, deadline)


def topic_metadata(client: ClusterClient, name: str, deadline: float, node_id: int | None = None) -> MetadataResponseTopic:
    """Returns the metadata of one topic, as `topics_metadata` does."""
    return only_one(topics_metadata(client, [name], deadline, node_id).topics, METADATA.key, "topic")


def replaced(topic_ids: Iterable[tuple[str, uuid.UUID]], answer: MetadataResponse) -> frozenset[str]:
    """Returns the topics that do not have each id given for them: they were deleted, and perhaps created again.

    A response without an id, such as for want of the right to describe the topic, proves nothing.
    """
    found = {
        each.name: None if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else each.topic_id for each in answer.topics
    }
    return frozenset(topic for topic, each in topic_ids if found.get(topic, ZERO_UUID) not in (ZERO_UUID, each))


def records_are_gone(topics: Collection[str]) -> str:
    """Returns the text about topics that were `replaced` before a transaction was committed."""
    return (
        "acknowledged records are gone with their topic, which was deleted before the commit, even if it was created again:"
        f" {', '.join(sorted(topics))}"
    )


def configs_of(
    client: ClusterClient, kind: int, name: str, deadline: float, *, node_id: int | None = None, only: Sequence[str] | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    """Returns configs by name. Raises AuthorizationError if the client may not read them.

    Args:
        client: of the cluster.
        kind: TOPIC or BROKER.
        name: of the topic, or the broker's id as text.
        deadline: on time.monotonic's clock.
        node_id: the broker to ask; None for any. A broker's own configs only that broker has.
        only: names of the configs; None for all.
    """
    result = only_one([*_configs(client, kind, [name], deadline, node_id, only)], DESCRIBE_CONFIGS.key, "resource")
    if not result.error_code:
        return {config.name: config for config in result.configs}
    text = f"configs of {_resource(kind, name)}: the broker answered {error_facts(result.error_code).name}"
    raise client.rights.error(text, ApiKey.DESCRIBE_CONFIGS, result.error_code, name)


def all_time_limits(client: ClusterClient, topics: Iterable[str], deadline: float) -> Iterator[tuple[str, dict[str, int]]]:
    """Yields each topic and its `time_limits`, as soon as it is known.

    A topic that the brokers do not describe, such as for want of the right to, is left out.
    """
    for result in _configs(client, TOPIC, topics, deadline, None, (*_TIME_LIMITS, "cleanup.policy", "message.timestamp.type")):
        if not result.error_code:
            yield result.resource_name, time_limits({each.name: each.value or "" for each in result.configs})


def ask_for_configs(
    client: ClusterClient, kind: int, name: str, deadline: float, *, only: Sequence[str] | None = None
) -> DescribeConfigsResult:
    """Asks a broker once for configs, with the arguments of `configs_of`. Returns its result with any error code."""
    return only_one(_ask_once(client, kind, [name], deadline, None, only), DESCRIBE_CONFIGS.key, "resource")


def _ask_once(
    client: ClusterClient, kind: int, names: Sequence[str], deadline: float, node_id: int | None, only: Sequence[str] | None
) -> Sequence[DescribeConfigsResult]:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, only) for name in names])
    return client.ask(node_id, DESCRIBE_CONFIGS, request, deadline).results


def _configs(
    client: ClusterClient, kind: int, names: Iterable[str], deadline: float, node_id: int | None, only: Sequence[str] | None
) -> Iterator[DescribeConfigsResult]:
    """Yields the result of each resource, as soon as it is known. Asks for many in one request, and retries transient errors."""
    waiter, left = ResponseWaiter(deadline, _BACKOFF), list(names)
    while left:
        asked, left = left[:_AT_ONCE], left[_AT_ONCE:]
        late = set[str]()
        for result in _ask_once(client, kind, asked, deadline, node_id, only):
            if (facts := error_facts(result.error_code)).retriable:
                late.add(result.resource_name)
                waiter.note(f"DescribeConfigs of {_resource(kind, result.resource_name)}", facts.name)
            else:
                yield result
        if again := [name for name in asked if name in late]:
            left += again
            waiter.again()


def _resource(kind: int, name: str) -> str:
    return f"topic {name!r}" if kind == TOPIC else f"broker {name}"


def time_limits(configs: Mapping[str, str]) -> dict[str, int]:
    """Returns a topic's limits of timestamps, in ms by config; none if brokers set the timestamps. configs: values by name."""
    if configs.get("message.timestamp.type") == "LogAppendTime":
        return {}
    limits = {name: int(configs[name]) for name in _TIME_LIMITS if configs.get(name, "").isdigit()}
    deletes = "delete" in configs.get("cleanup.policy", "delete")
    return {name: ms for name, ms in limits.items() if ms < _NO_LIMIT and (deletes or name != RETENTION)}


def time_limits_text(limits: Mapping[str, int]) -> str:
    """Returns what brokers do about old timestamps and others, in words."""
    named = [f"{name}={ms:,}" for name, ms in limits.items() if name != RETENTION]
    rejects = f"reject rows whose timestamp is outside {' and '.join(named)}" if named else ""
    deletes = ""
    if RETENTION in limits:
        ms = limits[RETENTION]
        deletes = f"delete rows soon whose timestamp is older than {RETENTION}={ms:,} ({ms / 86_400_000:,.3g} days)"
    return f"brokers {' and '.join(filter(None, (deletes, rejects)))}"


# Offsets

Offsets = Mapping[int, tuple[int, int]]


def offsets_of(client: ClusterClient, topic: MetadataResponseTopic, deadline: float, isolation_level: int = 0) -> Offsets:
    """Returns the first offset and the next offset by partition, without partitions that do not answer."""
    ends = (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.LATEST)
    by_leader: dict[int, list[int]] = {}
    for each in topic.partitions:
        if each.leader_id >= 0:
            by_leader.setdefault(each.leader_id, []).append(each.partition_index)
    asked = [(leader, stamp) for leader in by_leader for stamp in ends]
    requests = []
    for leader, stamp in asked:
        partitions = [ListOffsetsPartition(partition_index=number, timestamp=stamp) for number in by_leader[leader]]
        part = ListOffsetsTopic(name=topic.name or "", partitions=partitions)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[part])
        requests.append(ClusterRequest(leader, LIST_OFFSETS, request))
    found: dict[int, dict[int, int]] = {}
    for (_, stamp), answer in zip(asked, client.try_many(requests, deadline), strict=True):
        if isinstance(answer, ListOffsetsResponse):
            for said in only_one(answer.topics, LIST_OFFSETS.key, "topic").partitions:
                if not said.error_code:
                    found.setdefault(said.partition_index, {})[stamp] = said.offset
    return {number: (each[ends[0]], each[ends[1]]) for number, each in found.items() if len(each) == len(ends)}
