"""A serializer is chosen by Java's name, a short name, a dotted name, a class, a function or an object; wrong ones are named."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.lists import ListSerializer
from spark_kafka_sink.producer.serializers.primitives import ByteArraySerializer, IntegerSerializer, LongSerializer
from spark_kafka_sink.producer.serializers.serializer import DefaultSerializer, Serializer
from spark_kafka_sink.producer.serializers.serializer_table import JAVA_NAMES, JAVA_PACKAGE, JAVA_SERDES, SHORT_NAMES
from spark_kafka_sink.producer.serializers.text import StringSerializer
from tests.every import every
from tests.producer.serializers.making import column_bytes, key_serializer, serializer, serializers


class Upper(Serializer):
    """One value at a time."""

    def __init__(self) -> None:
        self.configured: tuple[object, bool] | None = None

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        self.configured = settings["client.id"], is_key

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return None if value is None else f"{topic} {value.upper()}".encode()


class Doubled(Serializer):
    """Columns alone."""

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        return pa.array([None if row is None else row * 2 for row in column.to_pylist()], pa.string())


class Nothing(Serializer):
    """Neither."""


class Failing(Serializer):
    def __init__(self) -> None:
        raise RuntimeError("no library")


upper = Upper()


def refused(name: object, **settings: object) -> str:
    with pytest.raises(OptionError) as caught:
        serializer(name, **settings)
    assert caught.value.facts["option"] in caught.value.message
    return caught.value.message


def test_without_the_option_bytes_and_text_stay_as_they_are() -> None:
    key, value = serializers()
    assert type(key) is type(value) is DefaultSerializer
    column = pa.array(["ü", None])
    assert value.serialize_column("topic", column) is column
    assert [value.serialize("topic", one) for one in (b"a", bytearray(b"b"), memoryview(b"c"), "ü", None)] == [
        b"a",
        b"b",
        b"c",
        "ü".encode(),
        None,
    ]


@pytest.mark.parametrize("name", ["LONG", "long", f"{JAVA_PACKAGE}LongSerializer", LongSerializer])
def test_names_and_classes_stand_for_a_serializer(name: object) -> None:
    assert type(serializer(name)) is LongSerializer
    assert type(key_serializer(name)) is LongSerializer


def test_every_serializer_of_kafka_has_both_names() -> None:
    assert len(JAVA_NAMES) == len(JAVA_SERDES) == 13
    assert set(SHORT_NAMES) == {name.removeprefix(JAVA_PACKAGE).removesuffix("Serializer").lower() for name in JAVA_NAMES} | {
        "int",
        "json",
    }
    for name, kind in {**JAVA_NAMES, **SHORT_NAMES}.items():
        assert type(serializer(name, default__list__value__serde__inner="int")) is kind


def test_an_own_class_by_dotted_name_is_configured_as_key_or_value() -> None:
    made = key_serializer(f"{__name__}.Upper", client__id="me")
    assert isinstance(made, Upper)
    assert made.configured == ("me", True)
    assert made.serialize("topic", "a") == b"topic A"


def test_a_serializer_of_single_values_takes_columns_too() -> None:
    assert column_bytes(serializer(Upper), pa.array(["a", None])) == [b"topic A", None]


def test_a_serializer_of_columns_takes_single_values_too() -> None:
    assert serializer(Doubled).serialize("topic", "a") == b"aa"
    assert serializer(Doubled).serialize("topic", None) is None


def test_an_object_is_taken_as_it_is() -> None:
    assert serializer(upper) is upper
    assert upper.configured is None


def test_a_function_of_one_value_is_a_serializer() -> None:
    made = serializer(lambda value: str(value + 1).encode())
    assert made.serialize("topic", 4) == b"5"
    assert column_bytes(made, pa.array([4, None])) == [b"5", None]


@pytest.mark.parametrize(
    "inner", ["int", f"{JAVA_PACKAGE}IntegerSerializer", f"{JAVA_PACKAGE}Serdes$IntegerSerde", IntegerSerializer]
)
def test_the_inner_serializer_of_lists_has_all_of_these_names(inner: object) -> None:
    made = serializer("list", default__list__value__serde__inner=inner, default__list__key__serde__inner="string")
    assert isinstance(made, ListSerializer)
    assert type(made.inner) is IntegerSerializer
    made = key_serializer("list", default__list__value__serde__inner=inner, default__list__key__serde__inner="string")
    assert isinstance(made, ListSerializer)
    assert type(made.inner) is StringSerializer


def test_a_list_serializer_object_brings_its_own() -> None:
    made = serializer(ListSerializer(ByteArraySerializer()))
    assert made.serialize("topic", [b"a"]) == bytes.fromhex("01 00000001 00000001 61")


def test_lists_without_an_inner_serializer_or_of_lists_are_refused() -> None:
    assert "option default.list.value.serde.inner: required by the list serializer" in refused("list")
    for inner in ("list", f"{JAVA_PACKAGE}Serdes$ListSerde", ListSerializer):
        assert "lists of lists are not supported" in refused("list", default__list__value__serde__inner=inner)


def test_an_unknown_name_has_the_nearest() -> None:
    assert "'lnog' is not a known serializer; did you mean long?" in refused("lnog")
    assert f"did you mean {JAVA_PACKAGE}LongSerializer?" in refused(f"{JAVA_PACKAGE}LnogSerializer")
    assert f"Java class {JAVA_PACKAGE}Serdes$LongSerde has no equivalent" in refused(f"{JAVA_PACKAGE}Serdes$LongSerde")
    inner = refused("list", default__list__value__serde__inner=f"{JAVA_PACKAGE}Serdes$LnogSerde")
    assert inner.startswith("option default.list.value.serde.inner: ")
    assert inner.endswith("did you mean org.apache.kafka.common.serialization.Serdes$LongSerde?")


@every(
    "name, problem",
    [
        ("no_such_package.Class", "no module named 'no_such_package'"),
        ("com.example.MySerializer", "Java classes are not supported"),
        ("io.confluent.kafka.serializers.KafkaJsonSerializer", "has no equivalent here; these have: io.confluent.kafka"),
        (f"{__name__}.Missing", "has no class Missing"),
        (f"{__name__}.upper", "is Upper, not a class"),
        (f"{__name__}.Failing", "Failing() failed: RuntimeError: no library"),
        (f"{__name__}.Nothing", "has neither serialize nor serialize_column"),
        (Nothing, "has neither serialize nor serialize_column"),
        ("decimal.Decimal", "decimal.Decimal must inherit from Serializer"),
    ],
)
def test_what_is_no_serializer_is_named(name: object, problem: str) -> None:
    text = refused(name)
    assert text.startswith("option value.serializer: ")
    assert problem in text


@every("name", ["UTF8-16", "windows-1252", "ISO-8859-15", "Shift_JIS", "", "a\0b"])
def test_an_encoding_that_is_not_here_is_refused_with_those_that_are(name: str) -> None:
    assert refused("string", serializer__encoding=name) == (
        f"option serializer.encoding: encoding {name!r} is not supported: must be one of"
        " UTF-8, UTF-16, UTF-16BE, UTF-16LE, UTF-32, UTF-32BE, UTF-32LE, US-ASCII, ISO-8859-1"
    )
    with pytest.raises(OptionError, match=r"option key\.serializer\.encoding: "):
        key_serializer("uuid", key__serializer__encoding=name)


def test_serializers_pickle_as_spark_needs() -> None:
    for made in (serializer("string", serializer__encoding="UTF-16"), serializer("json"), serializer("uuid")):
        assert type(pickle.loads(pickle.dumps(made))) is type(made)
