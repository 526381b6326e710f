"""Message types come from .proto text, from descriptors and from what registries hold, and errors name the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from spark_kafka_sink import installation
from spark_kafka_sink.errors import InstallationError, SchemaError
from spark_kafka_sink.formats.protobuf import proto_files
from spark_kafka_sink.formats.protobuf.message_types import from_json
from spark_kafka_sink.formats.protobuf.proto_files import base64_of, files_of
from spark_kafka_sink.formats.protobuf.protobuf_format import inline_rules, message_types
from spark_kafka_sink.formats.schema_format import SchemaFile
from tests.every import every
from tests.formats.protobuf.compiling import HAS_EDITIONS, file_set

INNER = 'syntax = "proto3"; package b; message Inner { int32 x = 1; }'
OUTER = """syntax = "proto3";
package a;
import "google/protobuf/timestamp.proto";
import "b/inner.proto";
enum Color { RED = 0; }
message First { b.Inner inner = 1; google.protobuf.Timestamp at = 2; }
message Second {
  message Deep { message Deeper { repeated int32 n = 1; } }
  message Other { Color color = 1; }
  repeated Color packed = 3;
  repeated Color loose = 2 [packed = false];
  oneof choice { string left = 5; string right = 4; }
  optional int32 maybe = 6;
  int32 never = 7;
}
"""
NAMED = {"b/inner.proto": INNER}


def test_the_message_is_the_first_one_unless_it_is_named() -> None:
    for message, name, indexes in (
        (None, "a.First", b"\0"),
        ("a.First", "a.First", b"\0"),
        (".a.Second", "a.Second", b"\2\2"),
        ("a.Second.Deep", "a.Second.Deep", b"\4\2\0"),
        ("a.Second.Other", "a.Second.Other", b"\4\2\2"),
        ("a.Second.Deep.Deeper", "a.Second.Deep.Deeper", b"\6\2\0\0"),
    ):
        found = message_types(OUTER, NAMED, message)
        assert (found.message, found.index_bytes()) == (name, indexes)
    assert message_types(base64_of(file_set(OUTER, NAMED).SerializeToString()), {}, ".b.Inner").message == "b.Inner"
    for unknown in ("a.Third", "First", "b.Inner", "a.Color"):
        with pytest.raises(SchemaError, match=f"has no message {unknown}; it has a.First, a.Second"):
            message_types(OUTER, NAMED, unknown)


def test_indexes_count_the_messages_of_the_text() -> None:
    """Java's reader does not see the messages that the compiler makes of maps and groups."""
    body = "map<string, string> q = 1; message B {} oneof one { D d = 2; } message D { map<int32, B> m = 1; message E {} }"
    text = f'syntax = "proto3"; message First {{}} message A {{ {body} }}'
    groups = 'syntax = "proto2"; message A { optional group G = 1 {} message B {} }'

    found = {name: message_types(text, {}, name).indexes for name in ("A", "A.B", "A.D", "A.D.E")}

    assert found == {"A": (1,), "A.B": (1, 0), "A.D": (1, 1), "A.D.E": (1, 1, 0)}
    assert message_types(groups, {}, "A.B").indexes == (0, 0)
    assert message_types(base64_of(file_set(text).file[-1].SerializeToString()), {}, "A.D").indexes == (1, 2)
    with pytest.raises(SchemaError, match=r"has no message A\.QEntry"):
        message_types(text, {}, "A.QEntry")


def test_entries_of_maps_that_a_text_declares_are_counted() -> None:
    """Confluent's registry makes such a text of descriptors."""
    entry = "message QEntry { option map_entry = true;\n string key = 1; string value = 2; }"
    text = f"""syntax = "proto3"; message A {{ // option map_entry = true;
    string doc = 3 [json_name = "option map_entry = true;"];
    repeated QEntry q = 1; {entry} message B {{}} map<string, B> r = 2; message C {{}} }}"""
    same = text.replace("repeated QEntry q", "map<string, string> q").replace(entry, "")

    assert message_types(text, {}, "A").messages == message_types(same, {}, "A").messages
    assert [message_types(text, {}, name).indexes for name in ("A.B", "A.C")] == [(0, 1), (0, 2)]
    assert [message_types(same, {}, name).indexes for name in ("A.B", "A.C")] == [(0, 0), (0, 1)]


@every("reserved", ["536870911", "0x1FFFFFFF", "03777777777", "536870911, 0x1ffffffe", "536870910 to max"])
def test_a_reserved_number_of_a_text_makes_no_entry_of_a_map(reserved: str) -> None:
    entry = "message QEntry { option map_entry = true; string key = 1; string value = 2; }"
    text = f"""syntax = "proto3"; message A {{ repeated QEntry q = 1; {entry}
    repeated Pair pairs = 2; message Pair {{ string key = 1; string value = 2; reserved {reserved}; }} }}"""
    assert {one.name: one.map_entry for one in message_types(text, {}, "A").messages.values()} == {
        "A": False,
        "A.QEntry": True,
        "A.Pair": False,
    }


def test_fields_keep_what_their_bytes_depend_on() -> None:
    fields = {field.name: field for field in message_types(OUTER, NAMED, "a.Second").root.fields}

    assert list(fields) == ["loose", "packed", "right", "left", "maybe", "never"]  # by number
    assert [(one.packed, one.presence, one.oneof) for one in fields.values()] == [
        (False, False, ""),
        (True, False, ""),
        (False, True, "choice"),
        (False, True, "choice"),
        (False, True, ""),
        (False, False, ""),
    ]
    assert str(fields["packed"]) == "repeated enum a.Color"


@every("form", ["text", "descriptor", "mixed", "set"])
def test_each_form_of_a_schema_has_the_same_types(form: str) -> None:
    files = file_set(OUTER, NAMED)
    inner, outer = (
        base64_of(next(one for one in files.file if one.name == name).SerializeToString())
        for name in ("b/inner.proto", "main.proto")
    )
    text, named = {
        "text": (OUTER, NAMED),
        "descriptor": (outer, {"b/inner.proto": inner}),
        "mixed": (outer, NAMED),
        "set": (base64_of(files.SerializeToString()), {}),
    }[form]

    found = message_types(text, named, None)

    assert found == message_types(OUTER, {"b/inner.proto": inner}, None)
    assert from_json(found.to_json()) == found


def test_a_set_is_registered_file_by_file() -> None:
    files = file_set(OUTER, NAMED)
    text = base64_of(files.SerializeToString())

    inner, main = files_of(text, None)

    assert (inner.name, inner.uses) == ("b/inner.proto", ())
    assert (main.name, main.uses) == ("", ("b/inner.proto",))  # registries know Protobuf's own files
    assert message_types(main.text, {inner.name: inner.text}, None) == message_types(OUTER, NAMED, None)
    assert files_of(text, ".b.Inner") == files_of(text, "b.Inner") == [replace(inner, name="")]
    for alone in (OUTER, main.text):
        assert files_of(alone, None) == (SchemaFile("", alone),)


def test_the_last_file_of_a_set_may_have_no_message() -> None:
    files = file_set(OUTER, NAMED)
    files.file.add(name="services.proto", syntax="proto3").service.add(name="Shop")
    text = base64_of(files.SerializeToString())

    assert message_types(text, {}, "a.First").message == "a.First"
    assert [one.name for one in files_of(text, "a.First")] == ["b/inner.proto", ""]
    with pytest.raises(SchemaError, match=r"the Protobuf schema has no message; .* name it in schema\.message"):
        message_types(text, {}, None)


def test_files_that_registries_know_need_no_reference() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
    message M { string a = 1 [(confluent.field_meta).tags = "PII"]; confluent.type.Decimal b = 2; }"""

    assert [field.type_name for field in message_types(text, {}, None).root.fields] == ["", "confluent.type.Decimal"]
    assert inline_rules(text) == []


@every(
    "option",
    [
        "[(confluent . field_meta) = { rules: [{ name: 'x' }] }]",
        "[(field_meta) = { tags: 'a'; rules { name: 'x' } }]",
        "[(confluent.field_meta) . rules = { name: 'x' }]",
        "[(confluent.field_meta) = { doc: 'a'; rules < name: 'x' > }]",
    ],
)
def test_rules_are_found_in_whatever_way_they_are_written(option: str) -> None:
    text = f'syntax = "proto3"; package confluent; import "confluent/meta.proto"; message M {{ string a = 1 {option}; }}'
    (found,) = inline_rules(text)
    assert "confluent.Meta, rules" in found
    assert inline_rules(text.replace("rules", "tags") + "message N { string rules = 1 [deprecated = true]; }") == []


def test_rules_of_a_field_are_found() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto"; // (confluent.field_meta) rules
    message M { string a = 1 [(confluent.field_meta) = { tags: ["a;]"], rules: [{ name: "x" }] }]; int32 rules = 2; }"""
    files = file_set(text, {"confluent/meta.proto": proto_files._META})
    own = base64_of(files.file[-1].SerializeToString())

    assert inline_rules(text) == ["a (confluent.Meta, rules)"]
    assert inline_rules(own) == ["confluent.Meta (rules)"]
    assert inline_rules(base64_of(files.SerializeToString())) == ["confluent.Meta (rules)"]
    assert inline_rules("long") == []  # of Avro


@every("piece", ["a", '\\"', "/*", "{(confluent.", "{(confluent.a_meta) ", "a = 1 [ ", "option ", " "])
@every("before", ["", '"', "message M { string "])
def test_a_long_text_takes_linear_time(before: str, piece: str) -> None:
    """With quadratic time each would take minutes."""
    text = before + piece * 50_000 + "!"
    inline_rules(text)
    proto_files._with_marks(text, 5)


@every("text, problem", [
        ("message {", "the text is not a valid Protobuf schema: line 1:9: Expected message name."),
        ('syntax = "proto3"; message A { B b = 1; }', 'the text is not a valid Protobuf schema: line 1:32: "B" is not defined.'),
        ('syntax = "proto3"; import "x/y.proto"; message A {}', "imports x/y.proto: register it, and name it in the option"),
        ("QUJD", "the Protobuf schema is neither .proto text nor a descriptor in base64"),
        ('syntax = "proto3"; message A { message FooEntry {} map<int32, int32> foo = 1; }', 'schema: "FooEntry" is already'),
        ('syntax = "proto3"; enum E { A = 0; }', "the Protobuf schema has no message"),
        ("", "the Protobuf schema has no message"),
    ])  # fmt: skip
def test_a_text_that_is_not_valid(text: str, problem: str) -> None:
    with pytest.raises(SchemaError) as caught:
        message_types(text, {}, None)
    assert problem in caught.value.message
    assert "WARNING" not in caught.value.message


def test_a_long_chain_of_messages() -> None:
    chain = " ".join(f"message M{number} {{ M{number + 1} next = 1; }}" for number in range(1500))
    found = message_types(f'syntax = "proto3"; {chain} message M1500 {{}}', {}, None)
    assert len(found.messages) == 1501
    assert from_json(found.to_json()) == found


def test_a_long_chain_of_imports() -> None:
    files = FileDescriptorSet()
    for number in range(1500):
        file = files.file.add(name=f"{number:04}.proto", syntax="proto3", dependency=[f"{number + 1:04}.proto"] * (number < 1499))
        file.message_type.add(name=f"M{number}")
    text = base64_of(files.SerializeToString())
    for read in (lambda: message_types(text, {}, "M0"), lambda: files_of(text, "M0")):
        with pytest.raises(SchemaError, match="import each other too deeply"):
            read()


def test_an_import_of_a_descriptor_that_is_unknown() -> None:
    own = base64_of(file_set(OUTER, NAMED).file[-1].SerializeToString())
    with pytest.raises(SchemaError, match=r"imports b/inner\.proto: register it"):
        message_types(own, {}, None)


@every(
    "path",
    ["/etc/x.proto", "../x.proto", "a/../../x.proto", "a\\x.proto", "a\0.proto", "--x_out=.", "", "a//b", "a/./b", "\udcff"],
)
def test_a_path_outside_of_the_schema_is_refused(path: str) -> None:
    with pytest.raises(SchemaError, match="is not a valid import path"):
        message_types('syntax = "proto3"; message A {}', {path: INNER}, None)


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a" * 300,), ("a/" * 3000 + "b",)], ids=["a folder", "long", "deep"])
def test_a_file_that_cannot_be_written(paths: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError, match=r"the Protobuf compiler cannot read a[^:]*: ") as caught:
        message_types('syntax = "proto3"; message A {}', dict.fromkeys(paths, INNER), None)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("text", ["CgNhYmM=", NAMED["b/inner.proto"]])
def test_without_the_extra_an_error_names_it(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    with pytest.raises(
        InstallationError, match=r"the format protobuf needs protobuf, .* pip install 'spark-kafka-sink\[protobuf\]'"
    ):
        message_types(text, {"not": "cached"}, None)
    if "=" in text[-1]:
        for read in (inline_rules, lambda text: files_of(text, None)):
            with pytest.raises(InstallationError):
                read(text)


def test_a_compiler_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_files, "DEADLINE_S", 0.001)
    with pytest.raises(SchemaError, match=r"the Protobuf compiler did not finish within 0\.001 s"):
        message_types('syntax = "proto3"; message Hanging {}', {}, None)


@every("text", ["", "{}", "[]", '{"version": 2}', '{"version": 1, "message": "a"}'])
def test_what_the_driver_did_not_prepare_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="is not a Protobuf schema that the driver has prepared"):
        from_json(text)


@pytest.mark.skipif(HAS_EDITIONS, reason="only libraries before protobuf 6 do not know editions")
def test_an_edition_names_the_version_that_it_needs() -> None:
    file = FileDescriptorProto(name="a.proto", syntax="editions", edition="EDITION_2023")
    file.message_type.add(name="M").field.add(name="a", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    for text in ('edition = "2023"; message M { int32 a = 1; }', base64_of(file.SerializeToString())):
        with pytest.raises(SchemaError, match=r"has an edition, which needs protobuf 6 or newer on the driver$"):
            message_types(text, {}, None)
