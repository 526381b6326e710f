"""`verify` and `topics tail` read on after records that are strange or damaged, and print JSON that is valid."""

from __future__ import annotations

import datetime
import json
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf import __version__ as protobuf
from google.protobuf import struct_pb2, timestamp_pb2

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.cli.record_text import RecordText
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.registry.registry_client import RegistryClient, SchemaText
from spark_kafka_sink.verify.decoding import SchemaDecoder
from spark_kafka_sink.verify.json_values import as_json, json_value, plain
from spark_kafka_sink.verify.schema_ids import TopicSchema
from tests.registry.stand_in import StandIn

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]}'
AVRO_DATE = '{"type": "int", "logicalType": "date"}'
JSON_SCHEMA = '{"properties": {"n": {"multipleOf": 0.1}}}'
PROTOBUF = """syntax = "proto2"; import "google/protobuf/timestamp.proto";
message M { optional google.protobuf.Timestamp at = 1; optional string text = 2; }"""
SCHEMAS = (("AVRO", AVRO), ("AVRO", AVRO_DATE), ("JSON", JSON_SCHEMA), ("PROTOBUF", PROTOBUF))

# number of the schema, data, what `tail --json` shows
RECORDS: list[tuple[int, bytes, Any]] = [
    (1, struct.pack("<d", float("nan")), {"x": "NaN"}),
    (2, b"\x80\xda\xc4\x09", None),  # in the year 29349
    (3, b'{"n": 0.3, "exact": 0.12345678901234567890}', {"n": 0.3, "exact": 0.12345678901234568}),
    (3, b'{"a": "\\ud800"}', None),
    (3, b'{"a": NaN}', None),
    (3, b'{"a": 1, "a": 2}', None),
    (4, b"\0\x0a\x09\x08\x80\x80\x9a\xa6\xea\xaf\xe3\x01", None),  # 10**15 seconds
    (4, b"\0\x12\x01\xff", {"text": "0xff" if protobuf.startswith("5.") else r"b'\xff'"}),
    (4, b"\0\x12\x01a", {"text": "a"}),
]
IN_NO_JSON = 1
"""Number of records that can be decoded, and have no JSON."""


@pytest.fixture(scope="module")
def broker() -> Any:
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture
def topic(broker: EmbeddedBroker, stand_in: StandIn) -> str:
    name = broker.create_topic(f"strange-{stand_in.port}", 1)
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        for number, (kind, text) in enumerate(SCHEMAS, 1):
            assert client.register(f"s{number}", SchemaText(kind, text)).schema_id == number
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number, data, _ in RECORDS:
            producer.send(name, b"\0" + struct.pack(">I", number) + data)
    return name


def told(broker: EmbeddedBroker, stand_in: StandIn, *words: str) -> str:
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--schema-registry-url", stand_in.url)
    ended = CliRunner().invoke(main, [*words, *where], catch_exceptions=False)
    assert ended.exit_code in (0, 4), ended.output
    return ended.stdout


def valid(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_tail_shows_each_record(broker: EmbeddedBroker, topic: str, stand_in: StandIn) -> None:
    shown = [valid(line) for line in told(broker, stand_in, "topics", "tail", "--json", "-n", "20", topic).splitlines()]
    assert [one["offset"] for one in shown] == list(range(len(RECORDS)))
    for one, (_, _, wanted) in zip(shown, RECORDS, strict=True):
        if wanted is None:
            assert one["value_problem"]
        else:
            assert one["value"] == wanted
    assert "year 29349 is out of range" in shown[1]["value_problem"]
    assert "Timestamp is not valid" in shown[6]["value_problem"]


def test_tail_shows_numbers_of_json_with_all_digits(broker: EmbeddedBroker, topic: str, stand_in: StandIn) -> None:
    for options in ((), ("--json",)):
        lines = told(broker, stand_in, "topics", "tail", "-n", "20", *options, topic).splitlines()
        assert '{"n": 0.3, "exact": 0.12345678901234567890}' in lines[2]


@pytest.mark.parametrize("levels", [300, *range(380, 520, 20), 600, 5000])
def test_a_value_that_is_nested_deeply_does_not_end_tail(levels: int) -> None:
    schema = TopicSchema(1, SchemaText("JSON", "{}"))
    text = RecordText(whole=True, decoders={"value": SchemaDecoder("t", "value", lambda _: schema)})
    nested = "[" * levels + "]" * levels
    record = Record(offset=1, timestamp=0, key=b"k", value=b"\0\0\0\0\1" + nested.encode())
    line, shown = text.line(0, record), text.json(0, record)
    assert ("cannot be decoded: " in line) == ('"value_problem": "' in shown) == (levels > 300) or 300 < levels < 520
    assert (nested if levels == 300 else nested.encode().hex()) in line or 300 < levels < 520
    assert nested in shown


def test_verify_names_the_bad_ones(broker: EmbeddedBroker, topic: str, stand_in: StandIn) -> None:
    found = valid(told(broker, stand_in, "verify", "--topic", topic, "--json", "--examples", "20"))
    bad = [offset for offset, (_, _, wanted) in enumerate(RECORDS) if wanted is None]
    assert [one["offset"] for one in found["examples"]] == bad[: len(bad) - IN_NO_JSON]
    assert [one["problem"] for one in found["examples"]] == [
        "schema 2: year 29349 is out of range (ValueError)",
        "schema 3: is not valid JSON: it has half of a surrogate pair",
        "schema 3: is not valid JSON: NaN is not a JSON value",
        "schema 3: is not valid JSON: an object has the name 'a' twice",
    ]


NUMBERS = '{"id": 1, "price": 0.12345678901234567890, "tags": [1.50, -2E+400, true, null]}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (json_value(NUMBERS.encode()), NUMBERS),
        ({"x": [float("nan"), float("inf"), -float("inf"), 0.1]}, '{"x": ["NaN", "Infinity", "-Infinity", 0.1]}'),
        ({1: (Decimal("1.50"), uuid.UUID(int=1))}, '{"1": ["1.50", "00000000-0000-0000-0000-000000000001"]}'),
        ([b"a", b"\xff", datetime.date(2026, 1, 2)], '["a", "0xff", "2026-01-02"]'),
        (struct_pb2.Value(string_value="ü\n"), '"ü\\n"'),
        (timestamp_pb2.Timestamp(seconds=1), '"1970-01-01T00:00:01Z"'),
    ],
    ids=str,
)
def test_values_are_shown_as_json(value: Any, text: str) -> None:
    assert as_json(plain(value)) == text


def test_programs_get_ascii() -> None:
    assert as_json(plain({"ü": "\u202e"}), ascii_only=True) == '{"\\u00fc": "\\u202e"}'
