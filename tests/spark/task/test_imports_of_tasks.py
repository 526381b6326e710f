"""What Spark's Python processes import when they look the format up, plan, and write: each of them starts with it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from spark_kafka_sink.formats.avro.avro_format import derive
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema, SchemaSerializer
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka

pytestmark = pytest.mark.slow

COMMITS = (
    "spark_kafka_sink.spark.plan.failed_writes",
    "spark_kafka_sink.spark.plan.commits",
    "spark_kafka_sink.exactly_once.commit_log",
    "spark_kafka_sink.client.cluster_client",
)

TASKS = """
import datetime
import sys
import pyarrow as pa
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.spark.driver.publish import ArrowTask
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema

servers, topic, path, json_path = sys.argv[1:]
here = {"kafka.bootstrap.servers": servers}

def run(path, schema, batch=None, **more):
    options = sink_options(here | {name.replace("__", "."): value for name, value in more.items()})
    with pa.ipc.open_stream(path) as batches:
        results = list(ArrowTask(schema, options, Feed(), batch).run(iter(batches)))
    assert results[0].num_rows == 1
    assert "pandas" not in sys.modules, more

plain = SinkSchema(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)
run(path, plain)
run(path, plain, MicroBatch("query", 0), delivery__guarantee="exactly-once")
columns = SinkSchema(value=ColumnGroup((0, 1), ("id", "name"), as_json=True), key=1, tombstone=2)
run(json_path, columns, topic=topic, headers__source="x")

from spark_kafka_sink import Producer
with Producer({"bootstrap.servers": servers}) as producer:
    producer.send(topic, b"value", b"key", headers=[("name", b"1"), ("none", None)]).result(30)
    producer.metrics()
assert "pandas" not in sys.modules, "one record"

from pyspark.sql import Row
import spark_kafka_sink as sks
sks.partition_writer(here)([
    Row(topic=topic, key="a", value=b"1", headers=[("name", b"1"), Row(key="none", value=None)], partition=0,
        timestamp=datetime.datetime(2026, 1, 2)),
    Row(topic=topic, key=None, value=None, headers=None, partition=None, timestamp=None),
])
assert "pandas" not in sys.modules, "rows"
"""


AVRO = """
import pickle
import sys
import pyarrow as pa

with open(sys.argv[1], "rb") as file:
    serializer = pickle.load(file)
with pa.ipc.open_stream(sys.argv[2]) as batches:
    for batch in batches:
        assert len(serializer.serialize_column("topic", batch.column(0))) == batch.num_rows
print("pandas" in sys.modules, any(name.startswith("spark_kafka_sink.registry") for name in sys.modules))
"""


def output_of(program: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def stream(path: Path, **columns: pa.Array) -> str:
    """A file of one Arrow batch, so that the program makes no array of its own."""
    batch = pa.record_batch(columns)
    with pa.ipc.new_stream(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    return str(path)


def test_what_plans_writes_and_commits_is_not_imported_where_the_format_is_only_looked_up() -> None:
    loaded = output_of("import sys, spark_kafka_sink.spark.plan.data_source; print(*sys.modules, sep='\\n')")
    assert "spark_kafka_sink.spark.plan.data_source" in loaded
    planning = {
        "spark_kafka_sink.options.sink_options",
        "spark_kafka_sink.spark.schema",
        "spark_kafka_sink.spark.plan.first_contact",
    }
    assert not {*planning, *COMMITS, "spark_kafka_sink.spark.task.task", "pyarrow.compute"} & set(loaded)


def test_a_producer_is_not_imported_where_nothing_is_sent() -> None:
    loaded = output_of("import sys, spark_kafka_sink.spark.task.task; print(*sys.modules, sep='\\n')")
    assert "spark_kafka_sink.spark.task.task" in loaded
    assert not {"spark_kafka_sink.client.network_client", "spark_kafka_sink.producer.accumulator.appender", *COMMITS} & set(
        loaded
    )


def test_a_task_that_writes_with_a_schema_imports_neither_pandas_nor_the_registrys_client(tmp_path: Path) -> None:
    values = [{"id": 1, "tags": ["a"], "at": 5, "price": Decimal("1.50")}, None, {"id": None, "tags": None, "at": None}]
    kind = pa.struct(
        [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))]
    )
    schema = ResolvedSchema("value", "avro", "topic-value", 1, derive(kind, "R"))
    (tmp_path / "serializer").write_bytes(pickle.dumps(SchemaSerializer(schema)))
    rows = stream(tmp_path / "rows", value=pa.array(values, kind))
    assert output_of(AVRO, str(tmp_path / "serializer"), rows) == ["False", "False"]


def test_a_task_a_record_and_rows_import_no_pandas(kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> None:
    """With nulls in every column but the topic's, and records of two topics; with JSON and tombstones."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    topic, other = new_topic(), new_topic()
    rows = stream(
        tmp_path / "rows",
        value=pa.array([b"1", None, b"3"]),
        key=pa.array(["a", None, "c"]),
        headers=pa.array([[("name", b"1"), ("none", None)], [], None], headers),
        topic=pa.array([topic, other, other]),
        partition=pa.array([0, None, 0], pa.int32()),
        timestamp=pa.array([1_700_000_000_000_000, None, None], pa.timestamp("us", "UTC")),
    )
    columns = stream(
        tmp_path / "columns", id=pa.array([1, 2, None]), name=pa.array(["a", None, "c"]), gone=pa.array([True, None, False])
    )
    assert output_of(TASKS, kafka.bootstrap_servers, topic, rows, columns) == []
