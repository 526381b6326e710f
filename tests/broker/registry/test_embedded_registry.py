"""The embedded registry, with Confluent's own client and with this package's."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import ProtobufSerializer as OurProtobufSerializer
from spark_kafka_sink import installation
from spark_kafka_sink.broker import EmbeddedRegistry
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.registry_client import RegistryClient, SchemaText
from tests.formats.protobuf.compiling import file_set, message_class

ORDER = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}'
WIDER = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}]}'
LONG = ORDER.replace('"int"', '"long"')
ALIASED = '{"type": "record", "name": "R", "fields": [{"name": "z", "type": "int", "aliases": ["x"]}]}'
NULLABLE = ORDER.replace('"int"', '["null", "string"]')
MORE = WIDER.replace(', "default": 0', "")
OTHER = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]}'
PROTO = 'syntax = "proto3"; message R { int32 x = 1; }'


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as made:
        yield made


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as made:
        yield made


def avro(text: str, *references: SchemaReference) -> Schema:
    return Schema(text, "AVRO", list(references))


def test_schemas_have_ids_versions_and_guids(client: SchemaRegistryClient) -> None:
    first = client.register_schema("a-value", avro(ORDER))
    second = client.register_schema("a-value", avro(WIDER))
    spaced = client.register_schema("b/ü-value", avro(json.dumps(json.loads(ORDER), indent=2)))

    assert (first, second, spaced) == (1, 2, 1)
    assert client.get_subjects() == ["a-value", "b/ü-value"]
    assert client.get_versions("a-value") == [1, 2]
    latest = client.get_latest_version("a-value")
    assert (latest.version, latest.schema_id, latest.schema.schema_str) == (2, 2, WIDER)
    assert client.get_version("a-value", 1).schema_id == 1
    found = client.get_schema(1)
    assert (found.schema_str, found.schema_type) == (ORDER, "AVRO")
    assert client.get_schema_by_guid(str(latest.guid)).schema_str == WIDER
    assert client.lookup_schema("a-value", avro(WIDER)).version == 2


def test_references_must_exist(client: SchemaRegistryClient) -> None:
    outer = '{"type": "record", "name": "Outer", "fields": [{"name": "r", "type": "R"}]}'
    reference = SchemaReference("R", "inner", 1)
    with pytest.raises(SchemaRegistryError, match="no schema for the reference"):
        client.register_schema("outer", avro(outer, reference))
    client.register_schema("inner", avro(ORDER))
    client.register_schema("outer", avro(outer, reference))
    found = client.get_latest_version("outer").schema.references
    assert found is not None
    assert [(one.name, one.subject, one.version) for one in found] == [("R", "inner", 1)]


@pytest.mark.parametrize(
    ("level", "text", "problem"),
    [
        ("BACKWARD", WIDER, ""),
        ("BACKWARD", MORE, "READER_FIELD_MISSING_DEFAULT_VALUE"),
        ("BACKWARD", ALIASED, ""),
        ("BACKWARD", LONG, ""),
        ("BACKWARD", OTHER, "TYPE_MISMATCH"),
        ("BACKWARD", NULLABLE, ""),  # Confluent's registry refuses it
        ("BACKWARD", '"int"', ""),  # as well
        ("FORWARD", LONG, "TYPE_MISMATCH"),
        ("FULL_TRANSITIVE", WIDER, ""),
        ("NONE", OTHER, ""),
    ],
)
def test_fields_of_records_are_compared(client: SchemaRegistryClient, level: str, text: str, problem: str) -> None:
    client.register_schema("s", avro(ORDER))
    client.set_config("s", ServerConfig.from_dict({"compatibility": level}))
    assert client.get_config("s").compatibility_level == level
    assert client.test_compatibility("s", avro(text)) is (not problem)
    if not problem:
        client.register_schema("s", avro(text))
        return
    with pytest.raises(SchemaRegistryError, match=problem) as error:
        client.register_schema("s", avro(text))
    assert (error.value.http_status_code, error.value.error_code) == (409, 409)


def test_deleted_versions_keep_their_ids(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    client.register_schema("s", avro(ORDER))
    client.register_schema("s", avro(WIDER))
    with RegistryClient(registry_config({"schema.registry.url": registry.url})) as ours:
        client.delete_version("s", 2)
        latest = ours.latest("s")
        assert latest is not None
        assert latest.version == 1
        assert client.delete_subject("s") == [1]
        assert client.get_subjects() == []
        assert ours.latest("s") is None
        assert ours.version("s", 2, deleted=True).schema.text == WIDER == ours.by_id(2).schema.text
        assert client.delete_subject("s", permanent=True) == [1, 2]
        assert ours.look_up("s", SchemaText("AVRO", ORDER), deleted=True) is None


@pytest.mark.parametrize(
    ("path", "code"),
    [("/schemas/ids/9", 40403), ("/schemas/ids/x", 40403), ("/subjects/s/versions/1", 40401), ("/nothing", 404)],
)
def test_what_is_not_there_is_an_error_of_confluents(registry: EmbeddedRegistry, path: str, code: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(registry.url + path, timeout=10)
    with error.value as answer:
        assert (answer.code, json.load(answer)["error_code"]) == (404, code)


DEEP = b"[" * 100_000


def answer_to(registry: EmbeddedRegistry, request: bytes) -> tuple[int, Any]:
    """Returns the status and the JSON that bytes on a connection are answered with."""
    with socket.create_connection(("127.0.0.1", int(registry.url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())


def posted(data: bytes, length: object = None) -> bytes:
    head = f"POST /subjects/s/versions HTTP/1.1\r\nContent-Length: {len(data) if length is None else length}\r\n\r\n"
    return head.encode() + data


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (posted(b"{"), 400, 400),
        (posted(b"\xff"), 400, 400),
        (posted(DEEP), 400, 400),
        (posted(b"[]"), 400, 400),
        (posted(b"{}", "x"), 400, 400),
        (posted(b"{}", -1), 400, 400),
        (posted(b"{}", "9" * 5000), 400, 400),
        (b"POST /subjects/s/versions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411, 411),
        (posted(b" " * (17 * 1024 * 1024)), 413, 413),
        (posted(b'{"schema": ""}'), 422, 42201),
        (posted(b'{"schema": "{"}'), 422, 42201),
        (posted(b'{"schema": "x", "schemaType": "XML"}'), 422, 422),
        (posted(b'{"schema": "x", "schemaType": ["AVRO"]}'), 422, 422),
        (posted(b'{"schema": "\\"int\\"", "references": 5}'), 422, 42201),
        (posted(b'{"schema": "\\"int\\"", "references": [5]}'), 422, 42201),
        (b"GET //[ HTTP/1.1\r\n\r\n", 404, 404),
        (posted(b"{}").replace(b"\r\n", b"\r\nOrigin: http://evil.example\r\n", 1), 403, 403),
        (posted(b"{}").replace(b"\r\n", b"\r\nOrigin: null\r\n", 1), 403, 403),
        (b"GET /subjects HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, 403),
        (b"GET /schemas/ids/" + b"9" * 5000 + b" HTTP/1.1\r\n\r\n", 404, 40403),
    ],
)
def test_bad_requests_are_answered_with_json(registry: EmbeddedRegistry, request_bytes: bytes, status: int, code: int) -> None:
    found, answer = answer_to(registry, request_bytes)
    assert (found, answer["error_code"]) == (status, code)
    assert answer["message"]


INNER = '{"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 1}]}'
DEFAULT = (
    '{{"type": "record", "name": "O", "fields": [{{"name": "a", "type": {{"type": "array", "items":'
    ' {{"type": "record", "name": "R", "fields": [{{"name": "b", "type": {}, "default": {}}}]}}}}}}]}}'
)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("AVRO", '{"type": "nonsense"}', '"nonsense" is not defined'),
        ("AVRO", '{"type": "record", "name": "R"}', "fields"),
        ("AVRO", '{"type": "array", "items": "R"}', '"R" is not defined'),
        ("AVRO", "[" * 100_000, ""),
        ("AVRO", DEFAULT.format('"int"', '"x"'), "field a[].b: its default is not a value of the type"),
        ("AVRO", DEFAULT.format('"int"', "null"), "field a[].b: its default is not a value of the type"),
        ("AVRO", DEFAULT.format('["null", "int"]', '"x"'), "its default is not a value of any type of the union"),
        ("AVRO", DEFAULT.format(INNER, "{}"), "its default has no value for the field x"),
        ("JSON", '{"type": "nonsense"}', "not a valid JSON Schema: #/type"),
        ("JSON", '{"properties": []}', "not a valid JSON Schema: #/properties"),
    ],
)
def test_schemas_that_are_not_valid_are_refused(client: SchemaRegistryClient, kind: str, text: str, problem: str) -> None:
    with pytest.raises(SchemaRegistryError) as error:
        client.register_schema("s", Schema(text, kind))
    assert (error.value.http_status_code, error.value.error_code) == (422, 42201)
    assert problem in error.value.error_message
    assert client.get_subjects() == []


def test_confluents_avro_serializers_work(client: SchemaRegistryClient) -> None:
    context = SerializationContext("t", MessageField.VALUE)
    data = AvroSerializer(client, ORDER)({"x": 7}, context)
    assert AvroDeserializer(client)(data, context) == {"x": 7}


def test_confluents_json_serializers_work(client: SchemaRegistryClient) -> None:
    context = SerializationContext("t", MessageField.VALUE)
    text = '{"type": "object", "title": "R", "properties": {"x": {"type": "integer"}}}'
    data = JSONSerializer(text, client)({"x": 7}, context)
    assert JSONDeserializer(None, schema_registry_client=client)(data, context) == {"x": 7}


@pytest.mark.parametrize("use_latest", [False, True])
def test_confluents_protobuf_serializers_work(client: SchemaRegistryClient, use_latest: bool) -> None:
    context = SerializationContext("t", MessageField.VALUE)
    own = message_class(file_set(PROTO), "R")
    data = ProtobufSerializer(own, client, {"use.deprecated.format": False})(own(x=7), context)
    settings = {"use.deprecated.format": False, "use.latest.version": use_latest}
    assert ProtobufDeserializer(own, settings, client)(data, context) == own(x=7)


def test_text_of_protobuf_is_read_by_confluents_deserializer(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    """This package registers text, which may import files that other subjects have."""
    client.register_schema("item", Schema('syntax = "proto3"; message Item { string name = 1; }', "PROTOBUF"))
    text = 'syntax = "proto3"; import "item.proto"; message Order { Item item = 1; }'
    reference = {"name": "item.proto", "subject": "item", "version": 1}
    ours = OurProtobufSerializer({"schema.registry.url": registry.url, "schema": text, "schema.references": [reference]})
    data = ours.serialize("t", {"item": {"name": "a"}})
    ours.close()
    own = message_class(file_set(text, {"item.proto": 'syntax = "proto3"; message Item { string name = 1; }'}), "Order")
    reader = ProtobufDeserializer(own, {"use.deprecated.format": False}, client)
    assert str(reader(data, SerializationContext("t", MessageField.VALUE))) == 'item {\n  name: "a"\n}\n'


def test_descriptors_need_the_extra_and_valid_text(client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    number = client.register_schema("s", Schema("message {", "PROTOBUF"))
    with pytest.raises(SchemaRegistryError, match="not a valid Protobuf schema") as invalid:
        client.get_schema(number, fmt="serialized")
    assert (invalid.value.http_status_code, invalid.value.error_code) == (422, 42201)
    number = client.register_schema("t", Schema(PROTO, "PROTOBUF"))
    monkeypatch.setattr(installation, "is_installed", lambda _: False)
    with pytest.raises(
        SchemaRegistryError, match=r"format=serialized: the format protobuf needs .*spark-kafka-sink\[protobuf\]"
    ) as missing:
        client.get_schema(number, fmt="serialized")
    assert missing.value.http_status_code == 501


def test_it_listens_on_loopback_while_it_runs() -> None:
    registry = EmbeddedRegistry()
    with pytest.raises(UsageError, match="does not run"):
        _ = registry.url
    registry.start()
    registry.start()
    url = registry.url
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{url}/subjects", timeout=10) as answer:
        assert json.load(answer) == []
    registry.stop()
    registry.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/subjects", timeout=10)
