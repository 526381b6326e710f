"""Options `topic.create.*`: how `first_contact.py` creates the topic of the option `topic` if it does not exist.

Each of Spark's processes for a query reads them, so this module imports no client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import BrokerError, OptionError
from spark_kafka_sink.option import Kind, integer
from spark_kafka_sink.protocol.error_codes import ErrorCode

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
