"""Options `topic.create.*`: the driver creates the topic of the option `topic` if it does not exist, before any task starts."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import BrokerError, DeadlineError, OptionError
from spark_kafka_sink.option import Kind, integer
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts

if TYPE_CHECKING:
    from spark_kafka_sink.client.cluster_client import ClusterClient
    from spark_kafka_sink.spark.options import SinkOptions

logger = logging.getLogger(__name__)

CREATE_PARTITIONS: Final = "topic.create.partitions"
CREATE_REPLICATION: Final = "topic.create.replication.factor"
CREATE_CONFIG: Final = "topic.create.config."

_KINDS: Final[Mapping[str, Kind]] = {CREATE_PARTITIONS: integer(1), CREATE_REPLICATION: integer(1, 32767)}
_BROKER_DEFAULT: Final = -1

_OPTION_OF: Final = {
    ErrorCode.INVALID_PARTITIONS: CREATE_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR: CREATE_REPLICATION,
    ErrorCode.INVALID_CONFIG: CREATE_CONFIG,
}


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """How to create a missing topic.

    partitions, replication_factor: -1 for the brokers' defaults. configs: pairs of name and value.
    """

    partitions: int = _BROKER_DEFAULT
    replication_factor: int = _BROKER_DEFAULT
    configs: tuple[tuple[str, str], ...] = ()


def is_creation_option(name: str) -> bool:
    return name in _KINDS or (name.startswith(CREATE_CONFIG) and name != CREATE_CONFIG)


def topic_creation(options: Mapping[str, object], topic: str | None) -> TopicCreation | None:
    """Returns the settings of `topic.create.*`, None without them. Raises OptionError for a wrong value or without a topic.

    Args:
        options: by lower-cased name.
        topic: the value of the option `topic`.
    """
    given = [name for name in options if is_creation_option(name)]
    if not given:
        return None
    if topic is None:
        raise OptionError(
            f"option {given[0]}: needs the option topic; topics that the column topic names are not created", option=given[0]
        )
    counts = {name: _count(name, options[name]) for name in _KINDS if name in options}
    return TopicCreation(
        counts.get(CREATE_PARTITIONS, _BROKER_DEFAULT),
        counts.get(CREATE_REPLICATION, _BROKER_DEFAULT),
        tuple(sorted((name.removeprefix(CREATE_CONFIG), str(options[name])) for name in given if name.startswith(CREATE_CONFIG))),
    )


def _count(name: str, value: object) -> int:
    try:
        found: int = _KINDS[name].read(value)
    except ValueError:
        raise OptionError(f"option {name}: {value!r} is not {_KINDS[name].wanted}", option=name) from None
    return found


def create_missing_topic(options: SinkOptions) -> None:
    """Creates the topic if `topic.create.*` is set and the topic does not exist. An existing topic is never altered.

    Raises:
        OptionError: the brokers reject a setting.
        AuthorizationError: the client may not create the topic; the error has the ACL to add.
        MetadataTimeoutError: no broker answered within 10 s by default.
        DeadlineError: the topic was not created within max.block.ms.
    """
    creation, topic = options.creation, options.topic
    if creation is None or topic is None:
        return
    from spark_kafka_sink.client.cluster_client import ClusterClient

    with ClusterClient(options.producer) as client:
        _create(client, topic, creation, options)


def _create(client: ClusterClient, topic: str, creation: TopicCreation, options: SinkOptions) -> None:
    from spark_kafka_sink.client.topics import create_topic, creation_error, metadata_error, new_topic, wait_for_leaders
    from spark_kafka_sink.spark.unreachable import contact_limit_ms, unreachable  # imports the options, which import this module

    start = time.monotonic()
    deadline = start + options.producer.max_block_ms / 1000
    try:
        partitions, code = client.topic(topic, start + contact_limit_ms(options.producer) / 1000)
    except DeadlineError as error:
        raise unreachable(options, error) from None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        new = new_topic(topic, creation.partitions, creation.replication_factor, dict(creation.configs))
        result = create_topic(client, new, deadline)
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise as_option_error(creation_error(client, result), creation, topic)
        partitions = wait_for_leaders(client, topic, deadline)
        if result.error_code == ErrorCode.NONE:
            logger.info("created topic %s with %s", topic, counted(partitions, "partition"))
            return
    elif code and not error_facts(code).retriable:
        raise metadata_error(client, topic, code)
    if 0 < partitions < creation.partitions:
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
    hint = "" if name.startswith(CREATE_CONFIG) or _is_given(name, creation) else "; brokers before Kafka 2.4 need this option"
    return OptionError(f"option {name}: {error.message}{hint}", option=name, topic=topic)


def _is_given(name: str, creation: TopicCreation) -> bool:
    return (creation.partitions if name == CREATE_PARTITIONS else creation.replication_factor) != _BROKER_DEFAULT
