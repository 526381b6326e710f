"""The stand-in answers as a real registry does, where the real one has the same; confluent-kafka's client works with it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.registry.apicurio import Apicurio
from tests.registry.stand_in import StandIn

ORDER = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}'
WIDER = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}]}'
OTHER = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]}'
IN_NEITHER = ("guid", "message", "messages")
"""Apicurio has no guids and no messages of a check; the text of an error is free."""
ONLY_IN_CONFLUENTS = ("version", "schemaType", "references")
"""Fields that only one of them sends, or leaves out when they have their usual value."""


def avro(text: str) -> Schema:
    return Schema.from_dict({"schema": text, "schemaType": "AVRO"})


def ask(url: str, method: str, path: str, body: Mapping[str, object] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def conversation(url: str, subject: str) -> list[tuple[int, Any]]:
    """Asks one registry. Ids are replaced by the order in which they appeared."""
    versions, config = f"/subjects/{subject}/versions", f"/config/{subject}"
    compatibility = f"/compatibility/subjects/{subject}/versions"
    asked: list[tuple[str, str, Mapping[str, object] | None]] = [
        ("GET", f"{versions}/latest", None),
        ("GET", versions, None),
        ("POST", f"/subjects/{subject}", {"schema": ORDER}),
        ("POST", versions, {"schema": ORDER}),
        ("POST", versions, {"schema": ORDER, "schemaType": "AVRO"}),
        ("POST", f"/subjects/{subject}", {"schema": ORDER}),
        ("POST", f"/subjects/{subject}", {"schema": WIDER}),
        ("GET", f"{versions}/latest", None),
        ("GET", f"{versions}/1", None),
        ("GET", f"{versions}/7", None),
        ("GET", "/schemas/ids/987654", None),
        ("PUT", config, {"compatibility": "BACKWARD"}),
        ("POST", f"{compatibility}?verbose=true", {"schema": WIDER}),
        ("POST", f"{compatibility}/latest?verbose=true", {"schema": OTHER}),
        ("POST", f"{compatibility}?verbose=true", {"schema": OTHER}),
        ("POST", versions, {"schema": WIDER}),
        ("GET", f"{versions}/latest", None),
        ("GET", versions, None),
        ("POST", versions, {"schema": '{"type": "nonsense"}'}),
        ("POST", versions, {"schema": ORDER, "references": [{"name": "a", "subject": "no-such", "version": 1}]}),
        ("DELETE", f"{versions}/1", None),
        ("GET", versions, None),
        ("GET", f"{versions}/1", None),
        ("GET", f"{versions}/1?deleted=true", None),
        ("POST", f"/subjects/{subject}", {"schema": ORDER}),
        ("DELETE", f"/subjects/{subject}", None),
        ("GET", f"{versions}/latest", None),
        ("DELETE", f"/subjects/{subject}?permanent=true", None),
        ("GET", f"{versions}/latest", None),
    ]
    ids: dict[int, int] = {}
    answers = list[tuple[int, Any]]()
    for question in asked:
        status, answer = ask(url, *question)
        if isinstance(answer, dict):
            answer = {name: value for name, value in answer.items() if name not in (*IN_NEITHER, *ONLY_IN_CONFLUENTS)}
            if "id" in answer:
                answer["id"] = ids.setdefault(answer["id"], len(ids) + 1)
        answers.append((status, answer))
    return answers


@pytest.mark.java
def test_the_stand_in_answers_as_a_real_registry(apicurio: Apicurio, stand_in: StandIn, new_subject: Callable[[], str]) -> None:
    subject = new_subject()

    for here, there in zip(conversation(stand_in.url, subject), conversation(apicurio.url, subject), strict=True):
        assert here == there


@pytest.mark.java
def test_the_stand_in_refuses_an_incompatible_schema_as_a_real_registry_but_for_the_code(
    apicurio: Apicurio, stand_in: StandIn, new_subject: Callable[[], str]
) -> None:
    """Apicurio and old servers of Confluent have the code 409."""
    subject, codes = new_subject(), list[object]()
    for registry in (stand_in, apicurio):
        ask(registry.url, "POST", f"/subjects/{subject}/versions", {"schema": ORDER})
        ask(registry.url, "PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
        status, answer = ask(registry.url, "POST", f"/subjects/{subject}/versions", {"schema": OTHER})
        assert status == 409
        codes.append(answer["error_code"])

    assert codes == [40901, 409]


def test_confluents_client_works_with_the_stand_in(stand_in: StandIn) -> None:
    schema = avro(ORDER)
    with SchemaRegistryClient({"url": stand_in.url}) as theirs:
        schema_id = theirs.register_schema("s-value", schema)
        latest = theirs.get_latest_version("s-value")

        assert (latest.schema_id, latest.version, latest.schema.schema_str) == (schema_id, 1, ORDER)
        assert str(uuid.UUID(latest.guid)) == latest.guid
        assert theirs.get_schema(schema_id).schema_str == ORDER
        assert theirs.lookup_schema("s-value", schema).schema_id == schema_id
        assert theirs.test_compatibility("s-value", avro(WIDER))
        assert not theirs.test_compatibility("s-value", avro(OTHER))
        with pytest.raises(SchemaRegistryError) as error:
            theirs.register_schema("s-value", avro(OTHER))
    assert (error.value.http_status_code, error.value.error_code) == (409, 40901)
