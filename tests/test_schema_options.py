"""Options of keys and values with a schema: names, values, and what excludes what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.schema_options import NOT_SUPPORTED, is_schema_option, schema_config

RECORD = {"type": "record", "name": "a.Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize(
    ("given", "strategy"),
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
    for options in ({"value.schema": text}, {"value.schema": RECORD}, {"value.schema.file": str(file)}):
        assert schema_config("value", options).text == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subject.name.strategy": "mine"}, r"'mine' is not one of topic, record, topic-record"),
        ({"use.schema.id": "seven"}, r"'seven' is not a whole number"),
        ({"use.latest.version": True, "auto.register.schemas": True}, r"auto\.register\.schemas: cannot be true"),
        ({"use.latest.version": True, "value.use.schema.id": 1}, r"value\.use\.schema\.id: cannot be combined"),
        ({"value.schema": "long", "value.schema.name": "A"}, r"value\.schema\.name: names a derived record"),
        ({"value.schema.file": "missing.avsc"}, r"file missing\.avsc cannot be read: No such file"),
        ({"schema.id.serializer": "header"}, r"only the prefix form is supported"),
        ({"use.latest.with.metadata": "{}"}, r"use use\.schema\.id"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, object], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        schema_config("value", options)


def test_protobuf_is_not_supported_yet() -> None:
    with pytest.raises(OptionError, match=r"option value\.format: protobuf is not supported yet; avro and json-schema are"):
        schema_config("value", {}, "protobuf")


@pytest.mark.parametrize("kind", ["json-schema", "JSON_SCHEMA", "jsonschema"])
def test_json_schema_has_several_names(kind: str) -> None:
    assert schema_config("value", {}, kind).format == "json-schema"


@pytest.mark.parametrize("name", [name for name in NOT_SUPPORTED if name.startswith("json.") or name == "validate"])
def test_options_of_confluents_json_serializers_have_an_answer(name: str) -> None:
    with pytest.raises(OptionError, match=rf"option value\.{name}: .*(remove the option|set value\.schema)"):
        schema_config("value", {f"value.{name}": "true"}, "json-schema")


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
