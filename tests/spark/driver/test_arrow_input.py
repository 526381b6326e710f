"""`publish` of Arrow data that is not Spark's."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import accumulators

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    DeliveryError,
    MetadataTimeoutError,
    RecordError,
    SchemaError,
    SerializationError,
    UsageError,
)
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.driver.arrow_input import ArrowInput
from spark_kafka_sink.spark.task.producer_cache import cache
from tests.exactly_once.opened import client_of, new_id, soon
from tests.kafka.witness import Witnessed, read_topic
from tests.spark.session import ROOT
from tests.waiting import wait_until

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
FAR = 2**62  # seconds
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
    numbers, of_spark = pa.array(range(25_000)).cast(pa.string()), dict(accumulators._accumulatorRegistry)
    report = published(broker, topic, pa.table({"key": numbers, "value": numbers}), delivery__guarantee=guarantee)
    assert sorted(int(each.value or b"") for each in stored(broker, topic)) == list(range(25_000))
    assert report.total.records == 25_000
    assert of_spark == accumulators._accumulatorRegistry  # in which Spark's own have numbers, too
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
        (pa.array([np.float16(1.5)], pa.float16()), 1.5),
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
    with pytest.raises(UsageError, match=r"Write publish\(frame\.collect\(\), "):
        published(broker, topic, SimpleNamespace(collect=list))  # as a LazyFrame of Polars
    with pytest.raises(UsageError, match=r"or Arrow data, .*; not a builtins\.list"):
        published(broker, topic, [1])


def test_a_value_that_spark_cannot_hold_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    data = pa.table({"value": ["x"] * 20_001, "timestamp": pa.array([1] * 20_000 + [FAR], pa.timestamp("s", "UTC"))})
    with pytest.raises(RecordError, match=r"column timestamp: a value is out of range of timestamp\[us, tz=UTC\] ") as caught:
        published(broker, topic, data)
    assert caught.value.message.endswith(f"out of bounds timestamp: {FAR}), in row 20000 of the data")
    assert "To go on without such rows, set on.error=dead-letter and dead.letter.topic." in caught.value.__notes__
    with pytest.raises(SerializationError, match=r"column a: a value is out of range of .*, in row 0 of the data") as caught_part:
        published(broker, topic, pa.table({"a": pa.array([FAR], pa.timestamp("s"))}), value__columns="a")
    assert "To go on without such rows, set on.error=dead-letter and dead.letter.topic." in caught_part.value.__notes__
    with pytest.raises(SchemaError, match="column a: is decimal256"):
        published(broker, topic, pa.table({"a": pa.array([1], pa.decimal256(40))}), value__columns="a")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_value_that_spark_cannot_hold_is_a_bad_row(broker: EmbeddedBroker, topic: str, guarantee: str) -> None:
    letters = f"{topic}-letters"
    broker.create_topic(letters)
    seconds = pa.timestamp("s", "UTC")
    data = pa.table(
        {
            "key": ["a", "b", "c", "d"],
            "a": pa.array([[1], [2, FAR], [3], [4]], pa.large_list(seconds)),  # a slice of a list has elements of other rows
            "partition": pa.array([0, 0, 2**40, 0], pa.int64()),
            "timestamp": pa.array([1, 1, 1, FAR], seconds),
        }
    )
    to = {"on__error": "dead-letter", "dead__letter__topic": letters, "value__columns": "a"}
    report = published(broker, topic, data, delivery__guarantee=guarantee, **to)
    assert [found.key for found in stored(broker, topic)] == [b"a"]
    assert report.total.bad_rows == {"serialization": 1, "partition": 1, "timestamp": 1}
    assert report.total.dead_letters == 3
    assert "(row 1 of the data)" in report.total.bad_row_example
    found = {each.key: dict(each.headers) for each in stored(broker, letters)}
    assert [found[key]["__connect.errors.row"] for key in (b"b", b"c", b"d")] == [b"1", b"2", b"3"]
    assert f"{FAR}".encode() in (found[b"d"]["__connect.errors.exception.message"] or b"")


def test_a_struct_with_two_fields_of_one_name_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(
        SchemaError, match=r"cannot be written as JSON \(an object of JSON cannot have two fields 'a'; rename one"
    ):
        published(broker, topic, pa.table({"s": twice}), value__columns="s")


@pytest.mark.skipif(not hasattr(pa.MemoryPool, "total_bytes_allocated"), reason="this pyarrow does not tell what it allocated")
def test_a_dictionary_is_cast_once_and_not_for_each_part_of_the_rows() -> None:
    names = pa.array([f"name {number}" for number in range(100_000)], pa.string_view())
    rows = ArrowInput(pa.table({"value": pa.DictionaryArray.from_arrays(pa.array(range(100_000)), names)}))
    options = sink_options({"kafka.bootstrap.servers": "broker:1", "topic": "t"})
    columns, allocated = rows.columns(options), pa.default_memory_pool().total_bytes_allocated
    first = allocated()
    names.cast(pa.string())
    second = allocated()
    assert len(list(rows.batches(columns, options))) == 10
    assert allocated() - second < 5 * (second - first)


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


def test_calls_under_exactly_once_write_side_by_side_each_with_a_producer_that_later_calls_use(
    broker: EmbeddedBroker, topic: str
) -> None:
    batch = pa.record_batch({"value": ["x"] * 100})
    both_write = threading.Barrier(2)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        both_write.wait(60)  # with the first batch the transaction has begun
        yield batch

    def write(_: int) -> sks.PublishReport:
        reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
        return published(broker, topic, reader, delivery__guarantee="exactly-once", kafka__linger__ms="77")

    before = set(threading.enumerate())
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            assert [report.total.records for report in pool.map(write, range(2))] == [200] * 2
    assert len(stored(broker, topic)) == 800
    new = [each.name for each in set(threading.enumerate()) - before]
    assert len([name for name in new if name.startswith("kafka-producer-network-thread")]) == 2


def test_under_exactly_once_no_row_is_visible_after_an_error(broker: EmbeddedBroker, topic: str) -> None:
    partitions = pa.array([0] * 20_000 + [9], pa.int32())
    data = pa.table({"value": ["x"] * 20_001, "partition": partitions})
    with pytest.raises(RecordError, match="column partition is 9"):
        published(broker, topic, data, delivery__guarantee="exactly-once")
    assert stored(broker, topic) == []


@pytest.mark.slow
def test_a_source_that_is_slower_than_a_transaction_may_be_is_told_so(broker: EmbeddedBroker, topic: str) -> None:
    batch = pa.record_batch({"value": ["x"]})

    def is_open() -> bool:
        with client_of(broker.bootstrap_servers) as client:
            return TransactionClient(client).list_open(topic, soon()) != []

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        yield batch  # the first has been sent, or is now
        wait_until(lambda: read_topic(broker.bootstrap_servers, topic, isolation_level="read_uncommitted"), "a row")
        wait_until(lambda: not is_open(), "its end")
        yield batch

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    to = {"delivery__guarantee": "exactly-once", "transactional__id__prefix": topic, "kafka__linger__ms": "0"}
    with pytest.raises(DeliveryError, match=r"longer than transaction\.timeout\.ms \(1 s\).*kafka\.transaction\.timeout\.ms"):
        published(broker, topic, reader, kafka__transaction__timeout__ms="1000", **to)
    assert stored(broker, topic) == []


def test_an_interrupt_says_how_many_rows_kafka_has_acknowledged(broker: EmbeddedBroker, topic: str) -> None:
    batch = pa.record_batch({"value": ["x" * 20_000]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from [batch] * 6  # not all of them fit into memory, so some have been acknowledged
        raise KeyboardInterrupt

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    with pytest.raises(KeyboardInterrupt) as caught:
        published(broker, topic, reader, kafka__linger__ms="0", kafka__buffer__memory="65536")
    (note,) = caught.value.__notes__
    assert re.fullmatch(r"Kafka has acknowledged [1-6] rows? or more; they stay in their topics, and another call .*", note)


def test_without_spark_no_error_speaks_of_it() -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "300"}
    for more in ({}, {"topic.create.partitions": "1", "topic.create.replication.factor": "1"}):
        with pytest.raises(MetadataTimeoutError) as caught:
            sks.publish(pa.table({"value": ["x"]}), options={**nowhere, **more})
        assert " answered this process within 0.3 s: " in caught.value.message
        assert "Spark" not in caught.value.message


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
