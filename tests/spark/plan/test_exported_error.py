"""What collectors of lineage and spans learn of an error: its code, names and numbers, and never data of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from openlineage.client import OpenLineageClient
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    CommitStoppedError,
    DeliveryError,
    KafkaSinkError,
    OptionError,
    RecordError,
    SerializationError,
    TooManyBadRowsError,
)
from spark_kafka_sink.spark.driver.explain import sink_error
from spark_kafka_sink.spark.plan.exported_error import exported
from tests.exporters.lineage_collector import Collector, running, transport
from tests.planted_secrets import MARK
from tests.spark.test_tracing import Traced

QUERY = "11111111-1111-4111-8111-111111111111"


class Quoting(sks.Serializer):
    """A serializer whose error quotes the value, as many do."""

    def serialize(self, topic: str, value: object, headers: object = ()) -> bytes | None:
        raise ValueError(f"topic {value}: column {value}: broker {value}.x:9092 rejects {value!r}")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            SerializationError(f"topic t.1: value: row 7: Card failed: ValueError: column {MARK}: row 4111", topic="t.1", row=7),
            "[SERIALIZATION] topic t.1, part value, row 7",
        ),
        (SerializationError(f"topic t: key: option {MARK}: of 'x'"), "[SERIALIZATION] topic t, part key"),
        (RecordError(f"{MARK!r} is not a valid topic name: it must have"), "[RECORD]"),
        (RecordError("column partition: -7 is negative, in row 3 of the task"), "[RECORD] column partition, row 3"),
        (RecordError("column partition: -7 is negative, in row 3 of the data"), "[RECORD] column partition, row 3"),
        (
            RecordError("topic t: row 3 of 1,000: column partition is 77, but t has 2"),
            "[RECORD] topic t, row 3, column partition",
        ),
        (OptionError(f"option kafka.acks: must be one of all, 1, not {MARK}"), "[OPTION] option kafka.acks"),
        (
            DeliveryError(
                f"1,000 records failed, 1 was acknowledged: [BROKER] topic t partition 4: INVALID_RECORD {MARK} MY_CARD",
                failed=1000,
                acked=1,
            ),
            "[DELIVERY] cause BROKER, topic t, partition 4, error INVALID_RECORD, failed 1000, acked 1",
        ),
        (
            TooManyBadRowsError(f"Spark partition 2: 5 rows are bad; one of the errors: {MARK}", bad_rows=5, reasons={MARK: 5}),
            "[TOO_MANY_BAD_ROWS] spark partition 2, bad rows 5",
        ),
        (
            CommitStoppedError(f"batch 5 of {QUERY}: stopped", query_id=QUERY, batch=5, transactional_ids=(MARK,)),
            f"[COMMIT_STOPPED] batch 5, query id {QUERY}",
        ),
        (KafkaSinkError(f"broker-1.example.com:9092: login failed for {MARK}"), "[KAFKA_SINK] broker broker-1.example.com:9092"),
        (RecordError(f"row {MARK}", row=MARK, batch=MARK, query_id=MARK, error_code=MARK), "[RECORD]"),
    ],
)
def test_an_error_is_exported_as_its_code_and_safe_facts(error: KafkaSinkError, expected: str) -> None:
    link = error.link
    text = f"{expected}; see {link}" if " " in expected else f"{expected} see {link}"
    assert exported(error) == text
    again = sink_error(f"Traceback:\nspark_kafka_sink.errors.{type(error).__name__}: {error}\n\tat x", is_certain=True)
    assert again is not None
    assert MARK not in exported(again)
    assert exported(again).startswith(expected.partition(", failed")[0].partition(", bad rows")[0])


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running() as made:
        yield made


@pytest.mark.spark
def test_a_serializer_that_quotes_its_value_tells_it_to_no_collector(
    spark: SparkSession, metrics: sks.DeliveryMetrics, collector: Collector
) -> None:
    traced = Traced()
    rows = spark.createDataFrame([(MARK,)], "value string")
    client = OpenLineageClient(transport=transport(collector.url))
    lineage, tracer = sks.emit_lineage(spark, metrics, client=client), sks.trace_writes(metrics, traced.provider)
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"}
        settings["kafka.value.serializer"] = f"{__name__}.Quoting"
        with pytest.raises(SerializationError, match=MARK):
            sks.publish(rows, options=settings, metrics=metrics, progress=False)
        fail = collector.until_state("FAIL")[-1]
    lineage.stop()
    tracer.stop()
    expected = "[SERIALIZATION] topic events, part value, row 0; see https://"
    assert fail["run"]["facets"]["errorMessage"]["message"].startswith(expected)
    span = traced.spans("send")[-1]
    assert str(span.status.description).startswith(expected)
    assert (span.attributes or {})["error.type"] == "SERIALIZATION"
    assert MARK not in json.dumps(collector.events)
    assert not [one for one in traced.spans("") if MARK in one.to_json()]
