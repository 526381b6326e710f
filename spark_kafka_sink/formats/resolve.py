"""Finds the schema of keys or values in the registry, and compares it with the columns before any row is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_kafka_sink.errors import RegistryError, SchemaError
from spark_kafka_sink.formats.schema_format import SchemaFile, schema_format
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema, id_header
from spark_kafka_sink.formats.subjects import (
    check_topic,
    derived_name,
    not_registered,
    refuse_incompatible,
    refuse_rules,
    refuse_rules_of_subject,
    register,
    subject_name,
)
from spark_kafka_sink.options.schema_options import SchemaConfig
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema that fits its columns, and that the registry does not have and would accept.

    Keys and values are both checked before either is registered, so a mistake in one leaves nothing of the other behind.

    Attributes:
        config: settings of the part.
        kind: type of the column; None if it is not known.
        subject: the subject in the registry.
        own: the schema.
        given: the same with references to the files that it comes with; None: one of them is new, too.
    """

    config: SchemaConfig
    kind: pa.DataType | None
    subject: str
    own: OwnSchema
    given: SchemaText | None


def registered(found: ResolvedSchema | NewSchema, client: RegistryClient) -> ResolvedSchema:
    """Returns the schema to write with, and registers it if it is new.

    Raises:
        RegistryError: the registry cannot be reached, or refuses the request.
        SchemaIncompatibleError: the registry does not accept the schema beside the subject's others.
        SchemaError: the registry added rules to the schema.
    """
    if isinstance(found, ResolvedSchema):
        return found
    found = with_registered_files(found, client)
    assert found.given is not None
    new = register(found.config, found.subject, found.given, client)
    # Written is what the registry hands to readers. It may have added rules, and a registry that normalizes may know the schema
    # with another order of fields.
    return readers_schema(found.config, found.subject, new, found.kind, client)


def with_registered_files(found: NewSchema, client: RegistryClient) -> NewSchema:
    """Returns the schema after the registry has accepted it. Registers the new files that it comes with, but not itself.

    The registry cannot compare a schema before it has these files.

    Raises:
        RegistryError: the registry cannot be reached, or refuses the request.
        SchemaIncompatibleError: the registry would not accept the schema, or does not accept a file.
    """
    if found.given is not None:
        return found
    given = with_files(found.config, found.own, client)
    refuse_incompatible(found.config, found.subject, given, client)
    return replace(found, given=given)


def checked(
    config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient
) -> ResolvedSchema | NewSchema:
    """Finds a schema and compares it with the columns and with the registry. Registers nothing.

    Args:
        config: settings of the part.
        topic: the topic; None if each row names its own.
        kind: type of the column; None if it is not known, which needs a given schema or the registry's.
        client: the registry's client.

    Raises:
        RegistryError: the registry cannot be reached, refuses the request, does not have the schema, or has no guids.
        SchemaIncompatibleError: the registry would not accept the schema beside the subject's others.
        SchemaError: the column does not fit the schema, or the schema has rules.
        OptionError: the subject cannot be named.
    """
    if config.is_registrys:
        return registrys(config, topic, kind, client)
    check_topic(config, topic)
    own = own_schema(config, topic, kind, client)
    subject = own_subject(config, topic, own)
    texts = (*(file.text for file in own.files[:-1]), *own.named.values())
    refuse_rules(config, RegisteredSchema(SchemaText("", own.text), 0, rules=own.rules), texts)
    refuse_rules_of_subject(config, subject, client)
    given = known_files(config, own, client)
    if given is not None:
        found = client.look_up(subject, given, normalize=config.normalize)
        if found is not None:
            return readers_schema(config, subject, found, kind, client)
        if not config.auto_register:
            raise not_registered(config, subject, given, client)
        refuse_incompatible(config, subject, given, client)
    if config.id_in == "header" and not client.has_guids():
        raise _no_guids(config, subject, f"cannot find schemas by guid, and the schema of {config.part} was not registered")
    return NewSchema(config, kind, subject, own, given)


@dataclass(frozen=True, slots=True)
class OwnSchema:
    """A schema that is given or derived, and not the registry's.

    Attributes:
        text: the schema.
        files: what to register of it; the schema itself is the last.
        references: the schemas of the registry that it uses.
        named: the texts of these and of those that they use, by the name of the reference.
        rules: the active rules of these.
    """

    text: str
    files: Sequence[SchemaFile]
    references: tuple[SchemaReference, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()


def own_schema(config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient) -> OwnSchema:
    """Returns the given schema, or the one of the column. Raises SchemaError if the column does not fit."""
    used = schema_format(config.format)
    if config.text is not None:
        references = tuple(SchemaReference(*one) for one in config.references)
        others = client.used_by(SchemaText(used.kind, "", references))
        named = {name: one.schema.text for name, one in others.items()}
        rules = tuple(rule for one in others.values() for rule in one.rules)
        source = f"option {config.part}.schema"
        prepared(config, "", RegisteredSchema(SchemaText(used.kind, config.text), 0), named, kind, source)
        return OwnSchema(config.text, used.files(config.text, config.message), references, named, rules)
    if kind is None:
        raise SchemaError(
            f"{config.part}: a single value does not show the types of a schema; set {config.part}.schema,"
            f" {config.part}.use.latest.version or {config.part}.use.schema.id",
            part=config.part,
        )
    try:
        name = derived_name(config, topic)
        text = used.derive(kind, name, lambda: _latest(used.kind, subject_name(config, topic, name), client))
    except SchemaError as error:  # it may have text of the registry's schemas
        raise client.hidden(SchemaError(f"{config.part}: no schema can be derived: {error.message}", **error.facts)) from None
    return OwnSchema(text, (SchemaFile("", text),))


def _latest(kind: str, subject: str, client: RegistryClient) -> tuple[str, str, Mapping[str, str]] | None:
    found = client.latest(subject)
    if found is None:
        return None
    if found.schema.kind != kind:  # its numbers or names would be forgotten
        raise SchemaError(f"the latest version of subject {subject} is {found.schema.kind}, not {kind}: give a schema")
    named = {name: one.schema.text for name, one in client.used_by(found.schema).items()}
    return f"version {found.version} of subject {subject}", found.schema.text, named


def own_subject(config: SchemaConfig, topic: str | None, own: OwnSchema) -> str:
    """Returns the subject of a schema that is not the registry's."""
    if config.strategy == "topic":
        return subject_name(config, topic, None)
    used = schema_format(config.format)
    return subject_name(config, topic, used.load(*used.prepared(own.text, own.named, config.message)).record_name)


def known_files(config: SchemaConfig, own: OwnSchema, client: RegistryClient) -> SchemaText | None:
    """Returns what `with_files` returns, and registers nothing. Returns None if a file is new, so it has no version yet.

    Raises:
        RegistryError: the registry does not have a file, and it may not be registered.
        SchemaIncompatibleError: the registry would not accept a file.
        SchemaError: a file, or the latest version in its subject, has rules.
    """
    known = dict[str, SchemaReference]()
    for file in own.files[:-1]:
        if not known.keys() >= set(file.uses):  # what it uses is new, so it cannot be asked for
            refuse_rules_of_subject(config, file.name, client)
            continue
        text = _file_text(config, file, known)
        found = client.look_up(file.name, text, normalize=config.normalize)
        if found is not None:
            known[file.name] = _reference(config, file.name, text, found, client)
            continue
        if not config.auto_register:
            raise not_registered(config, file.name, text, client)
        refuse_rules_of_subject(config, file.name, client)
        refuse_incompatible(config, file.name, text, client)
    last = own.files[-1]
    return _file_text(config, last, known, own.references) if known.keys() >= set(last.uses) else None


def with_files(config: SchemaConfig, own: OwnSchema, client: RegistryClient) -> SchemaText:
    """Returns the schema with references to the files that it comes with, and registers those that are new.

    Their names are their subjects, Confluent's default.

    Args:
        config: settings of the part.
        own: the schema.
        client: the registry's client.

    Raises:
        SchemaIncompatibleError: the registry does not accept a file.
    """
    known = dict[str, SchemaReference]()
    for file in own.files[:-1]:
        text = _file_text(config, file, known)
        found = client.look_up(file.name, text, normalize=config.normalize)
        if found is None:
            refuse_incompatible(config, file.name, text, client)
            found = register(config, file.name, text, client)
        known[file.name] = _reference(config, file.name, text, found, client)
    return _file_text(config, own.files[-1], known, own.references)


def _file_text(
    config: SchemaConfig, file: SchemaFile, known: Mapping[str, SchemaReference], more: tuple[SchemaReference, ...] = ()
) -> SchemaText:
    return SchemaText(schema_format(config.format).kind, file.text, (*more, *(known[name] for name in file.uses)))


def _reference(
    config: SchemaConfig, name: str, text: SchemaText, found: RegisteredSchema, client: RegistryClient
) -> SchemaReference:
    """Returns the reference to a registered file. Raises SchemaError if it has rules."""
    if found.version is None:  # some registries answer with the id alone
        found = client.look_up(name, text, normalize=config.normalize) or found
    if found.version is None:
        raise RegistryError(f"subject {name}: the registry did not say which version it has", subject=name)
    refuse_rules(config, found, shown=client.shown)
    return SchemaReference(name, name, found.version)


def registrys(config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient) -> ResolvedSchema:
    """Returns the registry's schema that the options name. Raises what `checked` raises."""
    found = _named_by_options(config, topic, client)
    if config.schema_id is not None and topic is not None and config.strategy == "topic":
        refuse_rules_of_subject(config, f"{topic}-{config.part}", client)
    elif config.metadata is not None:
        refuse_rules_of_subject(config, found.subject, client)
    schema = _as_readers_get_it(config, found.subject, found, kind, client)
    if config.schema_id is not None and (topic is None or config.strategy != "topic"):
        record = schema_format(config.format).load(schema.text, dict(schema.named)).record_name
        if record is not None and (config.strategy == "record" or (config.strategy == "topic-record" and topic is not None)):
            refuse_rules_of_subject(config, subject_name(config, topic, record), client)
        else:
            _refuse_rules_of_all_subjects(config, config.schema_id, client)
    return schema


def _refuse_rules_of_all_subjects(config: SchemaConfig, schema_id: int, client: RegistryClient) -> None:
    """Raises an error if a subject with the schema has rules, or if that cannot be found out.

    The subject of this write is not known: rows name their topics, or the schema has no name.
    """
    subjects = client.subjects_of(schema_id)
    if subjects is None:
        option = f"{config.part}.use.schema.id"
        raise RegistryError(
            f"option {option}: the registry does not tell which subjects have schema {schema_id}, so whether one of them has"
            " rules is not known; set the option topic, and subject.name.strategy=topic",
            option=option,
        )
    for subject in subjects:
        refuse_rules_of_subject(config, subject, client)


def readers_schema(
    config: SchemaConfig, subject: str, found: RegisteredSchema, kind: pa.DataType | None, client: RegistryClient
) -> ResolvedSchema:
    """Returns a schema of the registry by its id, as readers get it. Raises SchemaError if it has rules, or does not fit."""
    by_id = client.by_id(found.schema_id, subject)
    return _as_readers_get_it(config, subject, replace(by_id, guid=by_id.guid or found.guid), kind, client)


def _as_readers_get_it(
    config: SchemaConfig, subject: str, found: RegisteredSchema, kind: pa.DataType | None, client: RegistryClient
) -> ResolvedSchema:
    """Returns a schema of the registry as readers get it. Raises SchemaError if it has rules, or the column does not fit."""
    if found.schema.kind != schema_format(config.format).kind:
        raise SchemaError(
            f"{config.part}: schema {found.schema_id} is {client.shown(found.schema.kind)},"
            f" and {config.part}.format is {config.format}",
            part=config.part,
            schema_id=found.schema_id,
        )
    used = client.used_by(found.schema)
    named = {name: one.schema.text for name, one in used.items()}
    rules = (*found.rules, *(rule for one in used.values() for rule in one.rules))
    refuse_rules(config, replace(found, rules=rules), named.values(), shown=client.shown)
    try:
        schema = prepared(config, subject, found, named, kind)
    except SchemaError as error:  # it has text of the registry's schema
        raise client.hidden(error) from None
    return schema if config.id_in == "prefix" else replace(schema, guid=_guid(config, found, client))


def _guid(config: SchemaConfig, found: RegisteredSchema, client: RegistryClient) -> str:
    """Returns the guid of a schema. Raises RegistryError if the registry has none, or it is not valid."""
    guid = found.guid or client.by_id(found.schema_id, found.subject or None).guid
    if guid is None:
        raise _no_guids(config, found.subject, f"sent no guid of schema {found.schema_id}")
    try:
        id_header(config.part, guid, b"")
    except ValueError:
        text = f"{config.part}: the guid that the registry sent of schema {found.schema_id} is not valid"
        raise RegistryError(text, subject=found.subject) from None
    return guid


def _no_guids(config: SchemaConfig, subject: str, what: str) -> RegistryError:
    return RegistryError(
        f"{config.part}: the registry {what}. schema.id.serializer=header needs guids: use a registry that has them, such as"
        " Confluent Platform 8, or set schema.id.serializer=prefix",
        subject=subject,
    )


def _named_by_options(config: SchemaConfig, topic: str | None, client: RegistryClient) -> RegisteredSchema:
    if config.schema_id is not None:
        subject = f"{topic}-{config.part}" if topic is not None and config.strategy == "topic" else None
        return client.by_id(config.schema_id, subject)
    subject = subject_name(config, topic, config.name)
    if config.metadata is not None:
        found = client.latest_with(subject, dict(config.metadata))
        if found is None:
            wanted = ", ".join(f"{name}={value}" for name, value in config.metadata)
            text = f"subject {subject}: the registry has no schema with the metadata {wanted}; check use.latest.with.metadata"
            raise RegistryError(text, subject=subject)
        return found
    found = client.latest(subject)
    if found is None:
        raise RegistryError(
            f"subject {subject}: the registry has no such subject, and {config.part}.use.latest.version is set;"
            " register a schema, or remove the option",
            subject=subject,
        )
    return found


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
