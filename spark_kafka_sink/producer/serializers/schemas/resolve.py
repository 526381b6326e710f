"""Finds the schema of keys or values in the registry, and compares it with the columns before any row is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from spark_kafka_sink.errors import RegistryError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.producer.serializers.schemas.formats import schema_format
from spark_kafka_sink.producer.serializers.schemas.resolved_schema import ResolvedSchema
from spark_kafka_sink.producer.serializers.schemas.subjects import derived_name, subject_name
from spark_kafka_sink.registry.references import SchemaText
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.schema_options import SchemaConfig


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
    refuse_rules(config, RegisteredSchema(given, 0))
    refuse_rules_of_subject(config, subject, client)
    found = _known_or_registered(config, subject, given, client)
    # Written is what the registry hands to readers. It may have added rules, and a registry that normalizes may know the schema
    # with another order of fields.
    return _readers_schema(config, subject, client.by_id(found.schema_id, subject), kind, client)


def own_schema(config: SchemaConfig, topic: str | None, kind: pa.DataType | None) -> SchemaText:
    """Returns the given schema, or the one of the column. Raises SchemaError if the column does not fit."""
    used = schema_format(config.format)
    if config.text is not None:
        prepared(config, "", RegisteredSchema(SchemaText(used.kind, config.text), 0), {}, kind, f"option {config.part}.schema")
        return SchemaText(used.kind, config.text)
    if kind is None:
        raise SchemaError(
            f"{config.part}: a single value does not show the types of a schema; set {config.part}.schema,"
            f" {config.part}.use.latest.version or {config.part}.use.schema.id",
            part=config.part,
        )
    try:
        return SchemaText(used.kind, used.derive(kind, derived_name(config, topic)))
    except SchemaError as error:
        raise SchemaError(f"{config.part}: no schema can be derived: {error.message}", **error.facts) from None


def own_subject(config: SchemaConfig, topic: str | None, schema: SchemaText) -> str:
    """Returns the subject of a schema that is not the registry's."""
    if config.strategy == "topic":
        return subject_name(config, topic, None)
    used = schema_format(config.format)
    return subject_name(config, topic, used.load(*used.prepared(schema.text, {}, config.message)).record_name)


def registrys(config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient) -> ResolvedSchema:
    """Returns the registry's schema that the options name. Raises what `resolved` raises, and registers nothing."""
    found = _named_by_options(config, topic, client)
    if config.schema_id is not None and topic is not None and config.strategy == "topic":
        refuse_rules_of_subject(config, f"{topic}-{config.part}", client)
    return _readers_schema(config, found.subject, found, kind, client)


def _readers_schema(
    config: SchemaConfig, subject: str, found: RegisteredSchema, kind: pa.DataType | None, client: RegistryClient
) -> ResolvedSchema:
    """Returns a schema of the registry as readers get it. Raises SchemaError if it has rules, or the column does not fit."""
    if found.schema.kind != schema_format(config.format).kind:
        raise SchemaError(
            f"{config.part}: schema {found.schema_id} is {found.schema.kind}, and {config.part}.format is {config.format}",
            part=config.part,
            schema_id=found.schema_id,
        )
    named = {name: used.text for name, used in client.references(found.schema).items()}
    refuse_rules(config, found, named.values())
    return prepared(config, subject, found, named, kind)


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


def refuse_rules(config: SchemaConfig, found: RegisteredSchema, used: Iterable[str] = ()) -> None:
    """Raises SchemaError for a schema with active rules. Ignoring them would write in clear what somebody wants encrypted.

    Args:
        config: settings of the part.
        found: the schema.
        used: texts of the schemas that it uses.
    """
    part, inline = config.part, schema_format(config.format).inline_rules
    number = f"schema {found.schema_id}" if found.schema_id else f"option {part}.schema: the schema"
    rules = (*found.rules, *(rule for text in (found.schema.text, *used) for rule in inline(text)))
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
        refuse_rules(config, latest)


def prepared(
    config: SchemaConfig,
    subject: str,
    found: RegisteredSchema,
    named: Mapping[str, str],
    kind: pa.DataType | None,
    source: str | None = None,
) -> ResolvedSchema:
    """Returns a schema as tasks need it. Raises SchemaError, with every problem, if a column does not fit.

    Args:
        config: settings of the part.
        subject: the schema's subject.
        found: the schema.
        named: texts of the schemas that it refers to, by the name of the reference.
        kind: type of the column; None checks the schema alone.
        source: what the schema is in words; None: the registry's.
    """
    used = schema_format(config.format)
    try:
        text, texts = used.prepared(found.schema.text, named, config.message)
        schema = ResolvedSchema(config.part, config.format, subject, found.schema_id, text, tuple(texts.items()))
        loaded = used.load(text, texts)
        if kind is not None:
            loaded.fit(kind)
    except SchemaError as error:
        shown = source or ResolvedSchema(config.part, config.format, subject, found.schema_id, "")
        raise SchemaError(f"{config.part}: {shown}: {error.message}", **{**error.facts, "part": config.part}) from None
    return schema


def _differences(config: SchemaConfig, latest: RegisteredSchema, given: SchemaText) -> list[str]:
    if latest.schema.kind != given.kind:
        return [f"the schema: was {latest.schema.kind}, is {given.kind}"]
    return schema_format(config.format).differences(latest.schema.text, given.text)


def incompatible(config: SchemaConfig, subject: str, given: SchemaText, client: RegistryClient) -> SchemaIncompatibleError | None:
    """Returns the error about a schema that the registry would not accept under the subject; None if it would."""
    messages = client.misfits(subject, given, normalize=config.normalize)
    if not messages:
        return None
    latest = client.latest(subject)
    changes = [] if latest is None else _differences(config, latest, given)
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
    changes = [] if latest is None else _differences(config, latest, given)
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
