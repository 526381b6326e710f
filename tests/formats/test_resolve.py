"""The schema that is found in a registry: what is registered, with which references, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import AvroSerializer
from spark_kafka_sink.errors import OptionError, RegistryError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.formats.resolve import (
    NewSchema,
    OwnSchema,
    checked,
    known_files,
    registered,
    with_files,
    with_registered_files,
)
from spark_kafka_sink.formats.schema_format import SchemaFile
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.options.schema_options import SchemaConfig, schema_config
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText
from tests.registry.apicurio import Apicurio
from tests.registry.stand_in import Answer, StandIn

INNER = json.dumps({"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]})
OUTER = json.dumps({"type": "record", "name": "a.Outer", "fields": [{"name": "inner", "type": "a.Inner"}]})
RULES = {"domainRules": [{"name": "ssn", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}]}


def record(kind: str, *more: Mapping[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": kind}, *more]})


WIDER = record("long", {"name": "channel", "type": ["null", "string"], "default": None})


@pytest.fixture
def client(stand_in: StandIn) -> Iterator[RegistryClient]:
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as made:
        yield made


def resolved(config: SchemaConfig, topic: str | None, kind: pa.DataType | None, client: RegistryClient) -> ResolvedSchema:
    return registered(checked(config, topic, kind, client), client)


def sent(stand_in: StandIn) -> list[str]:
    """Returns the subjects that schemas were sent to for registration."""
    paths = [asked.path.partition("?")[0] for asked in stand_in.requests if asked.method == "POST"]
    return [path.split("/")[2] for path in paths if path.startswith("/subjects/") and path.endswith("/versions")]


def test_a_subject_with_another_format_is_named_with_what_to_do(stand_in: StandIn, client: RegistryClient) -> None:
    client.register("events-value", SchemaText("AVRO", record("long")))
    stand_in.fail(*[lambda _: None] * 2, Answer(body={"is_compatible": False}))  # latest, look-up, check
    config = schema_config("value", {"value.schema": '{"type": "object"}'}, "json-schema")
    with pytest.raises(SchemaIncompatibleError) as caught:
        resolved(config, "events", None, client)
    assert "was AVRO, is JSON" in caught.value.message
    assert caught.value.message.endswith("Write to another topic, or set value.format to the format of the subject.")


def test_a_schema_that_another_driver_made_incompatible_names_the_fields(stand_in: StandIn, client: RegistryClient) -> None:
    """The other driver registers its schema after the check of ours, and before ours."""
    client.register("events-value", SchemaText("AVRO", record("long")))

    def as_usual(asked: Any) -> None:
        return None

    stand_in.fail(as_usual, as_usual, Answer(body={"is_compatible": True}))  # latest, look-up, check
    with pytest.raises(SchemaIncompatibleError, match=r"id: was long, is string") as caught:
        resolved(schema_config("value", {"value.schema": record("string")}), "events", None, client)
    assert caught.value.facts["fields"] == ("id: was long, is string",)
    assert sent(stand_in)[-1] == "events-value"


def test_a_derived_schema_whose_name_is_not_the_subjects_says_what_to_set(client: RegistryClient) -> None:
    named = json.dumps({"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]})
    client.register("events-value", SchemaText("AVRO", named))
    kind = pa.struct([pa.field("id", pa.string(), nullable=False)])  # the stand-in compares fields only
    with pytest.raises(SchemaIncompatibleError) as caught:
        checked(schema_config("value", {}), "events", kind, client)
    assert "the name of the record: was shop.Order, is events_value;\n" in caught.value.message
    assert caught.value.message.endswith(
        "Set value.schema.name to the name of the subject's record, or value.use.latest.version=true."
    )


def test_a_new_column_that_is_not_nullable_says_to_make_it_so(client: RegistryClient) -> None:
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    resolved(schema_config("value", {}), "events", kind, client)
    with pytest.raises(SchemaIncompatibleError) as caught:
        checked(schema_config("value", {}), "events", pa.struct([*kind, pa.field("new", pa.int64(), nullable=False)]), client)
    assert "new: new, long, without a default" in caught.value.message
    assert "Make the new columns nullable, set value.schema, or change" in caught.value.message


def test_rows_that_name_their_topics_get_one_error_with_all_there_is_to_set(client: RegistryClient) -> None:
    kind = pa.struct([("id", pa.int64())])
    with pytest.raises(OptionError, match=r"option subject\.name\.strategy: topic needs the option topic") as caught:
        checked(schema_config("value", {}), None, kind, client)
    assert "subject.name.strategy=record with value.schema.name, or value.use.schema.id" in caught.value.message
    options = {"subject.name.strategy": "record", "value.schema.name": "shop.Order"}
    assert resolved(schema_config("value", options), None, kind, client).subject == "shop.Order"


# References


@pytest.mark.parametrize("registry", ["stand_in", pytest.param("apicurio", marks=pytest.mark.java)])
def test_a_schema_with_references_is_registered_and_read(registry: str, request: pytest.FixtureRequest) -> None:
    made: StandIn | Apicurio = request.getfixturevalue(registry)
    topic = "with-references"
    with RegistryClient(registry_config({"schema.registry.url": made.url})) as ours:
        version = ours.register("inner-of-references", SchemaText("AVRO", INNER)).version or 1
    reference = {"name": "a.Inner", "subject": "inner-of-references", "version": version}
    options = {"schema.registry.url": made.url, "schema": OUTER, "schema.references": [reference]}
    serializer = AvroSerializer(options)
    written = [serializer.serialize(topic, {"inner": {"x": 3}})]
    serializer.close()
    again = AvroSerializer({**options, "auto.register.schemas": False})
    written += again.serialize_column(topic, pa.array([{"inner": {"x": 3}}])).to_pylist()
    again.close()
    with SchemaRegistryClient({"url": made.url}) as theirs:
        reader = AvroDeserializer(theirs)
        context = SerializationContext(topic, MessageField.VALUE)
        assert [reader(one, context) for one in written] == [{"inner": {"x": 3}}] * 2
        assert [one.to_dict() for one in theirs.get_latest_version(f"{topic}-value").schema.references or ()] == [reference]


def test_a_reference_that_does_not_exist_is_named(stand_in: StandIn, client: RegistryClient) -> None:
    reference = [{"name": "a.Inner", "subject": "inner", "version": 2}]
    config = schema_config("value", {"value.schema": OUTER, "value.schema.references": reference})
    with pytest.raises(RegistryError, match="could not get version 2 of subject 'inner'"):
        resolved(config, "events", None, client)
    with pytest.raises(SchemaError, match=r'value: option value\.schema: .* type "a.Inner" is not defined'):
        resolved(schema_config("value", {"value.schema": OUTER}), "events", None, client)
    assert sent(stand_in) == []


def test_a_reference_with_rules_is_refused_before_anything_is_registered(stand_in: StandIn, client: RegistryClient) -> None:
    client.register("inner", SchemaText("AVRO", INNER.replace('"int"', '"int", "confluent:rules": [{"name": "r"}]')))
    reference = [{"name": "a.Inner", "subject": "inner", "version": 1}]
    config = schema_config("value", {"value.schema": OUTER, "value.schema.references": reference})
    with pytest.raises(SchemaError, match=r"has rules, which are not supported: x \(confluent:rules\)"):
        resolved(config, "events", None, client)
    assert sent(stand_in) == ["inner"]


@pytest.mark.parametrize("given", [True, False], ids=["given", "latest"])
def test_a_reference_whose_version_has_rules_is_refused(stand_in: StandIn, client: RegistryClient, given: bool) -> None:
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        theirs.register_schema("inner", Schema.from_dict({"schema": INNER, "schemaType": "AVRO", "ruleSet": RULES}))
    options: dict[str, object] = {"use.latest.version": True}
    if given:
        options = {"value.schema": OUTER, "value.schema.references": [{"name": "a.Inner", "subject": "inner", "version": 1}]}
    else:
        client.register("events-value", SchemaText("AVRO", OUTER, (SchemaReference("a.Inner", "inner", 1),)))
    with pytest.raises(SchemaError, match=r"has rules, which are not supported: ssn \(ENCRYPT\)"):
        resolved(schema_config("value", options), "events", None, client)


@pytest.mark.parametrize(
    ("strategy", "subject"), [("record", "a.Inner"), ("topic-record", "events-a.Inner"), ("topic", "events-value")]
)
def test_an_id_does_not_avoid_the_rules_of_its_subject(
    stand_in: StandIn, client: RegistryClient, strategy: str, subject: str
) -> None:
    number = client.register("other", SchemaText("AVRO", INNER)).schema_id
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        theirs.register_schema(subject, Schema.from_dict({"schema": '"long"', "schemaType": "AVRO", "ruleSet": RULES}))
    config = schema_config("value", {"use.schema.id": number, "subject.name.strategy": strategy})
    with pytest.raises(SchemaError, match=r"has rules, which are not supported: ssn \(ENCRYPT\)"):
        resolved(config, "events", None, client)


@pytest.mark.parametrize("strategy", ["topic", "topic-record"])
def test_an_id_without_a_topic_does_not_avoid_the_rules_of_a_subject_that_has_it(
    stand_in: StandIn, client: RegistryClient, strategy: str
) -> None:
    for subject in ("a-value", "b-value"):
        number = client.register(subject, SchemaText("AVRO", INNER)).schema_id
    config = schema_config("value", {"use.schema.id": number, "subject.name.strategy": strategy})
    assert resolved(config, None, None, client).schema_id == number
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        theirs.register_schema("b-value", Schema.from_dict({"schema": INNER, "schemaType": "AVRO", "ruleSet": RULES}))
    with pytest.raises(SchemaError, match=r"schema 2 of subject b-value has rules, which are not supported: ssn \(ENCRYPT\)"):
        resolved(config, None, None, client)


@pytest.mark.parametrize("topic", [None, "events"])
@pytest.mark.parametrize("strategy", ["record", "topic-record"])
def test_an_id_of_a_schema_without_a_name_does_not_avoid_the_rules_of_its_subjects(
    stand_in: StandIn, client: RegistryClient, strategy: str, topic: str | None
) -> None:
    number = client.register("a-value", SchemaText("AVRO", '"long"')).schema_id
    config = schema_config("value", {"use.schema.id": number, "subject.name.strategy": strategy})
    assert resolved(config, topic, None, client).schema_id == number
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        theirs.register_schema("a-value", Schema.from_dict({"schema": '"long"', "schemaType": "AVRO", "ruleSet": RULES}))
    with pytest.raises(SchemaError, match=r"subject a-value has rules, which are not supported: ssn \(ENCRYPT\)"):
        resolved(config, topic, None, client)


def test_an_id_without_a_topic_is_refused_if_the_registry_does_not_tell_its_subjects(
    stand_in: StandIn, client: RegistryClient
) -> None:
    stand_in.tells_subjects = False
    number = client.register("a-value", SchemaText("AVRO", INNER)).schema_id
    with pytest.raises(RegistryError, match=r"option value\.use\.schema\.id: the registry does not tell which subjects"):
        resolved(schema_config("value", {"use.schema.id": number}), None, None, client)
    assert resolved(schema_config("value", {"use.schema.id": number}), "a", None, client).schema_id == number


@pytest.mark.java
def test_apicurio_tells_the_subjects_of_an_id(apicurio: Apicurio) -> None:
    with RegistryClient(registry_config({"schema.registry.url": apicurio.url})) as ours:
        number = ours.register("subject-of-an-id", SchemaText("AVRO", OUTER.replace("a.Inner", "int"))).schema_id
        assert ours.subjects_of(number) == ["subject-of-an-id"]


def test_the_files_of_a_schema_are_registered_under_their_names(stand_in: StandIn, client: RegistryClient) -> None:
    middle = json.dumps({"type": "record", "name": "a.Middle", "fields": [{"name": "inner", "type": "a.Inner"}]})
    files = [SchemaFile("in/ner", INNER), SchemaFile("middle", middle, ("in/ner",)), SchemaFile("", OUTER, ("in/ner", "middle"))]
    other = SchemaReference("other", "other", 4)
    own = OwnSchema(OUTER, files, (other,))
    config = schema_config("value", {})
    with pytest.raises(RegistryError, match=r"subject in/ner: the registry does not have the schema"):
        known_files(schema_config("value", {"auto.register.schemas": False}), own, client)
    assert known_files(config, own, client) is None
    assert sent(stand_in) == []
    found = with_files(config, own, client)
    uses_inner = SchemaReference("in/ner", "in/ner", 1)
    assert found == SchemaText("AVRO", OUTER, (other, uses_inner, SchemaReference("middle", "middle", 1)))
    assert sent(stand_in) == ["in%2Fner", "middle"]
    latest = client.latest("middle")
    assert latest is not None
    assert latest.schema.references == (uses_inner,)
    assert known_files(config, own, client) == found


def test_a_schema_with_new_files_is_compared_before_it_is_registered(stand_in: StandIn, client: RegistryClient) -> None:
    """Keys and values are both brought this far before either is registered."""
    client.register("events-value", SchemaText("AVRO", '"long"'))
    own = OwnSchema(OUTER, [SchemaFile("inner", INNER), SchemaFile("", OUTER, ("inner",))])
    found = NewSchema(schema_config("value", {}), None, "events-value", own, None)
    with pytest.raises(SchemaIncompatibleError, match=r"subject events-value: the schema of value is not compatible"):
        with_registered_files(found, client)
    assert sent(stand_in) == ["events-value", "inner"]
    other = replace(found, subject="other-value")
    with_files = with_registered_files(other, client)
    assert sent(stand_in) == ["events-value", "inner"]
    assert registered(with_files, client).subject == "other-value"
    assert sent(stand_in) == ["events-value", "inner", "other-value"]


def test_text_of_the_registrys_schema_is_printable_and_hides_the_login(stand_in: StandIn) -> None:
    """A registry may echo what it received. Errors about its schema are shown line by line."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["hunter2word"]}},
    ]
    body = {
        "schema": json.dumps({"type": "record", "name": "R", "fields": fields}),
        "id": 7,
        "version": 1,
        "subject": "events-value",
    }
    named = json.dumps({"type": "object", "properties": {"a\x1b[2Jhunter2word": {"type": "integer"}}, "required": ["b"]})
    options = {"schema.registry.url": stand_in.url, "schema.registry.basic.auth.user.info": "me:hunter2word"}
    with RegistryClient(registry_config(options)) as client:
        stand_in.fail(Answer(body=body))
        with pytest.raises(SchemaError) as caught:
            checked(schema_config("value", {"use.latest.version": True}), "events", pa.struct([("id", pa.string())]), client)
        stand_in.fail(Answer(body={**body, "schema": named, "schemaType": "JSON"}))
        kind = pa.struct([("a\x1b[2Jhunter2word", pa.string()), ("b", pa.string())])
        with pytest.raises(SchemaError) as other:
            checked(schema_config("value", {"use.latest.version": True}, "json-schema"), "events", kind, client)
        stand_in.fail(Answer(status=404, body={"error_code": 50001, "message": "x"}))
        with pytest.raises(RegistryError) as third:
            client.latest("hunter2word\x1b[2J")
    assert "\n  id: " in caught.value.message
    for error in (caught.value, other.value, third.value):
        assert "hunter2word" not in str(error) + repr(error.facts)
        assert "\x1b" not in str(error) + "".join(map(str, error.facts.values()))


def test_a_file_gets_no_version_without_the_rules_of_its_subject(stand_in: StandIn, client: RegistryClient) -> None:
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        theirs.register_schema("inner", Schema.from_dict({"schema": INNER, "schemaType": "AVRO", "ruleSet": RULES}))
    own = OwnSchema(OUTER, [SchemaFile("inner", INNER), SchemaFile("", OUTER, ("inner",))])
    with pytest.raises(SchemaError, match=r"has rules, which are not supported: ssn \(ENCRYPT\)"):
        known_files(schema_config("value", {}), own, client)
    assert sent(stand_in) == ["inner"]


# Metadata


@pytest.fixture
def staged(stand_in: StandIn) -> None:
    """Registers two schemas of the subject events-value: one for the stage live, then one more field for the stage test."""
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        for text, stage in ((record("long"), "live"), (WIDER, "test")):
            body = {"schema": text, "schemaType": "AVRO", "metadata": {"properties": {"stage": stage}}}
            theirs.register_schema("events-value", Schema.from_dict(body))


@pytest.mark.usefixtures("staged")
def test_the_latest_schema_with_metadata_is_used(client: RegistryClient) -> None:
    def found(metadata: Mapping[str, str]) -> str:
        return resolved(schema_config("value", {"use.latest.with.metadata": metadata}), "events", None, client).text

    assert found({"stage": "live"}) == record("long")
    assert found({"stage": "test"}) == WIDER
    with pytest.raises(RegistryError, match=r"subject events-value: the registry has no schema with the metadata stage=none"):
        found({"stage": "none"})


@pytest.mark.usefixtures("staged")
def test_a_schema_with_metadata_from_before_the_rules_is_refused(stand_in: StandIn, client: RegistryClient) -> None:
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        body = {"schema": record("long"), "schemaType": "AVRO", "ruleSet": RULES}
        theirs.register_schema("events-value", Schema.from_dict(body))
    config = schema_config("value", {"use.latest.with.metadata": {"stage": "live"}})
    with pytest.raises(SchemaError, match=r"has rules, which are not supported: ssn \(ENCRYPT\)"):
        resolved(config, "events", None, client)
