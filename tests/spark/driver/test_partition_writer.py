from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import pandas
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import KafkaSinkError, OptionError, RecordError, SchemaError, SerializationError
from spark_kafka_sink.spark.driver import partition_writer as module
from spark_kafka_sink.spark.driver.partition_writer import batches_of_rows
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.columns import records_by_topic
from spark_kafka_sink.spark.task.refused_rows import SplitBatch
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.spark.frames import expected, options, read_records, read_values, records

UTC = datetime.UTC


def batch(*rows: Row, topic: str | None = "t") -> pa.RecordBatch:
    ((_, only),) = batches_of_rows(rows, topic)
    return only


def column(name: str, *values: object) -> list[Any]:
    rows = [Row(**{"value": b"v", name: value}) for value in values]
    found: list[Any] = batch(*rows, topic=None if name == "topic" else "t").column(name).to_pylist()
    return found


def refused(name: str, *values: object) -> str:
    with pytest.raises(SchemaError) as caught:
        column(name, *values)
    return str(caught.value)


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    assert os.environ.get("TZ") != "America/New_York"


def test_rows_become_columns_and_extra_fields_are_left_out() -> None:
    rows = [Row(extra=object(), value="v", key=None, topic="a", partition=1, timestamp=7, headers=[Row(key="k", value=b"h")])]
    ((schema, found),) = batches_of_rows(rows, None)
    assert schema == SinkSchema(key=0, value=1, headers=2, topic=3, partition=4, timestamp=5)
    assert found.to_pylist() == [
        {"key": None, "value": b"v", "headers": [{"key": "k", "value": b"h"}], "topic": "a", "partition": 1, "timestamp": 7}
    ]


def test_the_topic_option_leaves_the_column_out() -> None:
    assert batch(Row(value=b"v", topic=5)).schema.names == ["value"]


def test_text_and_bytes_may_be_mixed() -> None:
    assert column("key", "ü", b"b", bytearray(b"c"), None) == ["ü".encode(), b"b", b"c", None]


def test_headers_are_rows_or_tuples_of_key_and_value() -> None:
    assert column("headers", None, [], [("k", bytearray(b"v")), ("k", None)]) == [
        None,
        [],
        [{"key": "k", "value": b"v"}, {"key": "k", "value": None}],
    ]


def test_timestamps_are_milliseconds_rounded_down() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 999_999, UTC)
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    assert column("timestamp", at, 17, None, before) == [1_767_323_045_999, 17, None, -1]


@pytest.mark.usefixtures("_new_york")
def test_a_datetime_without_zone_is_local_time_also_in_the_hour_that_comes_twice() -> None:
    first = datetime.datetime(2025, 11, 2, 1, 30)
    assert column("timestamp", first, first.replace(fold=1)) == [1_762_061_400_000, 1_762_065_000_000]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_datetimes_of_the_first_and_the_last_year_are_converted_in_every_zone(
    zone: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(time.tzset)  # after the variable is restored
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        local = ZoneInfo(zone)
        for at in (datetime.datetime.min, datetime.datetime.max, datetime.datetime(9999, 7, 1)):
            assert column("timestamp", at) == column("timestamp", at.replace(tzinfo=local))
    assert column("timestamp", datetime.datetime(1, 1, 1, tzinfo=UTC)) == [-62_135_596_800_000]


def test_a_datetime_of_the_first_year_is_an_error_that_names_row_and_column() -> None:
    at = datetime.datetime(1, 1, 1)  # as Spark creates it
    ((schema, found),) = batches_of_rows([Row(value=b"v", timestamp=each) for each in (1, at)], "t")
    with pytest.raises(RecordError, match=r"column timestamp: -\d+ ms is before 1970, .* in row 1 of the data"):
        list(records_by_topic(found, schema, "t"))


INVALID_VALUES = [
    ("partition", 2**31, RecordError, "2147483648 does not fit in 32 bits"),
    ("partition", -(2**31) - 1, RecordError, "-2147483649 does not fit in 32 bits"),
    ("timestamp", 2**63, RecordError, "9223372036854775808 ms does not fit in 64 bits"),
    ("timestamp", -(10**5000), RecordError, "ms does not fit in 64 bits"),
    ("timestamp", pandas.NaT, RecordError, "NaT is not a time"),
    ("value", "a\ud800", SerializationError, "its text cannot be encoded as UTF-8"),
    ("key", "a\ud800", SerializationError, "its text cannot be encoded as UTF-8"),
    ("topic", "a\ud800", RecordError, "its text cannot be encoded as UTF-8"),
    ("headers", [("a", b""), ("\ud800", b"")], RecordError, "its text cannot be encoded as UTF-8"),
    ("headers", [{"key": "\ud800", "value": b""}], RecordError, "its text cannot be encoded as UTF-8"),
]


@pytest.mark.parametrize(("name", "value", "kind", "problem"), INVALID_VALUES, ids=range(len(INVALID_VALUES)))
def test_an_invalid_value_is_an_error_that_names_row_and_column(
    name: str, value: object, kind: type[KafkaSinkError], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 2)
    rows = [Row(**{"value": b"v", name: each}) for each in (None, None, None, value)]
    with pytest.raises(kind) as caught:
        list(batches_of_rows(rows, None if name == "topic" else "t"))
    assert caught.value.message.startswith(f"column {name}: ")
    assert problem in caught.value.message
    assert caught.value.message.endswith(", in row 3 of the data")
    assert caught.value.facts["row"] == 3


@pytest.mark.parametrize(("name", "value", "kind", "problem"), INVALID_VALUES, ids=range(len(INVALID_VALUES)))
def test_only_the_row_with_an_invalid_value_is_split_off(
    name: str, value: object, kind: type[KafkaSinkError], problem: str
) -> None:
    rows = [Row(**{"value": b"v", "extra": each, name: cell}) for each, cell in enumerate((None, value, None))]
    ((_, split),) = batches_of_rows(rows, None if name == "topic" else "t", splits_bad_rows=True)
    assert isinstance(split, SplitBatch)
    assert (split.rows.tolist(), split.batch.num_rows, split.refused.rows) == ([0, 2], 2, [1])
    (error,) = split.refused.errors
    assert type(error) is kind
    assert problem in error.message


@pytest.mark.parametrize("splits", [False, True])
def test_a_value_of_a_wrong_type_beside_an_invalid_value_concerns_the_column(splits: bool) -> None:
    rows = [Row(value=b"v", partition=each) for each in ("1", 2**31 if splits else 1)]
    with pytest.raises(SchemaError, match="column partition: holds "):
        list(batches_of_rows(rows, "t", splits_bad_rows=splits))


@pytest.mark.parametrize(
    ("name", "value", "kind", "cast"),
    [
        ("value", 5, "int", "cast(value as string)"),
        ("key", 1.5, "float", "cast(key as string)"),
        ("value", Row(a=1), "Row", "to_json(value)"),
        ("topic", 5, "int", "cast(topic as string)"),
        ("partition", "1", "str", "cast(partition as int)"),
        ("partition", 1.0, "float", "cast(partition as int)"),
        ("partition", True, "bool", "cast(partition as int)"),
        ("timestamp", True, "bool", None),
        ("timestamp", datetime.date(2026, 1, 1), "date", "cast(timestamp as timestamp)"),
        ("value", object(), "object", None),
        ("headers", {"a": b"b"}, "dict", None),
        ("headers", [(1, b"b")], "list", None),
    ],
)
def test_a_value_of_a_wrong_type_names_column_type_and_cast(name: str, value: object, kind: str, cast: str | None) -> None:
    text = refused(name, None, value)
    assert text.startswith(f"[SCHEMA] column {name}: holds {kind}, must be ")
    assert text.endswith(")" if cast is None else f"; use {cast}")
    assert cast is not None or "; use " not in text


def test_missing_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match="column value is required; the rows have key, v"):
        batch(Row(key=b"", v=b""))
    with pytest.raises(SchemaError, match="column topic is required when the option topic is not set"):
        batch(Row(value=b""), topic=None)


@pytest.mark.parametrize("row", [(b"v",), {"value": b"v"}, b"v", Row("v")])
def test_rows_without_field_names_are_refused(row: Any) -> None:
    with pytest.raises(SchemaError, match=f"a row is a {type(row).__name__} without field names"):
        batch(row)


def test_no_rows_are_no_batches() -> None:
    assert list(batches_of_rows(iter([]), None)) == []


def test_chunks_are_cut_by_rows_and_by_bytes_and_where_fields_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 3)
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    small, large, other = Row(value=b"v"), Row(value=b"v" * 200), Row(key=b"k", value=b"v")
    rows = [small] * 4 + [large, large, small, other]
    assert [found.num_rows for _, found in batches_of_rows(rows, "t")] == [3, 2, 1, 1, 1]
    values = [value for _, found in batches_of_rows(rows, "t") for value in found.column("value").to_pylist()]
    assert values == [row.value for row in rows]


def test_fields_are_found_in_any_case() -> None:
    ((schema, found),) = batches_of_rows([Row(Key="k", VALUE="v")], "t")
    assert schema == SinkSchema(key=0, value=1)
    assert found.to_pylist() == [{"key": b"k", "value": b"v"}]
    with pytest.raises(SchemaError, match="columns Key and key differ in case alone"):
        batch(Row(Key="k", key="k", value="v"))


@pytest.mark.spark
def test_partition_writer_delivers_rows(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, metrics: sks.DeliveryMetrics
) -> None:
    topic = new_topic(3)
    records(spark, 300, 3).foreachPartition(sks.partition_writer(options(kafka, topic=topic), metrics))
    assert read_records(kafka, topic) == expected(300, 3)
    assert metrics.live is not None
    assert metrics.live.records == 300


def test_partition_writer_needs_no_spark_task(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    sks.partition_writer(options(kafka, topic=topic))(iter([Row(value="7")]))
    assert read_values(kafka, topic) == [7]


def test_partition_writer_checks_options_at_once() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is required"):
        sks.partition_writer({"topic": "t"})
