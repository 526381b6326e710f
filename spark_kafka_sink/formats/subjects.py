"""Names of subjects, and of derived records."""

from __future__ import annotations

import re

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.schema_options import SchemaConfig


def subject_name(config: SchemaConfig, topic: str | None, record: str | None) -> str:
    """Returns the subject of a part's schema.

    Args:
        config: settings of the part.
        topic: the topic; None if each row names its own.
        record: full name of the schema's record; None for another type, or if it is not known.

    Raises:
        OptionError: the strategy needs a topic or a name that does not exist.
    """
    option = "subject.name.strategy"
    check_topic(config, topic)
    if config.strategy == "topic":
        return f"{topic}-{config.part}"
    if record is None:
        raise OptionError(
            f"option {option}: {config.strategy} needs the name of a record; {_where_to_name(config)}", option=option
        )
    return record if config.strategy == "record" else f"{topic}-{record}"


def check_topic(config: SchemaConfig, topic: str | None) -> None:
    """Raises OptionError if the subject is named after the topic, and each row names its own."""
    option = "subject.name.strategy"
    if topic is None and config.strategy != "record":
        named = "" if config.text is not None or config.name is not None else f" with {config.part}.schema.name"
        raise OptionError(
            f"option {option}: {config.strategy} needs the option topic, because rows name their own topics;"
            f" set the option topic, {option}=record{named}, or {config.part}.use.schema.id",
            option=option,
        )


def derived_name(config: SchemaConfig, topic: str | None) -> str:
    """Returns the full name of a derived record: that of the option, or the topic's name with `_key` or `_value`."""
    if config.name is not None:
        return config.name
    if topic is None:
        option = f"{config.part}.schema.name"
        raise OptionError(
            f"option {option} is required: the derived record has no name, because the option topic is not set", option=option
        )
    return re.sub(r"^(?=\d)", "_", re.sub(r"[^A-Za-z0-9_]", "_", f"{topic}_{config.part}"))


def _where_to_name(config: SchemaConfig) -> str:
    if config.is_registrys:
        return f"set {config.part}.schema.name"
    if config.format == "json-schema":
        return f"give the schema of {config.part} a title, or use topic"
    return f"the schema of {config.part} is not a record; use topic"
