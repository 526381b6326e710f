"""`publish` of Arrow data that is not Spark's."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pyarrow as pa
import pytest

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import RecordError, SchemaError, UsageError
from spark_kafka_sink.spark.task.producer_cache import cache
from tests.exactly_once.opened import new_id
from tests.kafka.witness import Witnessed, read_topic
from tests.spark.session import ROOT

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
NO_TYPE = pa.array([None], pa.month_day_nano_interval())


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made
        cache.close()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    broker.create_topic(name := new_id("rows"), 2)
    return name


def published(broker: EmbeddedBroker, topic: str, data: object, **options: str) -> sks.PublishReport:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    return sks.publish(data, options=given | {name.replace("__", "."): value for name, value in options.items()})  # type: ignore[arg-type]


def stored(broker: EmbeddedBroker, topic: str) -> list[Witnessed]:
    return read_topic(broker.bootstrap_servers, topic, isolation_level="read_committed")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_each_row_is_there_once_and_the_report_says_so(broker: EmbeddedBroker, topic: str, guarantee: str) -> None:
    numbers = pa.array(range(25_000)).cast(pa.string())
    report = published(broker, topic, pa.table({"key": numbers, "value": numbers}), delivery__guarantee=guarantee)
    assert sorted(int(each.value or b"") for each in stored(broker, topic)) == list(range(25_000))
    assert report.total.records == 25_000
    assert [task.report.records for task in report.tasks] == [25_000]


def test_all_columns_of_a_pandas_dataframe_arrive(broker: EmbeddedBroker, topic: str) -> None:
    headers = [("a", b"1"), ("b", None)]
    columns = {"key": ["k"], "value": ["v"], "partition": pd.Series([1], dtype="int32"), "timestamp": [MOMENT]}
    df = pd.DataFrame(columns)
    df["headers"] = [[{"key": key, "value": value} for key, value in headers]]
    published(broker, topic, df)
    [found] = stored(broker, topic)
    assert (found.key, found.value, found.partition) == (b"k", b"v", 1)
    assert (found.timestamp, list(found.headers)) == (MOMENT.timestamp() * 1000, headers)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.DictionaryArray.from_arrays([0], pa.array(["x"], pa.string_view())), "x"),  # Polars' categories
        (pa.array(["x"], pa.string_view()), "x"),
        (pa.ListArray.from_arrays([0, 1], pa.DictionaryArray.from_arrays([0], pa.array(["x"], pa.string_view()))), ["x"]),
        (pa.array(["x"], pa.large_string()), "x"),
        (pa.array([255], pa.uint8()), 255),
        (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
        (pa.array([[1]], pa.large_list(pa.uint32())), [1]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1, 2]),
        (pa.array([{"a": ["x"]}], pa.struct({"a": pa.large_list(pa.large_string())})), {"a": ["x"]}),
        (pa.array([MOMENT], pa.timestamp("ns", "UTC")), "2026-01-02T03:04:05.000000Z"),
        (pa.array([MOMENT.date()], pa.date64()), "2026-01-02"),
        (pa.array([1.5], pa.float16()), 1.5),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_types_that_spark_lacks_are_written_as_the_next_that_it_has(
    broker: EmbeddedBroker, topic: str, array: pa.Array[object], wanted: object
) -> None:
    published(broker, topic, pa.table({"a": array}), value__columns="a")
    assert json.loads(stored(broker, topic)[0].value or b"") == {"a": wanted}


def test_a_type_without_a_next_one_is_refused_only_where_it_is_written(broker: EmbeddedBroker, topic: str) -> None:
    assert published(broker, topic, pa.table({"value": ["x"], "other": NO_TYPE})).total.records == 1
    with pytest.raises(SchemaError, match="column value: is month_day_nano_interval, which Spark has no type for; cast it"):
        published(broker, topic, pa.table({"value": NO_TYPE}))


def test_what_is_wrong_is_said_as_for_spark(broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(SchemaError, match="column value: is bigint, must be string or binary"):
        published(broker, topic, pa.table({"value": [1]}))
    with pytest.raises(SchemaError, match="column timestamp: is timestamp_ntz, must be timestamp"):
        published(broker, topic, pa.table({"value": ["x"], "timestamp": pa.array([0], pa.timestamp("us"))}))
    with pytest.raises(UsageError, match=r"or Arrow data, .*; not a builtins\.list"):
        published(broker, topic, [1])


def test_a_value_that_spark_cannot_hold_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    far = pa.array([2**62], pa.timestamp("s", "UTC"))
    with pytest.raises(RecordError, match=r"column timestamp: a value is out of range of timestamp\[us, tz=UTC\]"):
        published(broker, topic, pa.table({"value": ["x"], "timestamp": far}))
    with pytest.raises(SchemaError, match="column a: is decimal256"):
        published(broker, topic, pa.table({"a": pa.array([1], pa.decimal256(40))}), value__columns="a")


def test_a_partition_may_be_any_integer(broker: EmbeddedBroker, topic: str) -> None:
    published(broker, topic, pa.table({"value": ["x"], "partition": [1]}))
    assert stored(broker, topic)[0].partition == 1


def test_a_reader_is_read_once_and_keeps_its_own_errors(broker: EmbeddedBroker, topic: str) -> None:
    """Read again it has rows no more, and a retry after an error would lose what the first call had taken."""
    batch = pa.record_batch({"value": ["x"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        raise KeyboardInterrupt

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    with pytest.raises(KeyboardInterrupt):
        published(broker, topic, reader, delivery__guarantee="exactly-once")
    assert stored(broker, topic) == []
    with pytest.raises(UsageError, match="the reader was read from before"):
        published(broker, topic, reader)


def test_calls_side_by_side_under_exactly_once_all_deliver(broker: EmbeddedBroker, topic: str) -> None:
    data = pa.table({"value": ["x"] * 100})
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: published(broker, topic, data, delivery__guarantee="exactly-once"), range(4)))
    assert [report.total.records for report in done] == [100] * 4
    assert len(stored(broker, topic)) == 400


def test_under_exactly_once_no_row_is_visible_after_an_error(broker: EmbeddedBroker, topic: str) -> None:
    partitions = pa.array([0] * 20_000 + [9], pa.int32())
    data = pa.table({"value": ["x"] * 20_001, "partition": partitions})
    with pytest.raises(RecordError, match="column partition is 9"):
        published(broker, topic, data, delivery__guarantee="exactly-once")
    assert stored(broker, topic) == []


def test_it_needs_no_java(broker: EmbeddedBroker, topic: str) -> None:
    # As the package pyspark-client is, which has no jars: the name is missing there.
    program = (
        "import pyspark; del pyspark.Broadcast; "
        f"import pyarrow as pa, spark_kafka_sink as sks; print(sks.publish(pa.table({{'value': ['x']}}), topic={topic!r},"
        f" bootstrap_servers={broker.bootstrap_servers!r}).total.records)"
    )
    environment = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")
