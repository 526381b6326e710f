"""The client's answers, on a registry that has all that Confluent's has."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import RegistryError, SchemaIncompatibleError, UsageError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.registry_client import RegistryClient, SchemaReference, SchemaText
from tests.every import every
from tests.examples import examples
from tests.registry.stand_in import Answer, StandIn

ORDER = SchemaText("AVRO", json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}))
WITH_DEFAULT = {"name": "channel", "type": ["null", "string"], "default": None}
WIDER = SchemaText(
    "AVRO", json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, WITH_DEFAULT]})
)
BROKEN = SchemaText(
    "AVRO", json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {**WITH_DEFAULT}]})
)
ENCRYPT = {"name": "ssn", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}


def client(registry: StandIn, **options: str) -> RegistryClient:
    return RegistryClient(registry_config({"schema.registry.url": registry.url, "schema.registry.max.retries": "0", **options}))


def register_raw(registry: StandIn, subject: str, body: dict[str, Any]) -> None:
    """Registers what our client never sends, such as rules, as another program would."""
    with SchemaRegistryClient({"url": registry.url}) as theirs:
        theirs.register_schema(subject, Schema.from_dict(body))


def test_a_schema_is_registered_once_and_found(stand_in: StandIn) -> None:
    with client(stand_in) as registry:
        first = registry.register("orders-value", ORDER)
        assert first == registry.register("orders-value", ORDER) == registry.latest("orders-value")
        other = registry.register("orders-value", WIDER)

        assert registry.version("orders-value", 1) == first
        assert registry.look_up("orders-value", ORDER) == first
        found = registry.by_id(first.schema_id, "orders-value")

    assert (first.schema, first.subject, first.version) == (ORDER, "orders-value", 1)
    assert (found.schema, found.schema_id, found.guid) == (ORDER, first.schema_id, first.guid)
    assert (other.schema_id, other.version) == (first.schema_id + 1, 2)
    assert first.guid is not None


def test_a_request_has_the_headers_and_the_body_of_the_api(stand_in: StandIn) -> None:
    reference = SchemaReference("a.Inner", "inner-value", 1)
    with client(stand_in) as registry:
        registry.register("inner-value", ORDER)
        registry.register("a/b ü%-value", SchemaText("AVRO", ORDER.text, (reference,)), normalize=True)
    asked = stand_in.requests[-1]

    assert (asked.method, asked.path) == ("POST", "/subjects/a%2Fb%20%C3%BC%25-value/versions?normalize=true")
    assert asked.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
    assert asked.headers["Accept"].startswith("application/vnd.schemaregistry.v1+json, ")
    assert asked.headers["User-Agent"].startswith("spark-kafka-sink/")
    assert asked.json == {
        "schema": ORDER.text,
        "schemaType": "AVRO",
        "references": [{"name": "a.Inner", "subject": "inner-value", "version": 1}],
    }
    assert "Authorization" not in asked.headers


def test_a_name_that_is_not_valid_unicode_is_sent_as_another(stand_in: StandIn) -> None:
    with client(stand_in) as registry:
        assert registry.latest("a\ud800b") is None


@pytest.mark.fault("schema registry", "deleted subject, version or schema; unknown id")
def test_what_does_not_exist_is_none_or_an_error_that_names_it(stand_in: StandIn) -> None:
    with client(stand_in) as registry:
        assert registry.latest("orders-value") is None
        assert registry.look_up("orders-value", ORDER) is None
        registry.register("orders-value", ORDER)
        assert registry.look_up("orders-value", WIDER) is None
        with pytest.raises(RegistryError, match="could not get version 9 of subject 'orders-value'") as no_version:
            registry.version("orders-value", 9)
        with pytest.raises(
            RegistryError, match=r"could not get the schema with id 77: .* HTTP 404, error 40403: Schema 77"
        ) as no_id:
            registry.by_id(77)

    assert no_version.value.facts["error_code"] == 40402
    assert no_version.value.facts["subject"] == "orders-value"
    assert (no_id.value.facts["status"], no_id.value.facts["url"]) == (404, stand_in.url)


@pytest.mark.fault("schema registry", "deleted subject, version or schema; unknown id")
def test_a_deleted_schema_is_found_only_if_it_is_asked_for(stand_in: StandIn) -> None:
    with client(stand_in) as registry, SchemaRegistryClient({"url": stand_in.url}) as theirs:
        made = registry.register("orders-value", ORDER)
        theirs.delete_subject("orders-value")

        assert registry.latest("orders-value") is None
        assert registry.look_up("orders-value", ORDER) is None
        assert registry.look_up("orders-value", ORDER, deleted=True) == made
        assert registry.version("orders-value", 1, deleted=True) == made
        with pytest.raises(RegistryError, match="HTTP 404, error 40401"):
            registry.version("orders-value", 1)
        # It keeps its id when it comes back.
        assert registry.register("orders-value", ORDER).schema_id == made.schema_id


def test_a_schema_that_does_not_fit_is_an_error_with_the_registrys_messages(stand_in: StandIn) -> None:
    with client(stand_in) as registry:
        registry.register("orders-value", ORDER)
        assert registry.misfits("orders-value", WIDER) == []
        assert registry.misfits("unknown-value", BROKEN) == []
        misfits = registry.misfits("orders-value", BROKEN)
        with pytest.raises(SchemaIncompatibleError, match=r"HTTP 409, error 40901: .*TYPE_MISMATCH") as error:
            registry.register("orders-value", BROKEN)

    assert len(misfits) == 3
    assert misfits[0].startswith("{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type')")
    assert misfits[-1] == "{compatibility: 'BACKWARD'}"
    assert error.value.facts["subject"] == "orders-value"


def test_a_registry_that_gives_no_reason(stand_in: StandIn) -> None:
    stand_in.fail(Answer(body={"is_compatible": False}))
    with client(stand_in) as registry:
        assert registry.misfits("orders-value", ORDER) == ["the registry gave no reason"]


@every("status", [404, 405])
def test_a_registry_that_checks_one_version_only(status: int) -> None:
    """As Karapace does."""
    with StandIn() as stand_in:
        with client(stand_in) as registry:
            registry.register("orders-value", ORDER)
            stand_in.fail(Answer(status, {"error_code": status, "message": "no such route"}))
            misfits = registry.misfits("orders-value", BROKEN)

        assert misfits[0].startswith("{errorType:'TYPE_MISMATCH'")
        assert [asked.path for asked in stand_in.requests[1:]] == [
            "/compatibility/subjects/orders-value/versions?normalize=false&verbose=true",
            "/compatibility/subjects/orders-value/versions/latest?normalize=false&verbose=true",
        ]


@pytest.mark.fault("schema registry", "rules that would encrypt")
@every(
    "rule_set, rules",
    [
        ({"domainRules": [ENCRYPT]}, ("ssn (ENCRYPT)",)),
        ({"encodingRules": [{**ENCRYPT, "name": "all", "type": "ENCRYPT_PAYLOAD"}]}, ("all (ENCRYPT_PAYLOAD)",)),
        ({"migrationRules": [{"name": "up", "type": "JSONATA"}]}, ("up (JSONATA)",)),
        ({"domainRules": [{**ENCRYPT, "disabled": True}], "migrationRules": None}, ()),
        ({"domainRules": [{**ENCRYPT, "disabled": "true"}]}, ("ssn (ENCRYPT)",)),
        ({"domainRules": [{}]}, ("a rule without a name (no type)",)),
        ({"domainRules": ["x"]}, ("a rule in an unknown form",)),
        ({"domainRules": {"x": 1}}, ("domainRules",)),
        ({"laterRules": [ENCRYPT]}, ("ssn (ENCRYPT)",)),
        ({"enableAt": "write"}, ()),
        ([ENCRYPT], ("a rule set in an unknown form",)),
        (None, ()),
    ],
)
def test_active_rules_are_seen_in_each_answer(rule_set: Any, rules: tuple[str, ...]) -> None:
    with StandIn() as stand_in:
        body = {"subject": "s", "version": 1, "id": 5, "schema": ORDER.text, "ruleSet": rule_set}
        with client(stand_in) as registry:
            stand_in.fail(*[Answer(body=body)] * 5)

            assert registry.by_id(5).rules == rules
            assert (
                registry.latest("s") == registry.version("s", 1) == registry.look_up("s", ORDER) == registry.register("s", ORDER)
            )


@pytest.mark.fault("schema registry", "rules that would encrypt")
def test_rules_that_another_program_registered_are_seen(stand_in: StandIn) -> None:
    rule_set = {"domainRules": [{**ENCRYPT, "params": {}}]}
    register_raw(stand_in, "people-value", {"schema": ORDER.text, "schemaType": "AVRO", "ruleSet": rule_set})
    with client(stand_in) as registry:
        found = registry.latest("people-value")

    assert found is not None
    assert found.rules == ("ssn (ENCRYPT)",)


def test_references_are_resolved_through_the_registry(stand_in: StandIn) -> None:
    inner = SchemaText("AVRO", json.dumps({"type": "record", "name": "Inner", "fields": []}))
    outer = SchemaText(
        "AVRO", json.dumps({"type": "record", "name": "Outer", "fields": []}), (SchemaReference("Inner", "in", 1),)
    )
    with client(stand_in) as registry:
        registry.register("in", inner)
        registry.register("out", outer)
        latest = registry.latest("out")
        assert latest is not None
        assert latest.schema == outer
        assert registry.references(SchemaText("AVRO", "", (SchemaReference("Outer", "out", 1),))) == {
            "Inner": inner,
            "Outer": outer,
        }
        with pytest.raises(RegistryError, match="could not get version 2 of subject 'out'"):
            registry.references(SchemaText("AVRO", "", (SchemaReference("Outer", "out", 2),)))


def test_the_latest_schema_with_metadata_is_the_one_that_confluents_client_finds(stand_in: StandIn) -> None:
    for place, stage in enumerate(("test", "live", "test")):
        body = {"schema": f'"{("int", "long", "string")[place]}"', "schemaType": "AVRO"}
        metadata = {"properties": {"stage": stage, "owner": "A & B"}}
        register_raw(stand_in, "s", {**body, "metadata": metadata})
    with client(stand_in) as registry, SchemaRegistryClient({"url": stand_in.url}) as theirs:
        for wanted in ({"stage": "live"}, {"stage": "test", "owner": "A & B"}, {}):
            found = registry.latest_with("s", wanted)
            assert found is not None
            assert (
                found.version
                == theirs.get_latest_with_metadata(
                    "s", {name: value for name, value in wanted.items() if " " not in value}
                ).version
            )
        assert registry.latest_with("s", {"stage": "other"}) is None
        assert registry.latest_with("unknown", {"stage": "live"}) is None


# What is kept


def test_only_schemas_by_id_are_kept(stand_in: StandIn) -> None:
    with client(stand_in, **{"schema.registry.cache.capacity": "2"}) as registry:
        schemas = [SchemaText("AVRO", f'"{kind}"') for kind in ("int", "long", "null")]
        ids = [registry.register("some-value", schema).schema_id for schema in schemas]
        stand_in.requests.clear()
        for number in (0, 0, 1, 2, 2, 0):
            registry.by_id(ids[number])
        asked = [request.path for request in stand_in.requests]
        registry.latest("some-value")
        registry.latest("some-value")

    assert asked == [f"/schemas/ids/{ids[number]}" for number in (0, 1, 2, 0)]
    assert len(stand_in.requests) == 6


def test_a_closed_client_refuses_calls(stand_in: StandIn) -> None:
    registry = client(stand_in)
    made = registry.register("orders-value", ORDER)
    registry.by_id(made.schema_id)
    registry.close()
    registry.close()

    with pytest.raises(UsageError, match="the client of the schema registry is closed"):
        registry.by_id(made.schema_id)
    with pytest.raises(UsageError, match="the client of the schema registry is closed"):
        registry.latest("orders-value")


# Answers of wrong types

LATEST = {"subject": "s", "version": 1, "id": 5, "schema": '"int"'}


@pytest.mark.fault("schema registry", "HTML, truncated JSON, wrong types, a huge answer, no HTTP")
@every(
    "body, words",
    [
        ([], "is not a JSON object"),
        ("text", "is not a JSON object"),
        (b"", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        ({**LATEST, "id": "5"}, "has no valid id"),
        ({**LATEST, "id": True}, "has no valid id"),
        ({**LATEST, "id": -1}, "has no valid id"),
        ({**LATEST, "id": 2**31}, "has no valid id"),
        ({**LATEST, "id": None}, "has no valid id"),
        ({**LATEST, "schema": None}, "has no schema"),
        ({**LATEST, "schema": {"type": "int"}}, "has no schema"),
        ({**LATEST, "schemaType": 1}, "has no schema"),
        ({**LATEST, "references": "x"}, "has references that are not a list"),
        ({**LATEST, "references": ["x"]}, "has a reference without name, subject or version"),
        ({**LATEST, "references": [{"name": "a", "subject": "b", "version": "1"}]}, "has a reference without name"),
    ],
)
def test_an_answer_of_wrong_types_is_an_error(body: Any, words: str) -> None:
    with StandIn() as stand_in:
        stand_in.fail(Answer(body=body))
        with (
            client(stand_in) as registry,
            pytest.raises(RegistryError, match="could not get the latest schema of subject 's'") as error,
        ):
            registry.latest("s")

        assert error.value.message.endswith(words) or words in error.value.message
        assert error.value.facts == {"url": stand_in.url, "subject": "s"}


@every("body", [{}, {"is_compatible": "true"}, {"is_compatible": 1}])
def test_a_check_of_wrong_types_is_an_error(body: Any) -> None:
    with StandIn() as stand_in:
        stand_in.fail(Answer(body=body))
        with client(stand_in) as registry, pytest.raises(RegistryError, match="has no field is_compatible"):
            registry.misfits("s", ORDER)


def test_what_an_answer_may_leave_out(stand_in: StandIn) -> None:
    """Old registries send the id only; Apicurio sends no guid and empty references; odd values of these are no error."""
    stand_in.fail(Answer(body={"id": 7}), Answer(body={**LATEST, "version": "x", "guid": 3, "references": None, "subject": None}))
    with client(stand_in) as registry:
        made = registry.register("s", ORDER)
        latest = registry.latest("s")

    assert (made.schema, made.schema_id, made.subject, made.version, made.guid) == (ORDER, 7, "s", None, None)
    assert latest is not None
    assert (latest.schema, latest.subject, latest.version, latest.guid) == (SchemaText("AVRO", '"int"'), "s", None, None)


NAMES = st.sampled_from(
    ["id", "schema", "schemaType", "references", "version", "guid", "subject", "ruleSet", "is_compatible", "x"]
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(ORDER.text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=10,
)
ANSWERS = st.dictionaries(NAMES, ANY_JSON, max_size=8) | ANY_JSON | st.binary(max_size=20)


@pytest.mark.fault("schema registry", "HTML, truncated JSON, wrong types, a huge answer, no HTTP")
def test_no_answer_makes_another_error(stand_in: StandIn) -> None:
    with client(stand_in) as registry:

        @settings(max_examples=examples(40))
        @given(ANSWERS, st.sampled_from([200, 201, 404, 409, 422]))
        def ask(body: Any, status: int) -> None:
            calls: list[Callable[[], object]] = [
                lambda: hash(registry.register("s", ORDER)),
                lambda: hash(registry.look_up("s", ORDER)),
                lambda: hash(registry.latest("s")),
                lambda: registry.misfits("s", ORDER),
            ]
            for call in calls:
                stand_in.fail(Answer(status, body))
                with contextlib.suppress(RegistryError):
                    call()

        ask()
