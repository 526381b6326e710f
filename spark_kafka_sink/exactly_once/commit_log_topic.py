"""The topic of the commit log: creates it at first use, checks that it is suitable, and notices that it was deleted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import only_one
from spark_kafka_sink.client.topics import TOPIC, ask_for_configs, ask_to_create, new_topic, topics_metadata
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import BrokerError, DeadlineError, KafkaSinkError, OptionError
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.configs import DESCRIBE_CONFIGS
from spark_kafka_sink.protocol.apis.metadata import METADATA, NO_AUTHORIZED_OPERATIONS, MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.apis.topics import CREATE_TOPICS, CreatableTopicResult
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.security.acls import COMMIT_LOG, RESOURCE_OF

logger = logging.getLogger(__name__)

_CLEANUP_POLICY: Final = "cleanup.policy"
_MIN_ISR: Final = "min.insync.replicas"
_DEFAULT_REPLICATION: Final = 3
_TRANSACTIONS: Final = "__transaction_state"
_MAY_WRITE: Final = 1 << 4  # AclOperation.WRITE, in the bits of a topic's authorized operations
HOW_TO_LOOK: Final = (
    "an open transaction hides committed rows, so wait until `spark-kafka-sink transactions list` shows none (`transactions abort"
    " --query ID` ends those of one query or job), and then read the topic"
)
"""What to do before rows count as not visible: read_committed consumers stop at the last stable offset."""
DELETED_AFTER_S: Final = 10.0
"""How long brokers must know no such topic. They learn of a new topic one after the other, within milliseconds."""

_CONFIGS: Final[Mapping[str, str]] = {
    _CLEANUP_POLICY: "compact",
    # Only closed segments are compacted; 1 MB is the minimum that Kafka 4 allows (KIP-1030).
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(10 * 60 * 1000),
    "max.message.bytes": str(1024 * 1024 + 12),
    "unclean.leader.election.enable": "false",  # losing a committed record would write a batch twice
}

_REFUSED_CONFIGS: Final = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST})
"""Responses of managed services whose customers may not set some of these configs."""


def ensure_topic(client: ClusterClient, settings: CommitLogSettings, deadline: float) -> None:
    """Creates the topic unless it exists, and checks it. Two processes may do so at once.

    Raises OptionError if the topic is not suitable or the brokers do not create it with these settings, and AuthorizationError
    with the ACL to add if the client lacks a right.
    """
    waiting = ResponseWaiter(deadline, BACKOFF)
    while True:
        with waiting.told_as_well():
            partitions, code = client.topic(settings.topic, deadline)
            waiting.note(f"topic {settings.topic}", error_facts(code).name if code else "it was created a moment ago")
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                _create(client, settings, waiting, deadline)
            elif code and not error_facts(code).retriable:
                raise _refused(client, settings, code, METADATA.key, None)
            elif partitions and _is_checked(client, settings, waiting, deadline):
                if partitions >= settings.partitions:
                    return
                # Checked last, because the advice is for a topic that is a commit log.
                raise OptionError(
                    f"option commit.log.partitions: topic {settings.topic} has {counted(partitions, 'partition')}, not"
                    f" {settings.partitions}: set it to {partitions} and do not change it later, or choose another"
                    " commit.log.topic",
                    option="commit.log.partitions",
                    topic=settings.topic,
                )
        # Otherwise it is just being created: brokers learn of it one after the other.
        waiting.again()


def check_may_write(client: ClusterClient, settings: CommitLogSettings, deadline: float) -> None:
    """Raises AuthorizationError if the brokers say that the client may not write to the topic.

    Creating and reading it shows the other rights. Brokers before Kafka 2.3 do not say which rights a client has.
    """
    (found,) = topics_metadata(client, [settings.topic], deadline).topics
    allowed = found.topic_authorized_operations
    if found.error_code or allowed == NO_AUTHORIZED_OPERATIONS or allowed & _MAY_WRITE:
        return
    text = f"the commit log, topic {settings.topic}: the client may not write to it"
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    raise client.rights.error(text, ApiKey.PRODUCE, code, settings.topic, grants=COMMIT_LOG, topic=settings.topic)


class CommitLogDeletedError(BrokerError):
    """The topic of the commit log does not exist any more, or it was made again without its records."""

    code = "COMMIT_LOG_DELETED"


def made_again(topic: str) -> CommitLogDeletedError:
    """Returns the error of a commit, an abort or a command that depends on records which are gone."""
    return CommitLogDeletedError(
        f"the commit log, topic {topic}, was deleted and made again, so it no longer says which transactions are committed."
        f" Before you write any rows again, look whether they are visible: {HOW_TO_LOOK}",
        topic=topic,
    )


def without_record(topic: str, query_id: str, committed: int) -> CommitLogDeletedError:
    """Returns the error of a first batch if transactions of the query are committed. committed: their number."""
    found = counted(committed, "of its transactions is", "of its transactions are")
    return CommitLogDeletedError(
        f"the commit log, topic {topic}, has no record of query {query_id}, but {found} committed: the topic was deleted and made"
        " again, or commit.log.topic was changed. Before you write any rows again, look whether they are visible:"
        f" {HOW_TO_LOOK}",
        topic=topic,
        query_id=query_id,
    )


def how_to_look(error: KafkaSinkError) -> str:
    """Returns the end of a text that tells to look into the topic. It is empty if `error`, which is shown as well, says how."""
    return "" if HOW_TO_LOOK in error.message else f": {HOW_TO_LOOK}"


def leader_of(client: ClusterClient, topic: str, partition: int, deadline: float) -> int:
    """Returns the node id of the leader, as `ClusterClient.leader` does.

    Raises CommitLogDeletedError once brokers have known no such topic or partition for some seconds: waiting until the deadline
    would tell nobody why.
    """
    try:
        return client.leader(topic, partition, min(deadline, time.monotonic() + DELETED_AFTER_S))
    except DeadlineError:
        if time.monotonic() >= deadline:
            raise
    count, code = client.topic(topic, deadline)
    if 0 < count <= partition:  # all were there when it was checked: brokers create topics with fewer for any client that asks
        raise made_again(topic)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        name = error_facts(code).name
        raise CommitLogDeletedError(
            f"the commit log, topic {topic}, was deleted: brokers have answered {name} for {DELETED_AFTER_S:.0f} s. The"
            " next run creates it, and the first commit of a query then says which commit.log.start continues the query",
            topic=topic,
            error_code=int(code),
            error=name,
        )
    return client.leader(topic, partition, deadline)


def _create(client: ClusterClient, settings: CommitLogSettings, waiting: ResponseWaiter, deadline: float) -> None:
    replicas = settings.replication_factor or _replicas(client, deadline)
    configs = {**_CONFIGS, **({_MIN_ISR: "2"} if replicas >= _DEFAULT_REPLICATION else {})}
    result = ask_to_create(client, new_topic(settings.topic, settings.partitions, replicas, configs), deadline)
    if result.error_code in _REFUSED_CONFIGS:
        first, only = result, {_CLEANUP_POLICY: _CONFIGS[_CLEANUP_POLICY]}
        result = ask_to_create(client, new_topic(settings.topic, settings.partitions, replicas, only), deadline)
        if result.error_code == ErrorCode.NONE:
            _warn_of_configs(settings, first, {name: value for name, value in configs.items() if name not in only})
    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return
    if result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
        raise OptionError(
            f"option commit.log.replication.factor: topic {settings.topic} cannot be created with {replicas} replicas:"
            f" {quoted(result.error_message or 'there are too few brokers')}",
            option="commit.log.replication.factor",
            topic=settings.topic,
        )
    facts = error_facts(result.error_code)
    if not facts.retriable:
        raise _refused(client, settings, result.error_code, CREATE_TOPICS.key, result.error_message, replicas)
    waiting.note(f"CreateTopics of {settings.topic}", facts.name)


def _warn_of_configs(settings: CommitLogSettings, refused: CreatableTopicResult, left_out: Mapping[str, str]) -> None:
    name, message = error_facts(refused.error_code).name, refused.error_message
    logger.warning(
        "the commit log, topic %s: the brokers rejected its configs (%s), so it was created with only %s=%s. Set as many of the"
        " others as you can: %s",
        settings.topic,
        f"{name}: {quoted(message)}" if message else name,
        _CLEANUP_POLICY,
        _CONFIGS[_CLEANUP_POLICY],
        ", ".join(f"{config}={value}" for config, value in left_out.items()),
    )


def _replicas(client: ClusterClient, deadline: float) -> int:
    """Returns the number of brokers, at most 3.

    Clients only learn of running brokers. If one is down, the replicas of __transaction_state show how many there are: with 2
    replicas on 3 brokers the log could not be written to when another one goes down.
    """
    request = MetadataRequest([MetadataRequestTopic(name=_TRANSACTIONS)], allow_auto_topic_creation=False)
    topic = only_one(client.ask_any(METADATA, request, deadline).topics, METADATA.key, "topic")
    # It has no partitions if Describe is not granted.
    known = max((len(partition.replica_nodes) for partition in topic.partitions), default=0)
    return min(_DEFAULT_REPLICATION, max(known, len(client.brokers(deadline))))


def _is_checked(client: ClusterClient, settings: CommitLogSettings, waiting: ResponseWaiter, deadline: float) -> bool:
    """Returns False if the check must be repeated: a broker has no configs of a topic that it does not know yet."""
    result = ask_for_configs(client, TOPIC, settings.topic, deadline, only=[_CLEANUP_POLICY])
    if result.error_code:
        facts = error_facts(result.error_code)
        if not facts.retriable:
            raise _refused(client, settings, result.error_code, DESCRIBE_CONFIGS.key, result.error_message)
        waiting.note(f"DescribeConfigs of {settings.topic}", facts.name)
        return False
    policies = [config.value or "" for config in result.configs if config.name == _CLEANUP_POLICY]
    if policies != ["compact"]:
        raise OptionError(
            f"option commit.log.topic: topic {settings.topic} has cleanup.policy={','.join(policies)}, so Kafka may delete"
            " committed records: if it is used as the commit log only, set its cleanup.policy to compact; otherwise choose"
            " another topic",
            option="commit.log.topic",
            topic=settings.topic,
        )
    return True


def _refused(
    client: ClusterClient, settings: CommitLogSettings, code: int, api: ApiKey, message: str | None, replicas: int | None = None
) -> KafkaSinkError:
    """Returns the error for a code. replicas: replication factor of the topic that was to be created."""
    name = error_facts(code).name
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        text = f"option commit.log.topic: {settings.topic!r} is not a valid topic name: {quoted(message or name)}"
        return OptionError(text, option="commit.log.topic")
    to_do = "" if code in RESOURCE_OF else f": {quoted(message or 'check the logs of the brokers')}"
    by_hand = ""
    if replicas is not None:
        servers = ",".join(client.config.bootstrap_servers)
        by_hand = (
            f"; or create the topic yourself: `kafka-topics.sh --bootstrap-server {servers} --create --topic {settings.topic}"
            f" --partitions {settings.partitions} --replication-factor {replicas} --config {_CLEANUP_POLICY}=compact"
            f" --config {_MIN_ISR}={max(1, replicas - 1)}`"
        )
    text = f"the commit log, topic {settings.topic}: {api.kafka_name} failed with {name}{to_do}"
    return client.rights.error(text, api, code, settings.topic, grants=COMMIT_LOG, more=by_hand, topic=settings.topic)
