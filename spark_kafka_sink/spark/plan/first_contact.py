"""Checks on the driver, before any task starts, that a broker is reachable and that the topic exists, or creates the topic.

Tasks wait for both until max.block.ms has passed, and a cluster runs each task up to four times. Without this check a wrong port
is reported after minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import only_one
from spark_kafka_sink.client.topics import (
    TOPIC,
    configs_of,
    create_topic,
    creation_error,
    metadata_error,
    new_topic,
    time_limits,
    time_limits_text,
    wait_for_leaders,
)
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    DeadlineError,
    KafkaSinkError,
    MetadataTimeoutError,
    OptionError,
)
from spark_kafka_sink.options.error_options import DEAD_LETTER_TOPIC
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.report_options import REPORT_TOPIC
from spark_kafka_sink.options.sink_options import SinkOptions, warn_once
from spark_kafka_sink.options.topic_creation_options import (
    BROKER_DEFAULT,
    CREATE_CONFIG,
    CREATE_PARTITIONS,
    CREATE_REPLICATION,
    TopicCreation,
)
from spark_kafka_sink.producer.producer_metadata import CREATE_IT, FATAL_TOPIC_ERRORS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.spark.local_variables import without_local_variables

logger = logging.getLogger(__name__)

DRIVER: Final = "the Spark driver"
_PATIENCE_MS: Final = 10_000
_SHARE: Final = 6  # part of max.block.ms: 10 s of its default of 60 s, and more if the option is larger

_OPTION_OF: Final = {
    ErrorCode.INVALID_PARTITIONS: CREATE_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR: CREATE_REPLICATION,
    ErrorCode.INVALID_CONFIG: CREATE_CONFIG,
}


@without_local_variables
def check_reachable(options: SinkOptions, *, has_timestamps: bool = False, who: str = DRIVER) -> None:
    """Returns once a broker has answered, and the topics exist that the options `topic` and `dead.letter.topic` name.

    The options `topic.create.*` create a missing topic, and so do brokers with auto.create.topics.enable. A topic without leaders
    exists, and tasks wait for its leaders.

    has_timestamps: whether rows have timestamps of their own. Then a line of the log says what brokers do about old ones. who:
    names this process.

    Raises:
        MetadataTimeoutError: No broker answered in time, or the topic does not exist.
        AuthenticationError: A broker rejected the login.
        AuthorizationError: The client may not describe the topic.
    """
    if options.creation is not None:
        create_missing_topic(options, who=who)
    if options.creation is not None and not has_timestamps:
        return
    deadline = time.monotonic() + _limit_s(options.producer)
    with ClusterClient(options.producer) as client, _reachable(options, who):
        topics = _topics(options)
        for topic in topics:
            _check_exists(client, topic, options, deadline)
        if has_timestamps and options.topic is not None:
            _log_time_limits(client, options.topic, deadline)
        if not topics:
            client.brokers(deadline)


def check_answers(client: ClusterClient, options: SinkOptions, who: str) -> None:
    """Returns once a broker has answered. Raises MetadataTimeoutError if none did in time, as `check_reachable`."""
    with _reachable(options, who):
        client.brokers(time.monotonic() + _limit_s(options.producer))


@contextmanager
def _reachable(options: SinkOptions, who: str) -> Iterator[None]:
    """Raises the error that names the addresses if a request to any broker times out."""
    try:
        yield
    except DeadlineError as error:
        if isinstance(error, MetadataTimeoutError):
            raise
        raise _unreachable(options, error, who) from None


def _log_time_limits(client: ClusterClient, topic: str, deadline: float) -> None:
    try:
        configs = configs_of(client, TOPIC, topic, deadline)
    except KafkaSinkError as error:
        logger.info("topic %s: what brokers do about old rows is not known: %s", topic, error)
        return
    limits = time_limits({name: each.value or "" for name, each in configs.items()})
    if limits:
        logger.info("topic %s: rows keep the column timestamp; %s", topic, time_limits_text(limits))


def check_dead_letters(options: SinkOptions) -> None:
    """Returns once the dead-letter topic exists, if there is one. Raises as `check_reachable`."""
    if options.errors.topic is not None and options.creation is None:
        check_reachable(options)


def _topics(options: SinkOptions) -> list[str]:
    return [topic for topic in (options.topic, options.errors.topic) if topic is not None]


def _check_exists(client: ClusterClient, topic: str, options: SinkOptions, deadline: float) -> None:
    code = _topic_code(client, topic, deadline)
    if not code:
        return
    named = {options.errors.topic: DEAD_LETTER_TOPIC, options.report_topic: REPORT_TOPIC}
    name, what = error_facts(code).name, f"topic {topic} (option {named[topic]})" if topic in named else f"topic {topic}"
    if code in FATAL_TOPIC_ERRORS:
        text = ": ".join(filter(None, [what, name, FATAL_TOPIC_ERRORS[code]]))
        raise client.rights.error(text, ApiKey.METADATA, code, topic, topic=topic)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        servers = ",".join(options.producer.bootstrap_servers)
        limit_s = _limit_s(options.producer)
        raise MetadataTimeoutError(
            f"{what}: the topic does not exist on {servers} ({name} for {limit_s:g} s); {CREATE_IT}", topic=topic, error=name
        )


def _topic_code(client: ClusterClient, topic: str, deadline: float) -> int:
    """Returns the error code of a topic's metadata once it is final or the deadline has passed; 0 if the topic exists."""
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    waiter = ResponseWaiter(deadline, ExponentialBackoff(client.config.retry_backoff_ms, client.config.retry_backoff_max_ms))
    code = 0
    while True:
        try:
            code = only_one(client.ask_any(METADATA, request, deadline).topics, METADATA.key, "topic").error_code
        except DeadlineError:
            if not code:
                raise
            return code  # the last request had too little time
        if not code or code in FATAL_TOPIC_ERRORS or waiter.is_over:
            return code
        waiter.note(f"topic {topic}", error_facts(code).name)
        waiter.pause()


def create_again(options: SinkOptions) -> None:
    """Creates topics as `topic.create.*` says that were deleted after a stream had reached them. An outage is left to tasks.

    Brokers would create them with their own settings when a task asks for them.
    """
    try:
        create_missing_topic(options, is_again=True)
    except (OptionError, AuthorizationError):
        raise
    except KafkaSinkError as error:
        logger.info("it is not known whether the topic still exists: %s", error)


def create_missing_topic(options: SinkOptions, *, is_again: bool = False, who: str = DRIVER) -> None:
    """Creates the topics that options name if `topic.create.*` is set and they do not exist. No topic is altered.

    is_again: whether they existed before. who: names this process.

    Raises:
        OptionError: the brokers reject a setting.
        AuthorizationError: the client may not create the topic; the error has the ACL to add.
        MetadataTimeoutError: no broker answered within 10 s by default.
        DeadlineError: the topic was not created within max.block.ms.
    """
    creation = options.creation
    if creation is None:
        return
    with ClusterClient(options.producer) as client:
        for topic in _topics(options):
            _create(client, topic, creation, options, is_again=is_again, who=who)
        if options.report_topic is not None:
            # One partition is enough, and other settings, such as compaction, are about rows.
            one = TopicCreation(1, creation.replication_factor)
            try:
                _create(client, options.report_topic, one, options, is_again=is_again, who=who)
            except KafkaSinkError as error:  # rows are delivered without reports
                warn_once(f"option {REPORT_TOPIC}: topic {options.report_topic} could not be created: {error}")


def _create(
    client: ClusterClient, topic: str, creation: TopicCreation, options: SinkOptions, *, is_again: bool, who: str
) -> None:
    start = time.monotonic()
    deadline = start + options.producer.max_block_ms / 1000
    try:
        partitions, code = client.topic(topic, start + _limit_s(options.producer))
    except DeadlineError as error:
        raise _unreachable(options, error, who) from None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        new = new_topic(topic, creation.partitions, creation.replication_factor, dict(creation.configs))
        result = create_topic(client, new, deadline)
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise as_option_error(creation_error(client, result), creation, topic)
        partitions = wait_for_leaders(client, topic, deadline)
        if result.error_code == ErrorCode.NONE and is_again:
            text = "topic %s was deleted while the stream ran, with its records; created a new one with %s"
            logger.warning(text, topic, counted(partitions, "partition"))
            return
        if result.error_code == ErrorCode.NONE:
            logger.info("created topic %s with %s", topic, counted(partitions, "partition"))
            return
    elif code and not error_facts(code).retriable:
        raise metadata_error(client, topic, code)
    if 0 < partitions < creation.partitions and not is_again:
        logger.warning(
            "topic %s exists with %s, fewer than %s=%s; it is left as it is",
            topic,
            counted(partitions, "partition"),
            CREATE_PARTITIONS,
            creation.partitions,
        )


def as_option_error(error: BrokerError, creation: TopicCreation, topic: str) -> BrokerError | OptionError:
    """Returns the error of the option that the brokers rejected; `error` itself if it is about something else."""
    name = _OPTION_OF.get(error.facts["error_code"])
    if name is None:
        return error
    if name == CREATE_CONFIG:
        named = [config for config, _ in creation.configs if config in error.message]
        name = CREATE_CONFIG + (named[0] if len(named) == 1 else "*")
    given = {CREATE_PARTITIONS: creation.partitions, CREATE_REPLICATION: creation.replication_factor}.get(name)
    hint = "; brokers before Kafka 2.4 need this option" if given == BROKER_DEFAULT else ""
    return OptionError(f"option {name}: {error.message}{hint}", option=name, topic=topic)


def _limit_s(config: ProducerConfig) -> float:
    """Returns how long the driver waits for the first answer of a broker, in seconds."""
    return max(min(config.max_block_ms, _PATIENCE_MS), config.max_block_ms // _SHARE) / 1000


def _unreachable(options: SinkOptions, error: DeadlineError, who: str) -> MetadataTimeoutError:
    """Returns the error for `error`, with which a request to any broker timed out. It names the addresses."""
    servers = ",".join(options.producer.bootstrap_servers)
    topic = "" if options.topic is None else f"topic {options.topic}: "
    limit_s = _limit_s(options.producer)
    text = f"{topic}no broker of bootstrap.servers {servers} answered {who} within {limit_s:g} s"
    reason = error.message.partition("the brokers: ")[2] or error.message
    return MetadataTimeoutError(
        f"{text}: {reason}. Check bootstrap.servers, and that {who} may connect to it", topic=options.topic
    )
