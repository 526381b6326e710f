"""A producer's serializers at work on an append, against real Kafka where something is sent."""

from __future__ import annotations

import json
import logging
import struct
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError, SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.serializers.serialization import Serialization, serialized_value
from spark_kafka_sink.producer.serializers.serializer import DefaultSerializer, Serializer
from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.serializers.making import serializer


class WithHeaders(Serializer):
    """Leaves bytes as they are, and adds a header to rows that are not null."""

    adds_headers = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return value  # type: ignore[no-any-return]

    def headers_of(self, topic: str, kind: pa.DataType | None) -> FixedHeaders:
        return ((f"{topic} {kind}", b"\1"),)


class Returning(Serializer):
    """What a test says, whatever it is given."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.closed = 0

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[no-any-return]

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        return self.serialize(topic, column)

    def close(self) -> None:
        self.closed += 1
        if isinstance(self.found, Exception):
            raise self.found


def columns(value: pa.Array, key: pa.Array | None = None) -> RecordColumns:
    return RecordColumns(num_records=len(value), value=value, key=key)


def test_without_serializers_columns_are_not_touched() -> None:
    given = columns(pa.array(["a"]))
    assert Serialization(DefaultSerializer(), DefaultSerializer()).columns("topic", given) is given


def test_a_serializer_adds_headers_to_rows_that_are_not_null() -> None:
    serialization = Serialization(WithHeaders(), WithHeaders())
    given = RecordColumns(3, pa.array([b"a", b"b", b"c"]), pa.array([b"a", None, b"c"]), fixed_headers=(("own", b"2"),))
    found = serialization.columns("t", given)
    assert found.fixed_headers == (("t binary", b"\1"), ("own", b"2"))
    assert found.headers is not None
    assert found.headers.to_pylist() == [[{"key": "t binary", "value": b"\1"}], [], [{"key": "t binary", "value": b"\1"}]]
    tombstones = serialization.columns("t", RecordColumns(2, pa.nulls(2, pa.binary())))
    assert (tombstones.headers, tombstones.fixed_headers) == (None, ())


@pytest.mark.embedded
def test_single_records_have_the_headers_of_their_serializers() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "value.serializer": WithHeaders()}
        with Producer(settings) as producer:
            producer.send("t", b"a", headers=[("own", b"2")])
            producer.send("t", None, key=b"k", headers=[("own", b"2")])
        assert [one.headers for one in read_topic(broker.bootstrap_servers, "t")] == [
            (("own", b"2"), ("t None", b"\1")),
            (("own", b"2"),),
        ]


def test_one_serializer_leaves_the_other_column_alone() -> None:
    given = columns(pa.array(["a"]), pa.array([5]))
    found = Serialization(serializer("long"), DefaultSerializer()).columns("topic", given)
    assert found.key is not None
    assert found.key.to_pylist() == [struct.pack(">q", 5)]
    assert found.value is given.value


def test_a_key_that_is_null_everywhere_stays_so() -> None:
    assert Serialization(serializer("long"), serializer("string")).columns("topic", columns(pa.array(["a"]))).key is None


def test_an_error_names_topic_part_and_row() -> None:
    with pytest.raises(SerializationError) as caught:
        Serialization(serializer("uuid"), DefaultSerializer()).columns("events", columns(pa.array(["a"]), pa.array(["x"])))
    assert str(caught.value) == "[SERIALIZATION] topic events: key: row 0: text is not a valid UUID (36 characters with dashes)"
    assert caught.value.facts == {"row": 0, "topic": "events", "part": "key"}
    with pytest.raises(
        SerializationError, match="topic events: value: a value of type str is not supported, must be a 64-bit integer"
    ):
        serialized_value(serializer("long"), "value", "events", "5")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (RuntimeError("gone"), "Returning failed: RuntimeError: gone"),
        ("text", "Returning failed: TypeError: returned str, not an Arrow array of binary or string"),
        (pa.array([1]), "Returning failed: TypeError: returned int64, not an Arrow array"),
        (pa.array([b"a", b"b"]), "Returning failed: ValueError: returned 2 rows for 1"),
    ],
)
def test_what_an_own_serializer_does_wrong_is_told(found: Any, problem: str) -> None:
    with pytest.raises(SerializationError) as caught:
        Serialization(DefaultSerializer(), Returning(found)).columns("events", columns(pa.array(["a"])))
    assert caught.value.message.startswith(f"topic events: value: {problem}")


def test_single_values_become_bytes() -> None:
    assert serialized_value(Returning(bytearray(b"a")), "key", "events", 1) == b"a"
    assert serialized_value(Returning(None), "key", "events", 1) is None
    with pytest.raises(SerializationError, match="topic events: key: Returning failed: TypeError: returned str, not bytes"):
        serialized_value(Returning("a"), "key", "events", 1)


def test_an_own_serializer_that_raises_names_its_row() -> None:
    def failing(value: int) -> bytes:
        return str(1 // value).encode()

    with pytest.raises(SerializationError, match="value: row 2: FunctionSerializer failed: ZeroDivisionError"):
        Serialization(DefaultSerializer(), serializer(failing)).columns("events", columns(pa.array([1, None, 0])))


def test_each_is_closed_once_whatever_the_other_does(caplog: pytest.LogCaptureFixture) -> None:
    key, value = Returning(RuntimeError("stuck")), Returning(None)
    serialization = Serialization(key, value)
    serialization.close()
    serialization.close()
    assert (key.closed, value.closed) == (1, 1)
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "serializer Returning: close failed"
    ]


def test_a_producer_does_not_start_with_a_serializer_that_is_not_there() -> None:
    with pytest.raises(OptionError, match=r"option key\.serializer: 'lon' is not a known serializer"):
        Producer({"bootstrap.servers": "localhost:9092", "key.serializer": "lon"})


def test_columns_of_other_types_reach_kafka(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "key.serializer": "long", "value.serializer": "json"}
    rows = [{"name": f"n{row}", "x": None if row % 2 else row} for row in range(500)]
    value = pa.array(rows)
    with Producer(settings) as producer, producer.scope() as scope:
        scope.append(topic, columns(value, pa.array(range(500), pa.int32())))
        with pytest.raises(
            SerializationError, match=f"topic {topic}: key: a column of type string is not supported, must be int64"
        ):
            scope.append(topic, columns(value, pa.array(["k"] * 500)))
    found = read_topic(kafka.bootstrap_servers, topic)
    assert [struct.unpack(">q", record.key or b"")[0] for record in found] == list(range(500))
    assert [{"x": None, **json.loads(record.value or b"")} for record in found] == rows
