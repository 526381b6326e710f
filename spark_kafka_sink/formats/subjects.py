"""Subjects of a registry: their names, the schemas that they accept, and the registration of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from spark_kafka_sink.errors import OptionError, RegistryError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.formats.schema_format import NAME_DIFFERS, schema_format
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaText


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


_NEEDED: Final = ("without a default", ", required")
"""Ends the line about a new field that records without it do not fit."""


def _differences(config: SchemaConfig, latest: RegisteredSchema, given: SchemaText) -> list[str]:
    if latest.schema.kind != given.kind:
        return [f"the schema: was {latest.schema.kind}, is {given.kind}"]
    return schema_format(config.format).differences(latest.schema.text, given.text)


def refuse_incompatible(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> None:
    """Raises SchemaIncompatibleError, which names the fields, if the registry would not accept a schema under the subject."""
    messages = client.misfits(subject, given, normalize=config.normalize)
    if not messages:
        return
    latest = client.latest(subject)
    changes = [] if latest is None else [client.shown(each) for each in _differences(config, latest, given)]
    version = "" if latest is None or latest.version is None else f" (compared with version {latest.version})"
    lines = [f"subject {subject}: the schema of {config.part} is not compatible with the subject's schemas."]
    if changes:
        lines += [f"The schemas differ{version}:", *_listed(changes)]
    lines += ["The registry's reasons:", *_listed(messages)]
    if latest is not None and latest.schema.kind != given.kind:
        lines.append(f"Write to another topic, or set {config.part}.format to the format of the subject.")
    elif config.text is None and changes and changes[0].startswith(NAME_DIFFERS):
        part = config.part
        lines.append(f"Set {part}.schema.name to the name of the subject's record, or {part}.use.latest.version=true.")
    else:
        needed = config.text is None and any(one.endswith(_NEEDED) for one in changes if ": new, " in one)
        what = "Make the new columns nullable" if needed else "Change the columns"
        lines.append(f"{what}, set {config.part}.schema, or change the subject's compatibility level.")
    raise SchemaIncompatibleError("\n".join(lines), subject=subject, fields=tuple(changes), messages=tuple(messages))


def _listed(texts: Sequence[str]) -> list[str]:
    """Returns lines that can also be read as one."""
    return [f"  {text}{';' if place < len(texts) else '.'}" for place, text in enumerate(texts, 1)]


def not_registered(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> RegistryError:
    """Returns the error about a schema that the registry does not have and that must not be registered."""
    latest = client.latest(subject)
    changes = [] if latest is None else [client.shown(each) for each in _differences(config, latest, given)]
    listed = "".join(f"\n{line}" for line in _listed(changes))
    differs = f" It differs from version {latest.version}:{listed}" if latest is not None and changes else ""
    return RegistryError(
        f"subject {subject}: the registry does not have the schema of {config.part}, and auto.register.schemas is false;"
        f" register it, or set auto.register.schemas=true.{differs}",
        subject=subject,
        fields=tuple(changes),
    )


def register(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> RegisteredSchema:
    """Registers a schema. Raises SchemaIncompatibleError, which names the fields, if another driver was first."""
    try:
        return client.register(subject, given, normalize=config.normalize)
    except SchemaIncompatibleError:
        refuse_incompatible(config, subject, given, client)
        raise


def refuse_rules(
    config: SchemaConfig, found: RegisteredSchema, used: Iterable[str] = (), *, shown: Callable[[str], str] = str
) -> None:
    """Raises SchemaError for a schema with active rules. Ignoring them would write in clear what somebody wants encrypted.

    Args:
        config: settings of the part.
        found: the schema.
        used: texts of the schemas that it uses.
        shown: makes names of the schema printable, without the login.
    """
    part, inline = config.part, schema_format(config.format).inline_rules
    number = (
        f"schema {found.schema_id}" + (f" of subject {found.subject}" if found.subject else "")
        if found.schema_id
        else f"option {part}.schema: the schema"
    )
    rules = (*found.rules, *(shown(rule) for text in (found.schema.text, *used) for rule in inline(text)))
    if rules:
        raise SchemaError(
            f"{part}: {number} has rules, which are not supported: {', '.join(rules)}."
            " Without them, data would be written that should have been encrypted, checked or changed;"
            " use a subject without rules",
            part=part,
            schema_id=found.schema_id,
            rules=rules,
        )


def refuse_rules_of_subject(config: SchemaConfig, subject: str, client: RegistryClient) -> None:
    """Raises SchemaError if the subject's latest schema has rules.

    A schema that is derived or given has none itself, so it would be registered as a version without the rules.
    """
    latest = client.latest(subject)
    if latest is not None:
        refuse_rules(config, latest, shown=client.shown)
