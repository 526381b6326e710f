"""Checks of exactly-once: brokers, time-out, the right to use transactional ids, and the commit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.client.topics import BROKER, TOPIC, configs_of, create_topic, creation_error, metadata_error, new_topic
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthorizationError, KafkaSinkError, OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.micro_batch import NO_QUERY, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient, is_unlisted
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.acls import COMMIT_LOG
from spark_kafka_sink.spark.driver.checks.context import CheckContext
from spark_kafka_sink.spark.driver.checks.report import CheckLine, failed, failed_by, not_checked, not_checked_after, ok
from spark_kafka_sink.spark.driver.checks.topic import DESCRIBE_CONFIGS, READ, WRITE, described_topic, may_on_topic

_NAME: Final = "exactly-once"
_INVALID_TIMEOUT_MS: Final = 0
"""Brokers check the client's rights first, and then refuse this time-out, so nothing changes."""

_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_DEFAULT_REPLICATION: Final = 3


def check_transactions(context: CheckContext) -> Iterator[CheckLine]:
    """Checks whether exactly-once is possible; with another guarantee, only whether the brokers are new enough."""
    context.node_id  # noqa: B018  raises SkippedError without a broker
    client, exactly_once = TransactionClient(context.client), context.options.exactly_once
    try:
        client.check_brokers(context.soon())
    except UnsupportedVersionError as error:
        if exactly_once is None:
            text = f"not used (delivery.guarantee={context.options.guarantee}); these brokers do not support it"
            yield ok(_NAME, text, error.message)
        else:
            yield failed_by(_NAME, error)
        return
    if exactly_once is None:
        text = f"not used (delivery.guarantee={context.options.guarantee}); the brokers support it"
        yield ok(_NAME, text)
        return
    yield _timeout(context)
    yield _transactional_ids(context, client, exactly_once.transactional_id_prefix)
    yield from _listing(context, client, exactly_once.transactional_id_prefix)
    yield from _commit_log(context, exactly_once.commit_log)


def _timeout(context: CheckContext) -> CheckLine:
    wanted, node_id = context.options.producer.transaction_timeout_ms, context.node_id
    unknown = f"whether kafka.transaction.timeout.ms={wanted:,} is within {_MAX_TIMEOUT} of the brokers"
    try:
        found = configs_of(context.client, BROKER, str(node_id), context.soon(), node_id=node_id, only=[_MAX_TIMEOUT])
        limit = int(found[_MAX_TIMEOUT].value or 0)
    except (KeyError, ValueError):
        return not_checked(_NAME, unknown)
    except KafkaSinkError as error:
        return not_checked_after(_NAME, error, unknown)
    if wanted > limit:
        text = f"kafka.transaction.timeout.ms={wanted:,} is more than the brokers' {_MAX_TIMEOUT}={limit:,}"
        return failed(_NAME, text, f"set kafka.transaction.timeout.ms to at most {limit}, or raise {_MAX_TIMEOUT}")
    return ok(_NAME, f"the brokers support it; kafka.transaction.timeout.ms={wanted:,} is within {_MAX_TIMEOUT}={limit:,}")


def _transactional_ids(context: CheckContext, client: TransactionClient, prefix: str) -> CheckLine:
    example = TransactionalIds(prefix, NO_QUERY).commit_log
    try:
        client.init_producer_id(example, _INVALID_TIMEOUT_MS, context.soon())
    except AuthorizationError as error:
        return failed_by("rights", error)
    except OptionError:  # the time-out is refused, so the rights are there
        pass
    return ok("rights", f"allowed on transactional ids {prefix}.*: Describe, Write")


def _listing(context: CheckContext, client: TransactionClient, prefix: str) -> Iterator[CheckLine]:
    """Yields a line if brokers do not list open transactions, which exactly-once works without."""
    try:
        client.list_open(f"{prefix}.", context.soon())
    except KafkaSinkError as error:
        if is_unlisted(error):
            yield ok(_NAME, "the brokers do not list open transactions", error.message)


def _commit_log(context: CheckContext, settings: CommitLogSettings) -> Iterator[CheckLine]:
    name = settings.topic
    found = described_topic(context, name)
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        yield _new_commit_log(context, settings)
        return
    if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text = f"the commit log, topic {name!r}: {ErrorCode.TOPIC_AUTHORIZATION_FAILED.name}"
        error = context.client.rights.error(text, ApiKey.DESCRIBE_CONFIGS, found.error_code, name, grants=COMMIT_LOG)
        yield failed_by("rights", error)
        return
    if found.error_code:
        yield failed_by("commit log", metadata_error(context.client, name, found.error_code))
        return
    needed = {"Read": READ, "Write": WRITE, "DescribeConfigs": DESCRIBE_CONFIGS}
    yield may_on_topic(context, found, needed, grants=COMMIT_LOG)
    if len(found.partitions) < settings.partitions:
        has = f"topic {name!r} has {counted(len(found.partitions), 'partition')}"
        text = f"{has}, fewer than commit.log.partitions={settings.partitions}"
        yield failed("commit log", text, f"set commit.log.partitions to {len(found.partitions)}, and never change it afterwards")
        return
    try:
        policy = configs_of(context.client, TOPIC, name, context.soon(), only=["cleanup.policy"])["cleanup.policy"].value
    except AuthorizationError as error:
        yield not_checked_after("commit log", error, f"whether topic {name!r} is compacted")
        return
    if policy != "compact":
        text = f"topic {name!r} has cleanup.policy={policy}, so Kafka may delete what queries have committed"
        yield failed("commit log", text, "set its cleanup.policy to compact, or choose another commit.log.topic")
    else:
        yield ok("commit log", f"topic {name!r} is compacted and has {counted(len(found.partitions), 'partition')}")


def _new_commit_log(context: CheckContext, settings: CommitLogSettings) -> CheckLine:
    replicas = settings.replication_factor or min(_DEFAULT_REPLICATION, len(context.nodes))
    new = new_topic(settings.topic, settings.partitions, replicas, {"cleanup.policy": "compact"})
    result = create_topic(context.client, new, context.soon(), validate_only=True)
    if not result.error_code:
        return ok("commit log", f"topic {settings.topic!r} does not exist; the first commit creates it")
    error = creation_error(context.client, result)
    if isinstance(error, AuthorizationError):
        error = context.client.rights.error(
            f"the commit log, topic {settings.topic!r}, does not exist and cannot be created",
            ApiKey.CREATE_TOPICS,
            result.error_code,
            settings.topic,
            grants=COMMIT_LOG,
        )
    return failed_by("commit log", error)
