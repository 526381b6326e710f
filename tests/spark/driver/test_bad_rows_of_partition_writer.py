"""Rows of partition_writer that are bad: values of Python that a record cannot have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import Row

import spark_kafka_sink as sks
from spark_kafka_sink.errors import (
    SerializationError,
    TooManyBadRowsError,
)
from spark_kafka_sink.spark.task.producer_cache import cache
from tests.kafka.fixtures import NewTopic, embedded_broker_kind
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.bad_rows import BASE_MS, KEPT, PREFIX, keys, why
from tests.spark.frames import options

broker_kind = embedded_broker_kind("a second for each; one stays, and test_bad_rows_end_to_end.py has every kind on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


@pytest.mark.parametrize(
    ("name", "good", "bad", "text"),
    [("string", "v", "a\ud800", rb"a\ud800"), ("json", {"a": "v"}, {"a": "\ud800"}, rb"{'a': '\ud800'}")],
)
def test_text_that_no_encoding_has_is_a_bad_row_of_a_serializer(
    kafka: Kafka, new_topic: NewTopic, name: str, good: object, bad: object, text: bytes
) -> None:
    topic, letters = new_topic(), new_topic()
    given = options(kafka, topic=topic, kafka__value__serializer=name)
    rows = [Row(key="0", value=good), Row(key="1", value=bad), Row(key="2", value=good)]
    with pytest.raises(SerializationError, match=r"row 1 of the data: .*text with a lone surrogate at .* encoded as UTF-8"):
        sks.partition_writer(given)(rows)
    sks.partition_writer(given | {"on.error": "dead-letter", "dead.letter.topic": letters})(rows)
    (letter,) = read_topic(kafka.bootstrap_servers, letters)
    assert (letter.key, letter.value, why(letter)["reason"], why(letter)["row"]) == (b"1", text, "serialization", "1")
    assert keys(kafka, topic) == [0, 2]


@pytest.mark.parametrize("on_error", ["dead-letter", "drop"])
def test_partition_writer_delivers_the_rows_around_invalid_values(kafka: Kafka, new_topic: NewTopic, on_error: str) -> None:
    topic, letters = new_topic(config=KEPT), new_topic(config=KEPT)
    good = {"key": None, "value": "v", "partition": 0, "timestamp": BASE_MS, "headers": [("name", b"1")]}
    changes: dict[int, dict[str, Any]] = {
        1: {"timestamp": datetime(1, 1, 1)},  # as Spark creates it
        2: {"timestamp": 2**63},
        3: {"partition": 2**31},
        4: {"value": "a\ud800", "timestamp": 2**63},
        5: {"headers": [("ok", b"2"), ("\ud800", b"3")]},
        6: {"key": "6\ud800"},
    }
    rows = [Row(**{**good, "key": str(row), **changes.get(row, {})}) for row in range(8)]
    named = {"dead__letter__topic": letters} if on_error == "dead-letter" else {}
    sks.partition_writer(options(kafka, topic=topic, on__error=on_error, **named))(rows)
    assert keys(kafka, topic) == [0, 7]
    if on_error == "drop":
        return
    found = {int(why(each)["row"]): each for each in read_topic(kafka.bootstrap_servers, letters)}
    assert {row: why(each)["reason"] for row, each in found.items()} == {
        1: "timestamp",
        2: "timestamp",
        3: "partition",
        4: "serialization",
        5: "header",
        6: "serialization",
    }
    assert int(why(found[1])["timestamp"]) < -62_135_000_000_000
    assert [why(found[row])["timestamp"] for row in (2, 4)] == [str(2**63)] * 2
    assert why(found[3])["partition"] == str(2**31)
    assert (found[4].value, why(found[4])["value.format"]) == (rb"a\ud800", "text")
    assert ([each for each in found[5].headers if not each[0].startswith(PREFIX)], why(found[5])["headers.omitted"]) == (
        [("ok", b"2")],
        "1",
    )
    assert (found[6].key, why(found[6])["key.format"]) == (rb"6\ud800", "text")
    assert [why(found[row])["stage"] for row in (3, 4, 5, 6)] == [
        "KAFKA_PRODUCE",
        "VALUE_CONVERTER",
        "HEADER_CONVERTER",
        "KEY_CONVERTER",
    ]


def test_partition_writer_keeps_to_limits_per_task(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    write = sks.partition_writer(options(kafka, topic=topic, on__error="drop", on__error__max__fraction="0.4"))
    write([Row(value="a", partition=0), Row(value="b", partition=0), Row(value="c", partition=9)])
    with pytest.raises(TooManyBadRowsError, match="1 row of 2 is bad"):
        write([Row(value="a", partition=0), Row(value="c", partition=9)])
