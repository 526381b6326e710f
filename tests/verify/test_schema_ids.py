"""Protobuf schemas of a registry become descriptors in which a record's indexes name the message that the sink wrote."""

from __future__ import annotations

import pytest

from spark_kafka_sink.formats.protobuf.proto_files import base64_of
from spark_kafka_sink.formats.protobuf.protobuf_format import message_types
from spark_kafka_sink.registry.registry_client import SchemaText
from spark_kafka_sink.verify.schema_ids import compiled, last_file

TEXT = """syntax = "proto3"; import "a/used.proto"; import "google/protobuf/timestamp.proto";
message First {}
message Outer { map<string, Used> q = 1; message B {} message D { google.protobuf.Timestamp at = 1; } }"""
USED = 'syntax = "proto3"; message Used { int32 x = 1; }'


@pytest.mark.parametrize("message", ["Outer", "Outer.B", "Outer.D"])
@pytest.mark.parametrize("form", ["text", "descriptor", "declared entry"])
def test_indexes_name_the_message_that_was_written(form: str, message: str) -> None:
    named = {"a/used.proto": SchemaText("PROTOBUF", USED)}
    text = TEXT
    if form == "descriptor":
        text = base64_of(last_file(compiled(SchemaText("PROTOBUF", TEXT), named)).serialized_pb)
    elif form == "declared entry":
        entry = "repeated QEntry q = 1; message QEntry { option map_entry = true; string key = 1; Used value = 2; }"
        text = TEXT.replace("map<string, Used> q = 1;", entry)
    written = message_types(text, {name: one.text for name, one in named.items()}, message)

    first, *inner = written.indexes
    found = list(last_file(compiled(SchemaText("PROTOBUF", text), named)).message_types_by_name.values())[first]
    for index in inner:
        found = found.nested_types[index]

    assert found.full_name == message


@pytest.mark.parametrize("path", ["/a.proto", "../a.proto", "a" * 300])
def test_a_path_that_cannot_be_opened_is_a_problem_of_the_schema(path: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid import path|the Protobuf compiler cannot read"):
        compiled(SchemaText("PROTOBUF", TEXT), {path: SchemaText("PROTOBUF", USED)})


def test_a_descriptor_without_what_it_imports_is_a_problem_of_the_schema() -> None:
    named = {"a/used.proto": SchemaText("PROTOBUF", USED)}
    text = base64_of(last_file(compiled(SchemaText("PROTOBUF", TEXT), named)).serialized_pb)
    with pytest.raises(ValueError, match=r"it is not valid Protobuf: .*a/used\.proto"):
        compiled(SchemaText("PROTOBUF", text), {})
