"""Spans and the header `traceparent`: of a batch, of each row, and of rows that have one already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, get_current_span, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pyspark.sql import SparkSession
from pyspark.sql import types as t

import spark_kafka_sink as sks
from spark_kafka_sink.errors import KafkaSinkError, OptionError, RecordError, SchemaError
from spark_kafka_sink.exactly_once.row_checksum import RowChecksum
from spark_kafka_sink.options.record_options import is_traceparent, trace_options
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema
from spark_kafka_sink.spark.task.columns import records_by_topic
from spark_kafka_sink.spark.task.refused_rows import split_batch
from spark_kafka_sink.spark.trace_header import bad_traceparents, with_batch_context, with_current_span
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import numbers, options, parquet_stream, run

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


def test_records_of_a_micro_batch_have_the_context_of_its_span(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    tracer: sks.WriteTracer,
    traced: Traced,
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    old = "named_struct('key', 'traceparent', 'value', binary('old'))"
    rows = numbers(spark, 100).selectExpr("*", f"array({old}, named_struct('key', 'n', 'value', binary(key))) AS headers")
    settings = options(kafka, topic=topic, trace__header="batch", delivery__guarantee="exactly-once")
    writer = parquet_stream(spark, rows, tmp_path).writeStream.queryName("clicks")
    run(writer.foreachBatch(sks.foreach_batch(settings, metrics)), tmp_path)
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


# The header `traceparent`: of a batch, of each row, and of rows that have one already


B = "00-11111111111111111111111111111111-2222222222222222-00"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BAD = (
    "",
    "x",
    A.upper(),
    A[:-1],
    A + "0",
    A + "-more",
    f" {A}",
    f"{A}\n",
    "ff" + A[2:],
    "00-" + "0" * 32 + A[35:],
    A[:36] + "0" * 16 + "-01",
    A.replace("-", "_"),
)
GOOD = (A, B, "01" + A[2:], "01" + A[2:] + "-more", "cc" + A[2:] + "-")
ROWS = pa.record_batch(
    {
        "value": pa.array(["0", "1", "2", "3"]),
        "headers": pa.array([None, [("n", b"1"), ("traceparent", b"old")], [("traceparent", b"old"), ("m", None)], []], HEADERS),
        "traceparent": pa.array([A, B, None, A]),
    }
)
BY_COLUMN = SinkSchema(value=0, headers=1, traceparent=2)


def settings(**more: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t", **{k.replace("__", "."): v for k, v in more.items()}})


def headers(batch: pa.RecordBatch, schema: SinkSchema, fixed: Any = ()) -> Any:
    (found,) = records_by_topic(batch, schema, "t", fixed_headers=fixed)
    if found.columns.headers is None:
        return None
    assert found.columns.headers.validate(full=True) is None
    return [None if row is None else [(one["key"], one["value"]) for one in row] for row in found.columns.headers.to_pylist()]


@pytest.mark.parametrize("text", GOOD)
def test_what_is_valid_is_valid_to_opentelemetry(text: str) -> None:
    assert is_traceparent(text)
    context = TraceContextTextMapPropagator().extract({"traceparent": text})
    assert get_current_span(context).get_span_context().is_valid
    assert bad_traceparents(pa.array([text])).tolist() == []


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_is_bad_by_column_too(text: str) -> None:
    assert bad_traceparents(pa.array([A, None, text])).tolist() == [2]
    assert not is_traceparent(text)


@given(st.text("0f-\n g", max_size=60) | st.from_regex(r"\A[0f]{2}-[0f]{32}-[0f]{16}-[0f]{2}(-x?)?\Z"))
def test_a_column_and_an_option_agree(text: str) -> None:
    assert (bad_traceparents(pa.array([text])).tolist() == []) == is_traceparent(text)


def test_each_row_gets_its_own_in_place_of_an_old_one() -> None:
    assert headers(ROWS, BY_COLUMN) == [
        [("traceparent", A.encode())],
        [("n", b"1"), ("traceparent", B.encode())],
        [("traceparent", b"old"), ("m", None)],  # null: the row is as it was
        [("traceparent", A.encode())],
    ]


def test_rows_without_headers_and_a_void_column() -> None:
    alone = SinkSchema(value=0, traceparent=2)
    assert headers(ROWS, alone) == [
        [("traceparent", A.encode())],
        [("traceparent", B.encode())],
        [],
        [("traceparent", A.encode())],
    ]
    void = ROWS.set_column(2, "traceparent", pa.nulls(4))
    assert headers(void, alone) is None
    assert headers(ROWS.slice(1, 2), BY_COLUMN)[0] == [("n", b"1"), ("traceparent", B.encode())]
    large = ROWS.set_column(2, "traceparent", ROWS.column(2).cast(pa.large_string()))
    assert headers(large, BY_COLUMN) == headers(ROWS, BY_COLUMN)


def test_that_of_a_batch_replaces_those_of_rows() -> None:
    fixed = (("traceparent", A.encode()),)
    assert headers(ROWS, SinkSchema(value=0, headers=1), fixed) == [[], [("n", b"1")], [("m", None)], []]


def test_without_the_option_headers_are_not_touched() -> None:
    schema = SinkSchema(value=0, headers=1)
    (found,) = records_by_topic(ROWS, schema, "t")
    assert found.columns.headers is not None
    assert found.columns.headers.buffers()[1].address == ROWS.column(1).buffers()[1].address
    assert headers(ROWS, schema)[1] == [("n", b"1"), ("traceparent", b"old")]


def test_a_bad_value_is_a_bad_row_and_its_text_names_the_row() -> None:
    bad = ROWS.set_column(2, "traceparent", pa.array([A, "secret", None, A]))
    with pytest.raises(
        RecordError, match=r"column traceparent: the value in row 11 of the data is not a valid traceparent of W3C"
    ) as caught:
        list(records_by_topic(bad, BY_COLUMN, "t", first_row=10))
    assert "secret" not in str(caught.value)
    split = split_batch(bad, BY_COLUMN, "t", first_row=10)
    assert split.refused.rows == [11]
    assert split.refused.columns.headers is not None
    assert split.refused.columns.headers.to_pylist() == [[{"key": "n", "value": b"1"}, {"key": "traceparent", "value": b"old"}]]
    assert len(headers(split.batch, BY_COLUMN)) == 3


def test_a_replayed_batch_with_another_traceparent_has_the_same_checksum() -> None:
    def checksum() -> int:
        fixed = with_batch_context(settings(trace__header="batch")).record.headers
        found = RowChecksum()
        for one in records_by_topic(ROWS, SinkSchema(value=0, headers=1), "t", fixed_headers=fixed):
            found.add(one.topic, one.columns)
        return found.value

    assert checksum() == checksum()


def test_publish_takes_the_current_span_unless_an_option_names_one() -> None:
    assert with_current_span(settings()).record.trace.parent == ""
    current = NonRecordingSpan(SpanContext(0x123, 0x456, is_remote=False, trace_flags=TraceFlags(1)))
    with use_span(current):
        assert with_current_span(settings()).record.trace.parent == f"00-{0x123:032x}-{0x456:016x}-01"
        assert with_current_span(settings(trace__parent=B)).record.trace.parent == B


def test_other_guarantees_of_options() -> None:
    assert with_batch_context(settings()).record.headers == ()
    assert trace_options({}).header == "none"
    with pytest.raises(OptionError, match=r"option trace.header: must be one of none, batch, column"):
        settings(trace__header="true")
    with pytest.raises(OptionError, match=r"option trace.parent: is not a valid traceparent of W3C"):
        settings(trace__parent="00-1-2-3")
    with pytest.raises(OptionError, match=r"option trace.header: an option headers sets the header traceparent too"):
        settings(trace__header="batch", headers__traceparent=A)
    with pytest.raises(OptionError, match=r"option trace.header: partition_writer does not support it"):
        sks.partition_writer({"kafka.bootstrap.servers": "a:1", "topic": "t", "trace.header": "batch"})


def test_the_column_must_exist_and_be_a_string() -> None:
    record = settings(trace__header="column").record
    value = t.StructField("value", t.StringType())
    found = sink_schema(t.StructType([t.StructField("TraceParent", t.StringType()), value]), "t", record=record)
    assert (found.traceparent, found.places()) == (0, [1, 0])
    assert found.selected() == SinkSchema(value=0, traceparent=1)
    with pytest.raises(SchemaError, match=r"option trace.header: there is no column traceparent"):
        sink_schema(t.StructType([value]), "t", record=record)
    with pytest.raises(SchemaError, match=r"column traceparent is binary, must be string; use cast\(traceparent as string\)"):
        sink_schema(t.StructType([t.StructField("traceparent", t.BinaryType()), value]), "t", record=record)


def test_with_a_format_the_column_is_no_field_of_the_value() -> None:
    record = settings(trace__header="column").record
    fields = [t.StructField(name, t.StringType()) for name in ("a", "traceparent", "b")]
    found = sink_schema(t.StructType(fields), "t", record=record, formats=["value"])
    assert found.value.names == ("a", "b")  # type: ignore[union-attr]
