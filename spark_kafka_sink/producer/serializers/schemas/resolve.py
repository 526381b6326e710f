"""Finds the schema of keys or values in the registry, and compares it with the columns before any row is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import RegistryError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.producer.serializers.avro.avro_derive import derive
from spark_kafka_sink.producer.serializers.avro.avro_fit import fit
from spark_kafka_sink.producer.serializers.avro.avro_schema import full_name, parse
from spark_kafka_sink.producer.serializers.schemas.differences import differences
from spark_kafka_sink.producer.serializers.schemas.resolved_schema import ResolvedSchema
from spark_kafka_sink.producer.serializers.schemas.subjects import derived_name, subject_name
from spark_kafka_sink.registry.references import SchemaText
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.schema_options import SchemaConfig

AVRO: Final = "AVRO"
_INLINE: Final = "confluent:rules"


def resolved(config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient) -> ResolvedSchema:
    """Returns the schema to write with. Registers it if it is new and the options allow that.

    Args:
        config: settings of the part.
        topic: the topic; None if each row names its own.
        kind: type of the column; None if it is not known, which needs a given schema or the registry's.
        client: the registry's client.

    Raises:
        RegistryError: the registry cannot be reached, refuses the request, or does not have the schema.
        SchemaIncompatibleError: the registry does not accept the schema beside the subject's others.
        SchemaError: the column does not fit the schema, or the schema has rules.
        OptionError: the subject cannot be named.
    """
    if config.is_registrys:
        return registrys(config, topic, kind, client)
    given = own_schema(config, topic, kind)
    subject = own_subject(config, topic, given)
    refuse_rules(config.part, RegisteredSchema(given, 0))
    refuse_rules_of_subject(config.part, subject, client)
    found = _known_or_registered(config, subject, given, client)
    # Written is what the registry hands to readers. It may have added rules, and a registry that normalizes may know the schema
    # with another order of fields.
    return _readers_schema(config, subject, client.by_id(found.schema_id, subject), kind, client)


def own_schema(config: SchemaConfig, topic: str | None, kind: pa.DataType | None) -> SchemaText:
    """Returns the given schema, or the one of the column. Raises SchemaError if the column does not fit."""
    if config.text is not None:
        check_fit(ResolvedSchema(config.part, "", 0, config.text), kind, f"option {config.part}.schema")
        return SchemaText(AVRO, config.text)
    if kind is None:
        raise SchemaError(
            f"{config.part}: a single value does not show the types of a schema; set {config.part}.schema,"
            f" {config.part}.use.latest.version or {config.part}.use.schema.id",
            part=config.part,
        )
    try:
        return SchemaText(AVRO, derive(kind, derived_name(config, topic)))
    except SchemaError as error:
        raise SchemaError(f"{config.part}: no schema can be derived: {error.message}", **error.facts) from None


def own_subject(config: SchemaConfig, topic: str | None, schema: SchemaText) -> str:
    """Returns the subject of a schema that is not the registry's."""
    return subject_name(config, topic, full_name(parse(schema.text)))


def registrys(config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient) -> ResolvedSchema:
    """Returns the registry's schema that the options name. Raises what `resolved` raises, and registers nothing."""
    found = _named_by_options(config, topic, client)
    if config.schema_id is not None and topic is not None and config.strategy == "topic":
        refuse_rules_of_subject(config.part, f"{topic}-{config.part}", client)
    return _readers_schema(config, found.subject, found, kind, client)


def _readers_schema(
    config: SchemaConfig, subject: str, found: RegisteredSchema, kind: pa.DataType | None, client: RegistryClient
) -> ResolvedSchema:
    """Returns a schema of the registry as readers get it. Raises SchemaError if it has rules, or the column does not fit."""
    if found.schema.kind != AVRO:
        raise SchemaError(
            f"{config.part}: schema {found.schema_id} is {found.schema.kind}, and {config.part}.format is {config.format}",
            part=config.part,
            schema_id=found.schema_id,
        )
    named = {name: used.text for name, used in client.references(found.schema).items()}
    refuse_rules(config.part, found, named.values())
    schema = ResolvedSchema(config.part, subject, found.schema_id, found.schema.text, tuple(named.items()))
    check_fit(schema, kind)
    return schema


def _named_by_options(config: SchemaConfig, topic: str | None, client: RegistryClient) -> RegisteredSchema:
    if config.schema_id is not None:
        subject = f"{topic}-{config.part}" if topic is not None and config.strategy == "topic" else None
        return client.by_id(config.schema_id, subject)
    subject = subject_name(config, topic, config.name)
    found = client.latest(subject)
    if found is None:
        raise RegistryError(
            f"subject {subject}: the registry has no such subject, and {config.part}.use.latest.version is set;"
            " register a schema, or remove the option",
            subject=subject,
        )
    return found


def refuse_rules(part: str, found: RegisteredSchema, used: Iterable[str] = ()) -> None:
    """Raises SchemaError for a schema with active rules. Ignoring them would write in clear what somebody wants encrypted.

    Args:
        part: key or value.
        found: the schema.
        used: texts of the schemas that it uses.
    """
    number = f"schema {found.schema_id}" if found.schema_id else f"option {part}.schema: the schema"
    rules = (*found.rules, *(rule for text in (found.schema.text, *used) for rule in _inline_rules(text)))
    if rules:
        raise SchemaError(
            f"{part}: {number} has rules, which are not supported: {', '.join(rules)}."
            " Without them, data would be written that should have been encrypted, checked or changed;"
            " use a subject without rules",
            part=part,
            schema_id=found.schema_id,
            rules=rules,
        )


def refuse_rules_of_subject(part: str, subject: str, client: RegistryClient) -> None:
    """Raises SchemaError if the subject's latest schema has rules.

    A schema that is derived or given has none itself, so it would be registered as a version without the rules.
    """
    latest = client.latest(subject)
    if latest is not None:
        refuse_rules(part, latest)


def _inline_rules(text: str) -> list[str]:
    """Returns the fields of a schema that have rules of their own."""
    found: list[str] = []

    def seen(pairs: dict[str, Any]) -> dict[str, Any]:
        if pairs.get(_INLINE):
            found.append(f"{pairs.get('name', 'a type')} ({_INLINE})")
        return pairs

    try:
        json.loads(text, object_hook=seen)
    except ValueError:  # the bare name of a primitive type; anything else is refused as a schema
        return [_INLINE] if _INLINE in text else []
    return found


def check_fit(schema: ResolvedSchema, kind: pa.DataType | None, source: str | None = None) -> None:
    """Raises SchemaError, with every problem, if a column does not fit.

    Args:
        schema: the schema.
        kind: type of the column; None checks the schema alone.
        source: what the schema is in words; None: the registry's.
    """
    try:
        tree = parse(schema.text, dict(schema.named))
        if kind is not None:
            fit(tree, kind)
    except SchemaError as error:
        raise SchemaError(f"{schema.part}: {source or schema}: {error.message}", **{**error.facts, "part": schema.part}) from None


def incompatible(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> SchemaIncompatibleError | None:
    """Returns the error about a schema that the registry would not accept under the subject; None if it would."""
    messages = client.misfits(subject, given, normalize=config.normalize)
    if not messages:
        return None
    latest = client.latest(subject)
    changes = [] if latest is None else differences(latest.schema.text, given.text)
    version = "" if latest is None or latest.version is None else f" (compared with version {latest.version})"
    lines = [f"subject {subject}: the schema of {config.part} is not compatible with the subject's schemas."]
    if changes:
        lines += [f"The schemas differ{version}:", *_listed(changes)]
    lines += ["The registry's reasons:", *_listed(messages)]
    lines.append(f"Change the columns, set {config.part}.schema, or change the subject's compatibility level.")
    return SchemaIncompatibleError("\n".join(lines), subject=subject, fields=tuple(changes), messages=tuple(messages))


def _listed(texts: Sequence[str]) -> list[str]:
    """Returns lines that can also be read as one."""
    return [f"  {text}{';' if place < len(texts) else '.'}" for place, text in enumerate(texts, 1)]


def not_registered(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> RegistryError:
    """Returns the error about a schema that the registry does not have and that must not be registered."""
    latest = client.latest(subject)
    changes = [] if latest is None else differences(latest.schema.text, given.text)
    listed = "".join(f"\n{line}" for line in _listed(changes))
    differs = f" It differs from version {latest.version}:{listed}" if latest is not None and changes else ""
    return RegistryError(
        f"subject {subject}: the registry does not have the schema of {config.part}, and auto.register.schemas is false;"
        f" register it, or set auto.register.schemas=true.{differs}",
        subject=subject,
        fields=tuple(changes),
    )


def _known_or_registered(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> RegisteredSchema:
    found = client.look_up(subject, given, normalize=config.normalize)
    if found is not None:
        return found
    if not config.auto_register:
        raise not_registered(config, subject, given, client)
    error = incompatible(config, subject, given, client)
    if error is not None:
        raise error
    return client.register(subject, given, normalize=config.normalize)
