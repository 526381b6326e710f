"""`verify` with a real registry: records of the producer and of Spark are read back with its schemas."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from tests.cli.command import environment
from tests.cli.test_verify import IN_ONE_PROCESS, SPARK
from tests.registry.apicurio import Apicurio

pytestmark = pytest.mark.java

FORMATS: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
ORDER: Final = pa.struct(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("weight", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS: Final = [
    {
        "id": number,
        "price": Decimal(number) / 100,
        "weight": number / 3,
        "at": datetime.datetime.fromtimestamp(number, datetime.UTC),
        "tags": ["a", str(number)],
    }
    for number in range(50)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def words(broker: EmbeddedBroker, apicurio: Apicurio, topic: str, name: str) -> list[str]:
    where = ["--bootstrap-servers", broker.bootstrap_servers, "--schema-registry-url", apicurio.url]
    return ["verify", "--topic", topic, *where, "-o", f"value.format={name}", "--json"]


@pytest.mark.parametrize("name", FORMATS)
def test_records_of_the_producer_are_decoded(broker: EmbeddedBroker, apicurio: Apicurio, name: str) -> None:
    topic = broker.create_topic(f"produced-{name}", 2)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": apicurio.url}
    with Producer({**settings, "value.serializer": name}) as producer, producer.scope() as scope:
        scope.append(topic, RecordColumns(num_records=len(ROWS), value=pa.array(ROWS, ORDER)))
        scope.flush()
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send(topic, b"\0\x7f\xff\xff\xffunknown", partition=1)

    ended = CliRunner().invoke(main, words(broker, apicurio, topic, name), catch_exceptions=False)

    assert ended.exit_code == 4, ended.output
    found = json.loads(ended.stdout)
    assert (found["records"], found["bad"]) == (len(ROWS) + 1, 1)
    assert list(found["schemas"]["value"].values()) == [len(ROWS)]
    assert found["examples"][0]["problem"] == "the registry does not have its schema 2147483647"


PUBLISH: Final = """
import json, sys
from pyspark.sql import SparkSession
import spark_kafka_sink as sks

conf, path, writes = json.loads(sys.argv[2])
builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
for options in writes:
    sks.publish(builder.getOrCreate().read.parquet(path), options=options, progress=False)
"""


@pytest.mark.spark
@pytest.mark.whole("50 s; tests/spark/test_topic_records.py compares rows with schemas, and the test above decodes each format")
@pytest.mark.timeout(300)
def test_rows_of_spark_are_found_as_they_were_written(broker: EmbeddedBroker, apicurio: Apicurio, tmp_path: Path) -> None:
    """Runs in a process of its own, because the command stops its Spark session."""
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS, pa.schema(list(ORDER))), path)
    topics = {name: broker.create_topic(f"published-{name}", 2) for name in FORMATS}
    settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": apicurio.url}
    writes = [{**settings, "topic": topic, "value.format": name} for name, topic in topics.items()]
    spark = [word for name, value in SPARK.items() for word in ("--spark-conf", f"{name}={value}")]
    runs = [[*words(broker, apicurio, topic, name), "--source", path, *spark] for name, topic in topics.items()]
    runs.append([*runs[0], "--select", "* EXCEPT (price)", "--select", "price + 1 AS price"])

    ran = subprocess.run(
        [sys.executable, "-c", PUBLISH + IN_ONE_PROCESS, json.dumps(runs), json.dumps([SPARK, path, writes])],
        env={**environment(), "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    *same, different = json.loads(ran.stdout.splitlines()[-1])
    for code, out, error in same:
        found = json.loads(out)
        assert (code, found["expected"], found["found"]) == (0, len(ROWS), len(ROWS)), (out, error)
    assert different[0] == 4
    assert (json.loads(different[1])["missing"], json.loads(different[1])["unexpected"]) == (len(ROWS), len(ROWS))
