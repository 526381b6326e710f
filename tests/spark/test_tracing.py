"""Spans and the header `traceparent` on Spark: consumers' contexts belong to the spans of the batches that wrote the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import KafkaSinkError
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import numbers, options, parquet_stream, run_either_way
from tests.tiers import whole_but

pytestmark = pytest.mark.spark

A = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A tracer provider of the SDK, and what it exports."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        """Returns those whose names begin so, in the order in which they began."""
        found = [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]
        return sorted(found, key=lambda span: span.start_time or 0)


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
def tracer(metrics: sks.DeliveryMetrics, traced: Traced) -> Iterator[sks.WriteTracer]:
    made = sks.trace_writes(metrics, traced.provider)
    yield made
    made.stop()


def contexts(kafka: Kafka, topic: str) -> Counter[tuple[int, int]]:
    """Returns how many records have which trace id and span id, as OpenTelemetry extracts them from their headers."""
    found: Counter[tuple[int, int]] = Counter()
    for record in read_topic(kafka.bootstrap_servers, topic):
        names = [name for name, _ in record.headers]
        assert names.count("traceparent") == 1
        carrier = {name: value.decode() for name, value in record.headers if value is not None}
        context = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
        assert context.is_valid
        found[context.trace_id, context.span_id] += 1
    return found


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


CALLS = whole_but([False, True], [False], "a stream; both tell the same events")


@pytest.mark.parametrize("calls", CALLS, ids=["format", "foreach_batch"])
def test_records_of_a_micro_batch_have_the_context_of_its_span(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    tracer: sks.WriteTracer,
    traced: Traced,
    tmp_path: Path,
    calls: bool,
) -> None:
    topic = new_topic(2)
    old = "named_struct('key', 'traceparent', 'value', binary('old'))"
    rows = numbers(spark, 100).selectExpr("*", f"array({old}, named_struct('key', 'n', 'value', binary(key))) AS headers")
    settings = options(kafka, topic=topic, trace__header="batch", delivery__guarantee="exactly-once")
    run_either_way(parquet_stream(spark, rows, tmp_path), settings, metrics, tmp_path, calls=calls)
    tracer.stop()
    batches = traced.spans("send")
    assert [span.name for span in batches] == [f"send {topic}"] * 2
    assert contexts(kafka, topic) == {ids(span): 50 for span in batches}
    assert {span.kind for span in batches} == {SpanKind.PRODUCER}
    for batch in batches:
        inside = [span for span in traced.exporter.get_finished_spans() if span.parent == batch.context]
        assert sorted(span.name for span in inside) == ["commit", "task 0"]
        for span in inside:
            assert batch.start_time <= span.start_time <= span.end_time <= batch.end_time  # type: ignore[operator]
    assert [(span.attributes or {})["messaging.batch.message_count"] for span in batches] == [50, 50]
    assert [(span.attributes or {})["kafka_sink.query.name"] for span in batches] == ["clicks", "clicks"]


def test_publish_is_part_of_the_programs_trace(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, metrics: sks.DeliveryMetrics, tracer: sks.WriteTracer, traced: Traced
) -> None:
    topic = new_topic(2)
    with traced.provider.get_tracer("program").start_as_current_span("nightly") as nightly:
        settings = options(kafka, topic=topic, trace__header="batch")
        sks.publish(numbers(spark, 10), options=settings, metrics=metrics, progress=False)
    tracer.stop()
    (batch,) = traced.spans("send")
    assert batch.parent is not None
    assert batch.parent.span_id == nightly.get_span_context().span_id
    assert contexts(kafka, topic) == {ids(batch): 10}
    assert ids(batch)[0] == nightly.get_span_context().trace_id
    assert len(traced.spans("task")) == 2


@pytest.mark.whole("a job; test_trace_header.py has the headers of rows")
def test_each_row_has_the_context_of_its_column(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    own = "concat('00-', lpad(hex(int(key) + 1), 32, '0'), '-', lpad(hex(int(key) + 1), 16, '0'), '-01')"
    rows = numbers(spark, 9).selectExpr("key", "value", f"lower({own}) AS traceparent")
    settings = options(kafka, topic=topic, trace__header="column")
    rows.write.format("kafka_sink").options(**settings).mode("append").save()
    assert contexts(kafka, topic) == {(n + 1, n + 1): 1 for n in range(9)}


def test_a_bad_traceparent_is_a_dead_letter_and_null_is_no_header(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, metrics: sks.DeliveryMetrics
) -> None:
    topic, letters = new_topic(), new_topic()
    rows = numbers(spark, 4).selectExpr("key", "value", f"CASE key WHEN '0' THEN '{A}' WHEN '1' THEN 'no' END AS traceparent")
    settings = options(kafka, topic=topic, trace__header="column", on__error="dead-letter", dead__letter__topic=letters)
    report = sks.publish(rows, options=settings, progress=False)
    assert report.total.bad_rows == {"header": 1}
    found = {record.value: dict(record.headers) for record in read_topic(kafka.bootstrap_servers, topic)}
    assert found == {b"0": {"traceparent": A.encode()}, b"2": {}, b"3": {}}
    (letter,) = read_topic(kafka.bootstrap_servers, letters)
    assert letter.value == b"1"
    said = r"column traceparent: the value in row [0-9]+ of the task is not a valid traceparent of W3C"
    with pytest.raises(KafkaSinkError, match=said):
        sks.publish(rows, options=options(kafka, topic=topic, trace__header="column"), progress=False)
