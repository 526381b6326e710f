"""emit_lineage on Spark: what a collector of OpenLineage's events receives for each way of writing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from openlineage.client import OpenLineageClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.exporters.openlineage import emit_lineage
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema
from spark_kafka_sink.spark.write_events import Destination, Field, destination, schema_fields
from tests.exporters.lineage_collector import Collector, check, running, transport
from tests.exporters.test_lineage_runs import JOB, committed
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.planted_secrets import MARK, PLANTED, SECRET, USER
from tests.registry.stand_in import StandIn
from tests.spark.frames import numbers, options, parquet_stream, run, save
from tests.spark.secrets_program import kafka as as_kafkas

pytestmark = pytest.mark.spark


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running() as made:
        yield made


@pytest.fixture
def lineage(spark: SparkSession, metrics: sks.DeliveryMetrics, collector: Collector) -> Iterator[sks.LineageEmitter]:
    """Emits to the collector, and RUNNING with each commit."""
    emitter = sks.emit_lineage(spark, metrics, interval=0, client=OpenLineageClient(transport=transport(collector.url)))
    yield emitter
    emitter.stop()


def clicks(df: DataFrame, settings: dict[str, str]) -> DataStreamWriter:
    return df.writeStream.queryName("clicks").format("kafka_sink").options(**settings)


def publish(df: DataFrame, settings: dict[str, str], metrics: sks.DeliveryMetrics) -> None:
    sks.publish(df, options=settings, metrics=metrics, progress=False)


def states(events: list[dict[str, Any]]) -> list[str]:
    return [event["eventType"] for event in events]


def rows(event: dict[str, Any]) -> int | None:
    """Returns the statistics of the only output."""
    (output,) = event["outputs"]
    found = output["outputFacets"].get("outputStatistics")
    return None if found is None else int(found["rowCount"])


def test_a_batch_write_starts_and_completes(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    collector: Collector,
    lineage: sks.LineageEmitter,
) -> None:
    topic = new_topic(2)
    save(numbers(spark, 100), options(kafka, topic=topic))
    start, complete = collector.until_state("COMPLETE")
    assert states([start, complete]) == ["START", "COMPLETE"]
    for event in (start, complete):
        check(event)
        assert event["job"] == {
            "namespace": "default",
            "name": f"spark_kafka_sink_tests.kafka_sink.{topic.replace('.', '_')}",
            "facets": event["job"]["facets"],
        }
        assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"
        (output,) = event["outputs"]
        assert (output["namespace"], output["name"]) == (f"kafka://{kafka.bootstrap_servers.split(',')[0]}", topic)
        fields = [(one["name"], one["type"]) for one in output["facets"]["schema"]["fields"]]
        assert fields == [("key", "string"), ("value", "string")]
    assert (rows(start), rows(complete)) == (None, 100)
    assert start["run"]["runId"] == complete["run"]["runId"]


def test_a_stream_starts_runs_and_completes(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    collector: Collector,
    lineage: sks.LineageEmitter,
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    df = parquet_stream(spark, numbers(spark, 100), tmp_path)
    run_id = str(run(clicks(df, options(kafka, topic=topic)), tmp_path).runId)
    events = collector.until_state("COMPLETE")
    assert states(events) == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    for event in events:
        check(event)
        assert (event["run"]["runId"], event["job"]["name"]) == (run_id, "spark_kafka_sink_tests.kafka_sink.clicks")
        assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert [rows(event) for event in events[1:]] == [50, 100, 100]


def test_no_event_has_a_secret(
    spark: SparkSession, metrics: sks.DeliveryMetrics, collector: Collector, lineage: sks.LineageEmitter, tmp_path: Path
) -> None:
    with EmbeddedBroker(config=BrokerConfig(sasl_users={USER: SECRET})) as broker:
        broker.create_topic("events")
        settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events", **as_kafkas(PLANTED)}
        settings |= {"headers.token": SECRET}
        publish(numbers(spark, 4), settings, metrics)
        run(clicks(parquet_stream(spark, numbers(spark, 4), tmp_path), settings), tmp_path)
        wrong = {**settings, "kafka.sasl.jaas.config": "", "kafka.sasl.username": USER, "kafka.sasl.password": f"{SECRET}!"}
        with pytest.raises(KafkaSinkError):
            publish(numbers(spark, 4), wrong, metrics)
    events = collector.until(lambda events: states(events).count("COMPLETE") == 2)
    assert MARK not in json.dumps([*events, *collector.headers])


def test_with_a_registry_the_fields_are_those_of_the_values_schema(
    spark: SparkSession, metrics: sks.DeliveryMetrics, collector: Collector, lineage: sks.LineageEmitter, stand_in: StandIn
) -> None:
    df = spark.range(4).selectExpr("string(id) AS key", "id", "named_struct('x', int(id)) AS inner", "array(id) AS ids")
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": stand_in.url}
        publish(df, {**servers, "topic": "events", "value.format": "avro"}, metrics)
    fields = collector.until_state("COMPLETE")[-1]["outputs"][0]["facets"]["schema"]["fields"]
    assert [(one["name"], one["type"]) for one in fields] == [("id", "long"), ("inner", "record"), ("ids", "array<long>")]
    assert [(one["name"], one["type"]) for one in fields[1]["fields"]] == [("x", "int")]


def test_a_slow_collector_delays_neither_writes_nor_the_stop(
    spark: SparkSession, metrics: sks.DeliveryMetrics, collector: Collector, lineage: sks.LineageEmitter
) -> None:
    collector.released.clear()
    metrics.writes.tell(committed(JOB))
    assert collector.events == []  # the collector still has not answered the first event
    lineage.stop(timeout=0.2)


def test_the_client_finds_its_own_settings(
    spark: SparkSession, metrics: sks.DeliveryMetrics, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "openlineage.yml"
    auth = {"type": "api_key", "apiKey": "k"}
    file.write_text(json.dumps({"transport": {"type": "http", "url": collector.url, "auth": auth}}), encoding="utf-8")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(file))
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "prod")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/dag.task/0190d5a6-0000-7000-8000-000000000001")
    emitter = emit_lineage(spark, metrics)
    try:
        metrics.writes.tell(committed(JOB))
        complete = collector.until_state("COMPLETE")[-1]
    finally:
        emitter.stop()
    assert complete["job"]["namespace"] == "prod"
    parent = complete["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "dag.task")
    assert parent["run"]["runId"] == "0190d5a6-0000-7000-8000-000000000001"
    assert collector.headers[0]["authorization"] == "Bearer k"


def test_wrong_settings_are_an_error_and_a_wrong_interval_too(
    spark: SparkSession, metrics: sks.DeliveryMetrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "openlineage.yml"
    file.write_text(json.dumps({"transport": {"type": "http", "url": f"//me:{MARK}@host"}}), encoding="utf-8")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(file))
    with pytest.raises(UsageError, match=r"emit_lineage: OpenLineage's client refuses its settings: ") as caught:
        emit_lineage(spark, metrics)
    assert MARK not in str(caught.value)
    with pytest.raises(UsageError, match="interval is -1, must be 0 or more"):
        emit_lineage(spark, metrics, interval=-1)
    assert not metrics.writes.is_wanted


def test_on_spark_connect_one_warning_is_logged(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        emit_lineage(spark, DeliveryMetrics(None)).stop()
    assert [record.getMessage() for record in caplog.records] == [
        "lineage is not emitted: this session has no SparkContext that the driver program can use"
    ]


# Fields of what is written, as lineage shows them


OPTIONS = {"kafka.bootstrap.servers": "a:1,b:2", "topic": "events"}
STRUCT = t.StructType(
    [
        t.StructField("unused", t.LongType()),
        t.StructField("key", t.StringType(), metadata={"comment": "the customer"}),
        t.StructField("id", t.LongType()),
        t.StructField("inner", t.StructType([t.StructField("x", t.ArrayType(t.IntegerType()))])),
    ]
)


def resolved(form: str, text: object) -> ResolvedSchema:
    return ResolvedSchema("value", form, "s", 1, text if isinstance(text, str) else json.dumps(text))


def fields(form: str, text: object) -> Any:
    return json.loads(json.dumps([astuple(one) for one in schema_fields(resolved(form, text))]))


def test_the_fields_are_the_columns_that_are_written() -> None:
    options = sink_options({**OPTIONS, "value.columns": "id,inner"})
    found = destination(options, sink_schema(STRUCT, "events", record=options.record), STRUCT)
    inner = Field("inner", "struct", "", (Field("x", "array<int>"),))
    columns = (Field("key", "string", "the customer"), Field("id", "bigint"), inner)
    assert found == Destination(("a:1", "b:2"), "events", None, columns)
    assert Destination.from_list(json.loads(json.dumps(astuple(found)))) == found


def test_the_dead_letter_topic_and_the_trace_belong_to_it() -> None:
    more = {"on.error": "dead-letter", "dead.letter.topic": "letters", "trace.parent": f"00-{'1' * 32}-{'2' * 16}-01"}
    found = destination(sink_options({**OPTIONS, **more}), SinkSchema(value=1), STRUCT)
    assert (found.letters, found.parent, found.context) == ("letters", more["trace.parent"], "")


def test_the_fields_of_an_avro_record() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    record = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long", "doc": "number"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "inner", "type": ["null", inner]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "by", "type": {"type": "map", "values": "double"}},
        ],
    }
    assert fields("avro", record) == [
        ["id", "long", "number", []],
        ["at", "union<null,timestamp-micros>", "", []],
        ["inner", "union<null,record>", "", [["x", "int", "", []]]],
        ["tags", "array<string>", "", []],
        ["by", "map<double>", "", []],
    ]


def test_the_properties_of_a_json_schema() -> None:
    inner = {"type": "object", "properties": {"x": {"type": ["null", "integer"]}}}
    found = fields("json-schema", {"type": "object", "properties": {"a": {"description": "first"}, "inner": inner, "any": True}})
    assert found == [
        ["a", "any", "first", []],
        ["inner", "object", "", [["x", "union<null,integer>", "", []]]],
        ["any", "any", "", []],
    ]


@pytest.mark.parametrize("text", ['"string"', "{}", "[1]", "nothing", '{"type": "record"}', '{"type": "record", "fields": [1]}'])
def test_anything_else_has_none(text: str) -> None:
    assert fields("avro", text) == fields("json-schema", text) == fields("protobuf", text) == []
    assert schema_fields(None) == ()
