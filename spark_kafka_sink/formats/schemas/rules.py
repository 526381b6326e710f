"""Refuses schemas with rules of Confluent's registry, such as encryption. This package does not run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.schemas.formats import schema_format
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient


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
