"""Options `topic.create.*`: how `first_contact.py` creates the topic of the option `topic` if it does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import Kind, integer

CREATE_PARTITIONS: Final = "topic.create.partitions"
CREATE_REPLICATION: Final = "topic.create.replication.factor"
CREATE_CONFIG: Final = "topic.create.config."

_KINDS: Final[Mapping[str, Kind]] = {CREATE_PARTITIONS: integer(1), CREATE_REPLICATION: integer(1, 32767)}
BROKER_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """How to create a missing topic.

    partitions, replication_factor: -1 for the brokers' defaults. configs: pairs of name and value.
    """

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
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
    counts = {name: kind.parse(name, options[name]) for name, kind in _KINDS.items() if name in options}
    return TopicCreation(
        counts.get(CREATE_PARTITIONS, BROKER_DEFAULT),
        counts.get(CREATE_REPLICATION, BROKER_DEFAULT),
        tuple(sorted((name.removeprefix(CREATE_CONFIG), str(options[name])) for name in given if name.startswith(CREATE_CONFIG))),
    )
