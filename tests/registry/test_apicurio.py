"""The client on a real registry, with confluent-kafka's client as the witness: both get the same answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError

from spark_kafka_sink.errors import RegistryError, SchemaIncompatibleError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient, SchemaReference, SchemaText
from tests.registry.apicurio import Apicurio

pytestmark = pytest.mark.java


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
CHANNEL = {"name": "channel", "type": "string"}
ORDER = record(ID)
WITH_DEFAULT = record(ID, {"name": "channel", "type": ["null", "string"], "default": None})
WITHOUT_DEFAULT = record(ID, CHANNEL)
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; message Line { string sku = 1; } }'
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'


@pytest.fixture
def ours(apicurio: Apicurio) -> RegistryClient:
    return RegistryClient(registry_config({"schema.registry.url": apicurio.url, "schema.registry.max.retries": "0"}))


@pytest.fixture
def theirs(apicurio: Apicurio) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": apicurio.url, "max.retries": 0}) as client:
        yield client


def as_theirs(schema: SchemaText) -> Schema:
    references = [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references]
    return Schema.from_dict({"schema": schema.text, "schemaType": schema.kind, "references": references})


def as_ours(schema: Any) -> SchemaText:
    references = tuple(SchemaReference(each.name, each.subject, each.version) for each in schema.references or [])
    return SchemaText(schema.schema_type, schema.schema_str, references)


def facts(found: RegisteredSchema) -> tuple[object, ...]:
    return found.schema, found.schema_id, found.subject, found.version


def their_facts(found: Any) -> tuple[object, ...]:
    return as_ours(found.schema), found.schema_id, found.subject, found.version


KINDS = {"AVRO": ORDER, "PROTOBUF": PROTO, "JSON": JSON_SCHEMA}


@pytest.mark.parametrize("kind", KINDS)
def test_both_clients_get_the_same_answers(
    kind: str, ours: RegistryClient, theirs: SchemaRegistryClient, new_subject: Callable[[], str]
) -> None:
    subject, schema = new_subject(), SchemaText(kind, KINDS[kind])

    made = ours.register(subject, schema)

    assert made.schema_id == theirs.register_schema(subject, as_theirs(schema)) == ours.register(subject, schema).schema_id
    latest = ours.latest(subject)
    assert latest is not None
    assert facts(latest) == their_facts(theirs.get_latest_version(subject)) == (schema, made.schema_id, subject, 1)
    assert facts(ours.version(subject, 1)) == their_facts(theirs.get_version(subject, 1))
    assert ours.by_id(made.schema_id).schema == as_ours(theirs.get_schema(made.schema_id)) == schema
    assert ours.by_id(made.schema_id, subject).schema == schema
    looked_up, theirs_looked_up = ours.look_up(subject, schema), theirs.lookup_schema(subject, as_theirs(schema))
    assert looked_up is not None
    assert (looked_up.schema_id, looked_up.version) == (theirs_looked_up.schema_id, theirs_looked_up.version)
    assert (latest.rules, latest.guid) == ((), None)


def test_a_schema_of_two_subjects_has_one_id(ours: RegistryClient, new_subject: Callable[[], str]) -> None:
    schema = SchemaText("AVRO", record(ID, name="Shared"))

    first, second = ours.register(new_subject(), schema), ours.register(f"a/b ü {new_subject()}", schema)

    assert first.schema_id == second.schema_id
    latest = ours.latest(second.subject)
    assert latest is not None
    assert facts(latest) == (schema, second.schema_id, second.subject, 1)


def test_white_space_does_not_matter_if_schemas_are_normalized(ours: RegistryClient, new_subject: Callable[[], str]) -> None:
    subject = new_subject()
    spaced = SchemaText("AVRO", json.dumps(json.loads(ORDER), indent=2))

    first = ours.register(subject, SchemaText("AVRO", ORDER))

    assert ours.register(subject, spaced, normalize=True).schema_id == first.schema_id
    assert ours.look_up(subject, spaced, normalize=True) is not None


def test_compatibility_is_checked_before_and_when_a_schema_is_registered(
    ours: RegistryClient, theirs: SchemaRegistryClient, new_subject: Callable[[], str]
) -> None:
    subject = new_subject()
    good, bad = SchemaText("AVRO", WITH_DEFAULT), SchemaText("AVRO", WITHOUT_DEFAULT)
    assert ours.misfits(subject, good) == []
    ours.register(subject, SchemaText("AVRO", ORDER))
    theirs.set_config(subject, ServerConfig.from_dict({"compatibility": "BACKWARD"}))

    assert theirs.test_compatibility(subject, as_theirs(good))
    assert ours.misfits(subject, good) == []
    assert not theirs.test_compatibility(subject, as_theirs(bad))
    assert ours.misfits(subject, bad) == ["the registry gave no reason"]
    with pytest.raises(SchemaIncompatibleError, match=r"No default|no default|without default|/fields/1") as error:
        ours.register(subject, bad)
    with pytest.raises(SchemaRegistryError) as same:
        theirs.register_schema(subject, as_theirs(bad))
    assert (error.value.facts["status"], error.value.facts["error_code"]) == (409, same.value.error_code)


def test_references_are_found(ours: RegistryClient, theirs: SchemaRegistryClient, new_subject: Callable[[], str]) -> None:
    inner_subject, subject = new_subject(), new_subject()
    inner = SchemaText("AVRO", record(ID, name="Inner"))
    ours.register(inner_subject, inner)
    reference = SchemaReference("shop.Inner", inner_subject, 1)
    outer = SchemaText("AVRO", record({"name": "inner", "type": "shop.Inner"}, name="Outer"), (reference,))

    ours.register(subject, outer)

    latest = ours.latest(subject)
    assert latest is not None
    assert latest.schema == outer == as_ours(theirs.get_latest_version(subject).schema)
    assert ours.references(latest.schema) == {"shop.Inner": inner}


Call = Callable[[RegistryClient, str], object]
TheirCall = Callable[[SchemaRegistryClient, str], object]


@pytest.mark.parametrize(
    ("call", "their_call", "code"),
    [
        (lambda ours, subject: ours.by_id(987_654), lambda theirs, subject: theirs.get_schema(987_654), 40403),
        (lambda ours, subject: ours.version(subject, 9), lambda theirs, subject: theirs.get_version(subject, 9), 40402),
        (lambda ours, subject: ours.version("no-such", 1), lambda theirs, subject: theirs.get_version("no-such", 1), 40401),
        (
            lambda ours, subject: ours.register(subject, SchemaText("AVRO", '{"type": "nonsense"}')),
            lambda theirs, subject: theirs.register_schema(subject, as_theirs(SchemaText("AVRO", '{"type": "nonsense"}'))),
            42201,
        ),
        (
            lambda ours, subject: ours.register(subject, SchemaText("OTHER", ORDER)),
            lambda theirs, subject: theirs.register_schema(subject, as_theirs(SchemaText("OTHER", ORDER))),
            0,
        ),
    ],
    ids=["id", "version", "subject", "schema", "kind"],
)
def test_both_clients_get_the_same_errors(
    call: Call,
    their_call: TheirCall,
    code: int,
    ours: RegistryClient,
    theirs: SchemaRegistryClient,
    new_subject: Callable[[], str],
) -> None:
    subject = new_subject()
    ours.register(subject, SchemaText("AVRO", ORDER))

    with pytest.raises(RegistryError) as error:
        call(ours, subject)
    with pytest.raises(SchemaRegistryError) as same:
        their_call(theirs, subject)

    assert (error.value.facts["status"], error.value.facts["error_code"]) == (same.value.http_status_code, same.value.error_code)
    assert error.value.facts["error_code"] == code


@pytest.mark.fault("schema registry", "deleted subject, version or schema; unknown id")
def test_what_is_deleted_is_gone_and_keeps_its_id_until_it_is_deleted_for_good(
    ours: RegistryClient, theirs: SchemaRegistryClient, new_subject: Callable[[], str]
) -> None:
    subject, schema = new_subject(), SchemaText("AVRO", record(ID, name="Deleted"))
    made = ours.register(subject, schema)
    kept = ours.register(subject, SchemaText("AVRO", ORDER))
    theirs.delete_version(subject, 1)

    with pytest.raises(RegistryError, match="HTTP 404, error 40402"):
        ours.version(subject, 1)
    assert ours.version(subject, 1, deleted=True).schema == schema == as_ours(theirs.get_version(subject, 1, deleted=True).schema)
    assert ours.look_up(subject, schema) is None
    latest = ours.latest(subject)
    assert latest is not None
    assert latest.schema_id == kept.schema_id
    theirs.delete_subject(subject)
    assert ours.latest(subject) is None
    assert ours.look_up(subject, schema) is None
    assert as_ours(theirs.get_schema(made.schema_id)) == schema
    theirs.delete_subject(subject, permanent=True)
    assert ours.latest(subject) is None
    with pytest.raises(RegistryError, match="HTTP 404, error 40403"):
        ours.by_id(made.schema_id)


def test_a_url_without_the_path_of_the_api_is_an_error(apicurio: Apicurio) -> None:
    root = apicurio.url.removesuffix("/apis/ccompat/v7")
    refused = pytest.raises(RegistryError, match=r"HTTP 404.*Check the path of schema\.registry\.url")
    with RegistryClient(registry_config({"schema.registry.url": root})) as client, refused:
        client.latest("s")
