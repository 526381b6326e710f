"""Options of keys and values with a schema: names, values, and what excludes what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka.schema_registry import SchemaReference, header_schema_id_serializer

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.options.schema_options import NOT_SUPPORTED, is_schema_option, schema_config
from tests.every import every

RECORD = {"type": "record", "name": "a.Order", "fields": [{"name": "id", "type": "long"}]}

REFERENCE = {"name": "a.Inner", "subject": "inner", "version": 3}


@every(
    "given, strategy",
    [
        ("topic", "topic"),
        ("TOPIC", "topic"),
        ("record_subject_name_strategy", "record"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "topic-record"),
        ("TOPIC_RECORD", "topic-record"),
    ],
)
def test_strategies_have_the_names_of_all_clients(given: str, strategy: str) -> None:
    assert schema_config("value", {"subject.name.strategy": given}).strategy == strategy


@every(
    "given, place",
    [
        ("prefix", "prefix"),
        ("header", "header"),
        ("prefix_schema_id_serializer", "prefix"),
        (header_schema_id_serializer, "header"),
        ("io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer", "header"),
    ],
)
def test_the_place_of_the_id_has_the_names_of_all_clients(given: object, place: str) -> None:
    assert schema_config("value", {"value.schema.id.serializer": given}).id_in == place
    assert schema_config("key", {"value.schema.id.serializer": given}).id_in == "prefix"


@pytest.mark.parametrize("given", [json.dumps([REFERENCE]), [REFERENCE], [SchemaReference("a.Inner", "inner", 3)]])
def test_references_may_be_text_or_dicts_or_objects_of_confluent_kafka(given: object) -> None:
    options = {"value.schema": "long", "value.schema.references": given}
    assert schema_config("value", options).references == (("a.Inner", "inner", 3),)
    config = producer_config({"bootstrap.servers": "localhost:9092", "value.serializer": "avro", **options})
    assert schema_config("value", dict(config.schemas)).references == (("a.Inner", "inner", 3),)
    assert hash(config) == hash(config)


@pytest.mark.parametrize("given", ['{"stage": "live"}', {"stage": "live"}])
def test_metadata_may_be_text_or_a_dict(given: object) -> None:
    config = schema_config("value", {"use.latest.with.metadata": given})
    assert (config.metadata, config.is_registrys, config.auto_register) == ((("stage", "live"),), True, False)


def test_an_option_of_one_part_goes_before_that_of_both() -> None:
    options = {"normalize.schemas": "true", "value.normalize.schemas": "false"}
    assert schema_config("key", options).normalize
    assert not schema_config("value", options).normalize


@pytest.mark.parametrize("options", [{"use.latest.version": "true"}, {"value.use.schema.id": "7"}])
def test_a_registered_schema_turns_registering_off(options: Mapping[str, str]) -> None:
    config = schema_config("value", options)
    assert config.is_registrys
    assert not config.auto_register
    assert schema_config("value", {}).auto_register


def test_a_schema_may_be_text_or_a_dict_or_in_a_file(tmp_path: Path) -> None:
    text = json.dumps(RECORD)
    file = tmp_path / "order.avsc"
    file.write_text(text, encoding="utf-8")
    for options in (
        {"value.schema": text},
        {"value.schema": RECORD},
        {"value.schema": MappingProxyType(RECORD)},
        {"value.schema.file": str(file)},
    ):
        assert schema_config("value", options).text == text


def test_a_producer_names_a_schema_that_is_no_json() -> None:
    given = {"bootstrap.servers": "localhost:9092", "value.serializer": "avro"}
    schema = producer_config(given | {"value.schema": MappingProxyType(RECORD)}).schemas
    assert json.loads(str(dict(schema)["value.schema"])) == RECORD
    with pytest.raises(OptionError, match=r"value\.schema: the dict cannot be written as JSON"):
        producer_config(given | {"value.schema": {"type": object()}})


@every(
    "options, text",
    [
        ({"subject.name.strategy": "mine"}, r"'mine' is not one of topic, record, topic-record"),
        ({"use.schema.id": "seven"}, r"'seven' is not a whole number"),
        ({"use.latest.version": True, "auto.register.schemas": True}, r"auto\.register\.schemas: cannot be true"),
        ({"use.latest.version": True, "value.use.schema.id": 1}, r"value\.use\.schema\.id: cannot be combined"),
        ({"value.schema": "long", "value.schema.name": "A"}, r"value\.schema\.name: names a derived record"),
        ({"value.schema.file": "missing.avsc"}, r"file missing\.avsc cannot be read: No such file"),
        ({"schema.id.serializer": "both"}, r"'both' is not one of prefix, header"),
        ({"use.latest.with.metadata": "{}"}, r"'{}' is not a JSON object of texts"),
        ({"use.latest.with.metadata": '{"a": 1}'}, r"is not a JSON object of texts"),
        ({"use.latest.with.metadata": {"a": "b"}, "use.latest.version": True}, r"use\.latest\.version: cannot be combined"),
        ({"value.schema.references": "[]x", "value.schema": "long"}, r"is not a JSON list"),
        ({"value.schema.references": [{"name": "a"}], "value.schema": "long"}, r"is not a JSON list"),
        ({"value.schema.references": [REFERENCE | {"version": 0}], "value.schema": "long"}, r"is not a JSON list"),
        ({"value.schema.references": [REFERENCE, REFERENCE], "value.schema": "long"}, r"is not a JSON list"),
        ({"value.schema.references": [REFERENCE]}, r"has no effect without a given schema; set value\.schema"),
        ({"value.schema": str(RECORD)}, r"shows a Python dict, .* give the schema as JSON text: json\.dumps\(schema\)"),
        ({"value.schema": str([RECORD])}, r"json\.dumps\(schema\)"),
        ({"value.schema": str(b"\n\x05")}, r"shows Python bytes, .* base64\.b64encode\(schema\)"),
        ({"value.schema": {"type": object()}}, r"value\.schema: the dict cannot be written as JSON: .* of type object"),
        ({"value.schema": "schemas/order.avsc"}, r"is the name of a file, not a schema; set value\.schema\.file"),
        ({"reference.subject.name.strategy": "qualified"}, r"'qualified' is not default"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, object], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        schema_config("value", options)


def test_a_producer_that_gets_the_sinks_option_for_a_format_names_its_own() -> None:
    with pytest.raises(OptionError, match=r"option value\.format: .* Spark's sink; set value\.serializer=avro"):
        producer_config({"bootstrap.servers": "localhost:9092", "value.format": "avro"})


@pytest.mark.parametrize("kind", ["json-schema", "JSON_SCHEMA", "jsonschema"])
def test_json_schema_has_several_names(kind: str) -> None:
    assert schema_config("value", {}, kind).format == "json-schema"


@every("name", [name for name in NOT_SUPPORTED if name.startswith("json.") or name == "validate"])
def test_options_of_confluents_json_serializers_have_an_answer(name: str) -> None:
    with pytest.raises(OptionError, match=rf"option value\.{name}: .*(remove the option|set value\.schema)"):
        schema_config("value", {f"value.{name}": "true"}, "json-schema")


def test_options_of_protobuf(tmp_path: Path) -> None:
    config = schema_config(
        "key", {"key.schema.message": "a.B", "key.schema": b"\x0a\x02", "skip.known.types": "true"}, "Protobuf"
    )
    assert (config.format, config.message, config.text) == ("protobuf", "a.B", "CgI=")
    with pytest.raises(OptionError, match=r"option value\.schema\.message: only the format protobuf has messages; this is avro"):
        schema_config("value", {"value.schema.message": "a.B"}, "avro")
    with pytest.raises(OptionError, match=r"option skip\.known\.types: 'false' is not true, because registries know"):
        schema_config("value", {"skip.known.types": "false"}, "protobuf")
    with pytest.raises(OptionError, match=r"use\.deprecated\.format: the current format of Protobuf is always written"):
        schema_config("value", {"use.deprecated.format": False}, "protobuf")


def test_a_file_of_protobuf_may_hold_descriptors(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    for data, text in ((b"\n\x05a\x12\x03", "CgVhEgM="), (b"\n\xff\x00", "Cv8A"), (b"\n syntax;\t\r\n", "\n syntax;\t\r\n")):
        file.write_bytes(data)
        assert schema_config("value", {"value.schema.file": str(file)}, "protobuf").text == text


def test_a_file_must_hold_text(tmp_path: Path) -> None:
    for data, problem in ((b"\xff", "is not valid UTF-8"), (b" ", "is empty")):
        file = tmp_path / "bad.avsc"
        file.write_bytes(data)
        with pytest.raises(OptionError, match=problem):
            schema_config("value", {"value.schema.file": str(file)})


def test_names_of_schema_options_are_known() -> None:
    known = ("schema.registry.url", "basic.auth.user.info", "key.schema", "value.use.schema.id", "normalize.schemas")
    assert all(map(is_schema_option, known))
    assert not any(map(is_schema_option, ("schema", "schema.file", "value.columns", "acks", "value.serializer")))
