"""Checks of the topic: existence, partitions, configs, and the right to write to it; and of the dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster_requests import ClusterRequest, only_one
from spark_kafka_sink.client.topics import (
    BROKER,
    TOPIC,
    configs_of,
    create_topic,
    creation_error,
    metadata_error,
    new_topic,
    time_limits,
    time_limits_text,
    topic_metadata,
    topics_metadata,
)
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthorizationError, KafkaSinkError, MetadataTimeoutError
from spark_kafka_sink.options.error_options import DEAD_LETTER_TOPIC
from spark_kafka_sink.options.guarantee_options import Guarantee
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.options.report_options import REPORT_TOPIC
from spark_kafka_sink.options.topic_creation_options import TopicCreation
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import (
    METADATA,
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, InitProducerIdRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.spark.driver.checks.context import CheckContext, SkippedError
from spark_kafka_sink.spark.driver.checks.report import CheckLine, failed, failed_by, not_checked, not_checked_after, ok
from spark_kafka_sink.spark.plan.first_contact import as_option_error

# Bits of authorized operations (AclOperation's codes).
READ: Final = 1 << 3
WRITE: Final = 1 << 4
DESCRIBE_CONFIGS: Final = 1 << 10

_SHOWN: Final = 20
_BACKOFF: Final = ExponentialBackoff(50, 500)


def check_topic(context: CheckContext) -> Iterator[CheckLine]:
    """Checks the topic of the option `topic`."""
    name = context.options.topic
    if name is None:
        yield not_checked("topic", "the column topic names the topic of each row", "set the option topic to check that topic")
        return
    found = described_topic(context, name)
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        yield missing(context, name)
        return
    if found.error_code:
        yield failed_by("topic", metadata_error(context.client, name, found.error_code))
        return
    context.topic = found
    try:
        configs = configs_of(context.client, TOPIC, name, context.soon(), node_id=context.node_id)
    except KafkaSinkError as error:
        yield from _partitions(context, found, None)
        yield not_checked_after("topic configs", error)
        return
    context.configs = {each.name: each.value or "" for each in configs.values()}
    yield from _partitions(context, found, context.configs)
    yield from _sizes(context, context.configs)
    yield from _timestamps(context, context.configs)
    yield from _compaction(context, context.configs)
    yield from _message_format(name, context.configs)


# A missing topic


def described_topic(context: CheckContext, name: str) -> MetadataResponseTopic:
    """Returns the metadata of a topic from `context.node_id`, once that broker knows it if another one does.

    Brokers hear of a new topic one after another, so the answer of one of them does not show that a topic is missing. Raises
    MetadataTimeoutError if that broker never hears of it.
    """
    found = topic_metadata(context.client, name, context.soon(), context.node_id)
    if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not _is_known_elsewhere(context, name):
        return found
    waiter = ResponseWaiter(context.soon(), _BACKOFF)
    while found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not waiter.is_over:
        waiter.pause()
        found = topic_metadata(context.client, name, context.soon(), context.node_id)
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        node = context.nodes[context.node_id]
        raise MetadataTimeoutError(
            f"{node} does not know topic {name!r}, which other brokers have: look into that broker's log", topic=name
        )
    return found


def _is_known_elsewhere(context: CheckContext, name: str) -> bool:
    """Returns whether a broker other than `context.node_id` has the topic."""
    others = [node_id for node_id in context.nodes if node_id != context.node_id]
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    answers = context.client.try_many([ClusterRequest(each, METADATA, request) for each in others], context.soon())
    return any(
        isinstance(each, MetadataResponse) and not only_one(each.topics, METADATA.key, "topic").error_code for each in answers
    )


def missing(context: CheckContext, name: str, option: str = "topic") -> CheckLine:
    """Returns the line about a topic that does not exist. option: the option that names it."""
    creation = context.options.creation
    if creation is not None:
        return _to_be_created(context, name, creation)
    servers = ",".join(context.options.producer.bootstrap_servers)
    command = f"spark-kafka-sink topics create {name} --bootstrap-servers {servers}"
    to_do = f"correct the option {option}, create it with `{command}`, or set topic.create.partitions"
    visible = [each.name or "" for each in topics_metadata(context.client, None, context.soon(), context.node_id).topics]
    missing = f"topic {name!r} does not exist{nearest(name, visible)}"
    unknown = f"{missing}; whether the brokers create it with the first record is not known"
    try:
        partitions = _partitions_of_new_topics(context)
        denial = None if partitions is None else _why_not_allowed_to_create(context, name)
    except KafkaSinkError as error:
        return failed("topic", f"{unknown}: {error}" if _may_create(context, name) else missing, to_do)
    except KeyError:
        return failed("topic", unknown if _may_create(context, name) else missing, to_do)
    if partitions is None:
        return failed("topic", missing, to_do)
    if denial is not None:
        return failed_by("topic", denial)
    text = f"topic {name!r} does not exist; the brokers create it with the first record (num.partitions={partitions})"
    return ok("topic", text, "set topic.create.partitions to choose the number of partitions")


def _partitions_of_new_topics(context: CheckContext) -> str | None:
    """Returns num.partitions of a broker that creates missing topics, and None of another. Raises KeyError if it does not say."""
    node_id = context.node_id
    wanted = ["auto.create.topics.enable", "num.partitions"]
    found = configs_of(context.client, BROKER, str(node_id), context.soon(), node_id=node_id, only=wanted)
    return found["num.partitions"].value if found["auto.create.topics.enable"].value == "true" else None


def _may_create(context: CheckContext, name: str) -> bool:
    """Returns whether this client may create the topic, as far as it can tell. Brokers create none for a client that may not."""
    try:
        return _why_not_allowed_to_create(context, name) is None
    except KafkaSinkError:
        return True


def _why_not_allowed_to_create(context: CheckContext, name: str) -> AuthorizationError | None:
    """Returns the error of a client for which brokers do not create a topic automatically. Creates nothing."""
    result = create_topic(context.client, new_topic(name), context.soon(), validate_only=True)
    error = creation_error(context.client, result) if result.error_code else None
    return error if isinstance(error, AuthorizationError) else None


def _to_be_created(context: CheckContext, name: str, creation: TopicCreation) -> CheckLine:
    new = new_topic(name, creation.partitions, creation.replication_factor, dict(creation.configs))
    result = create_topic(context.client, new, context.soon(), validate_only=True)
    if result.error_code:
        return failed_by("topic", as_option_error(creation_error(context.client, result), creation, name))
    return ok("topic", f"topic {name!r} does not exist; the driver creates it before the first task (topic.create.*)")


# Partitions


def _partitions(context: CheckContext, topic: MetadataResponseTopic, configs: Mapping[str, str] | None) -> Iterator[CheckLine]:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    name, count = topic.name or "", len(partitions)
    leaderless = [each for each in partitions if each.leader_id < 0]
    if leaderless:
        text = f"topic {name!r}: {_numbered(leaderless, count)} {'has' if len(leaderless) == 1 else 'have'} no leader"
        yield failed("topic", text, "start the brokers that hold their replicas; rows for these partitions wait until then")
    least = int(configs["min.insync.replicas"]) if configs is not None and "min.insync.replicas" in configs else None
    few = [each for each in partitions if each.leader_id >= 0 and least is not None and len(each.isr_nodes) < least]
    if few and context.options.producer.acks == -1:
        which = f"{_numbered(few, count)} {'has' if len(few) == 1 else 'have'}"
        text = f"topic {name!r}: {which} fewer in-sync replicas than min.insync.replicas={least}"
        to_do = "start the brokers that hold the other replicas; until then brokers reject writes with acks=all"
        if any(len(each.replica_nodes) < (least or 0) for each in few):
            to_do = f"the topic has fewer replicas than min.insync.replicas={least}: lower that, or add replicas"
        yield failed("topic", text, to_do)
    if leaderless or few:
        return
    replicas = sorted({len(each.replica_nodes) for each in partitions})
    behind = [each for each in partitions if len(each.isr_nodes) < len(each.replica_nodes)]
    hints = [f"not all replicas are in sync: {_numbers(behind)}"] if behind else []
    if replicas == [1] and len(context.nodes) > 1:
        hints.append("one replica: while its broker is down, a partition cannot be written to")
    leaders = len({each.leader_id for each in partitions})
    of = f"{replicas[0]}" if len(replicas) == 1 else f"{replicas[0]} to {replicas[-1]}"
    in_sync = "" if least is None else f", min.insync.replicas={least}"
    text = f"topic {name!r} has {counted(count, 'partition')} on {counted(leaders, 'broker')}"
    yield ok("topic", f"{text}, replication factor {of}{in_sync}", "; ".join(hints))


def _numbered(partitions: list[MetadataResponsePartition], count: int) -> str:
    """Returns the numbers of some of a topic's partitions as the subject of a sentence. count: of all partitions."""
    if count == 1:
        return "its only partition"
    return f"partition{'' if len(partitions) == 1 else 's'} {_numbers(partitions)} of {count:,}"


def _numbers(partitions: list[MetadataResponsePartition]) -> str:
    shown = ", ".join(str(each.partition_index) for each in partitions[:_SHOWN])
    return f"{shown} and {len(partitions) - _SHOWN:,} more" if len(partitions) > _SHOWN else shown


# Configs


def _sizes(context: CheckContext, configs: Mapping[str, str]) -> Iterator[CheckLine]:
    if "max.message.bytes" not in configs:
        return
    producer, limit = context.options.producer, int(configs["max.message.bytes"])
    if producer.batch_size > limit:
        text = f"kafka.batch.size={producer.batch_size:,} is more than the topic's max.message.bytes={limit:,}"
        to_do = f"set kafka.batch.size to at most {limit}, or raise max.message.bytes; the brokers reject full batches, which are"
        yield failed("sizes", text, f"{to_do} then split and sent again")
        return
    text = f"kafka.batch.size={producer.batch_size:,} fits max.message.bytes={limit:,}"
    if producer.max_request_size > limit:
        hint = f"the brokers reject rows that are larger than {counted(limit, 'byte')} after compression"
    else:
        hint = f"a row may have {counted(producer.max_request_size, 'byte')} (kafka.max.request.size)"
        hint = hint if producer.max_request_size < limit // 2 else ""
    yield ok("sizes", text, hint)


def _timestamps(context: CheckContext, configs: Mapping[str, str]) -> Iterator[CheckLine]:
    has_column = context.schema is not None and context.schema.timestamp is not None
    if configs.get("message.timestamp.type") == "LogAppendTime":
        hint = "the column timestamp has no effect on this topic" if has_column else ""
        yield ok("timestamps", "brokers set the time of the append (message.timestamp.type=LogAppendTime)", hint)
        return
    limits = time_limits(configs)
    if limits and has_column:
        yield ok("timestamps", f"the column timestamp is kept; {time_limits_text(limits)}")


def _compaction(context: CheckContext, configs: Mapping[str, str]) -> Iterator[CheckLine]:
    if "compact" not in configs.get("cleanup.policy", ""):
        return
    if context.schema is None:
        yield ok("compaction", "the topic is compacted", "each row needs a key; brokers reject rows without one")
    elif context.schema.key is not None:
        yield ok(
            "compaction", "the topic is compacted, and the DataFrame has a column key", "brokers reject rows whose key is null"
        )
    else:
        text = "the topic is compacted (cleanup.policy), and the DataFrame has no column key"
        yield failed("compaction", text, "add a column key; brokers reject rows without a key")


def _message_format(topic: str, configs: Mapping[str, str]) -> Iterator[CheckLine]:
    version = configs.get("message.format.version", "")  # a config of topics before Kafka 4.0, such as "0.10.2-IV0"
    if version.startswith(("0.8", "0.9", "0.10")):
        text = f"topic {topic!r} has message.format.version={version}, which has no producer ids and no headers"
        yield failed("topic", text, "remove message.format.version from the topic's configs; brokers reject idempotent producers")


# Rights


def check_rights(context: CheckContext) -> Iterator[CheckLine]:
    """Checks whether the client may write to the topic, and whether it gets a producer id."""
    node_id = context.node_id
    if context.topic is not None:
        yield may_on_topic(context, context.topic, {"Write": WRITE})
    elif context.options.topic is not None:
        text = f"whether the client may write to topic {context.options.topic!r}"
        yield not_checked("rights", f"{text}: brokers answer this only if the topic exists and the client may describe it")
    if context.options.producer.enable_idempotence and context.options.guarantee is not Guarantee.EXACTLY_ONCE:
        yield _may_have_producer_id(context, node_id)
    elif context.options.topic is None:
        raise SkippedError("no existing topic to check")


def _may_have_producer_id(context: CheckContext, node_id: int) -> CheckLine:
    waiter = ResponseWaiter(context.soon(), _BACKOFF)
    while True:
        code = context.client.ask(node_id, INIT_PRODUCER_ID, InitProducerIdRequest(), context.soon()).error_code
        if not code:
            return ok("rights", "allowed to get a producer id (kafka.enable.idempotence=true)")
        if not error_facts(code).retriable:
            text = f"kafka.enable.idempotence=true: the broker rejected the request for a producer id ({error_facts(code).name})"
            error = context.client.rights.error(text, ApiKey.INIT_PRODUCER_ID, code)
            return failed_by("rights", error, "set kafka.enable.idempotence=false, which allows duplicates after retries")
        waiter.note("InitProducerId", error_facts(code).name)  # a broker that has just started loads its coordinator first
        waiter.again()


def may_on_topic(
    context: CheckContext, topic: MetadataResponseTopic, needed: Mapping[str, int], *, grants: str | None = None
) -> CheckLine:
    """Returns a line about the operations that are needed on a topic. grants: options of kafka-acls that grant them together."""
    name, allowed = topic.name or "", topic.topic_authorized_operations
    if allowed == NO_AUTHORIZED_OPERATIONS:
        return not_checked("rights", f"the brokers do not tell what this client may do with topic {name!r}")
    lacking = [operation for operation, bit in needed.items() if not allowed & bit]
    if not lacking:
        return ok("rights", f"allowed on topic {name!r}: {', '.join(needed)}")
    apis = {"Write": ApiKey.PRODUCE, "Read": ApiKey.FETCH, "DescribeConfigs": ApiKey.DESCRIBE_CONFIGS}
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denial = context.client.rights.denied(apis[lacking[0]], code, name, grants=grants)
    assert denial is not None
    who = denial.principal or "this client"
    error = context.client.rights.error("", ApiKey.PRODUCE, code, name)
    return failed("rights", f"{who} is not authorized for {' and '.join(lacking)} on topic {name!r}", denial.to_do, error.link)


# The topics of dead letters and of reports

DEAD_LETTERS: Final = "dead letters"
REPORTS: Final = "reports"


def check_dead_letters(context: CheckContext) -> Iterator[CheckLine]:
    """Checks the topic of the option `dead.letter.topic`."""
    return _check_other(context, DEAD_LETTERS, DEAD_LETTER_TOPIC, context.options.errors.topic)


def check_reports(context: CheckContext) -> Iterator[CheckLine]:
    """Checks the topic of the option `report.topic`."""
    return _check_other(context, REPORTS, REPORT_TOPIC, context.options.report_topic)


def _check_other(context: CheckContext, step: str, option: str, name: str | None) -> Iterator[CheckLine]:
    if name is None:
        return
    found = described_topic(context, name)
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        yield replace(missing(context, name, option), name=step)
        return
    if found.error_code:
        yield failed_by(step, metadata_error(context.client, name, found.error_code))
        return
    leaderless = sum(each.leader_id < 0 for each in found.partitions)
    if leaderless:
        text = f"topic {name!r}: {counted(leaderless, 'partition')} of {len(found.partitions):,} without a leader"
        yield failed(step, text, f"start the brokers that hold their replicas; {step} for these partitions wait until then")
    else:
        hint = _letter_hint(context, name) if step == DEAD_LETTERS else ""
        yield ok(step, f"topic {name!r} has {counted(len(found.partitions), 'partition')}", hint)
    yield may_on_topic(context, found, {"Write": WRITE})


def _letter_hint(context: CheckContext, name: str) -> str:
    """Returns a hint if letters may be larger than the topic takes, or if the topic needs keys; otherwise an empty string."""
    try:
        configs = configs_of(context.client, TOPIC, name, context.soon(), node_id=context.node_id)
        largest = int(configs["max.message.bytes"].value or 0)
        policy = configs["cleanup.policy"].value or ""
    except (KafkaSinkError, KeyError, ValueError):
        return ""
    if "compact" in policy:
        return "the topic is compacted: brokers reject letters without a key, and later letters replace those with the same key"
    limit = context.options.producer.max_request_size
    if largest < limit:
        return (
            f"letters over max.message.bytes={largest:,} lose their value; rows may have {limit:,} bytes (kafka.max.request.size)"
        )
    return ""
