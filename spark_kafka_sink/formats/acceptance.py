"""Compares a schema with the others of its subject, and registers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from spark_kafka_sink.errors import RegistryError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.formats.schema_format import NAME_DIFFERS, schema_format
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaText

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
