"""Spans of batches, from events as tasks and commits report them, with OpenTelemetry's SDK."""

from __future__ import annotations

import logging
import threading
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from spark_kafka_sink.exporters.tracing import WriteTracer, trace_writes
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.write_events import Destination, TaskTime, WriteBegan, WriteCommitted, WriteFailed

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-2222222222222222-01"
WHERE = Destination(("broker-1:9092", "broker-2:9092"), "events")
TASKS = (TaskTime(0, 1000.0, 1001.5, 6, 120, 1, 2), TaskTime(1, 1000.5, 1003.0, 4, 80))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(metrics: DeliveryMetrics, exporter: InMemorySpanExporter) -> Iterator[WriteTracer]:
    made = trace_writes(metrics, provider(exporter))
    yield made
    made.stop()


def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def committed(where: Destination | None = WHERE, tasks: tuple[TaskTime, ...] = TASKS) -> WriteCommitted:
    report = DeliveryReport(records=10, bytes=200, retries=1, errors={"NOT_LEADER_OR_FOLLOWER": 2}, transactions_committed=2)
    return WriteCommitted(BatchReport("q", 3, 1000.0, 4.0, report), 1003.25, tasks, where)


def spans(tracer: WriteTracer, exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    tracer.stop()
    return {span.name: span for span in exporter.get_finished_spans()}


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


def test_a_batch_has_a_span_with_its_tasks_and_its_commit(
    metrics: DeliveryMetrics, exporter: InMemorySpanExporter, tracer: WriteTracer
) -> None:
    metrics.writes.tell(committed())
    found = spans(tracer, exporter)
    assert {name: seconds(span) for name, span in found.items()} == {
        "send events": (1000.0, 1004.0),
        "task 0": (1000.0, 1001.5),
        "task 1": (1000.5, 1003.0),
        "commit": (1003.25, 1004.0),
    }
    batch = found["send events"]
    assert (batch.kind, batch.parent) == (SpanKind.CLIENT, None)
    assert dict(batch.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "events",
        "messaging.batch.message_count": 10,
        "server.address": "broker-1",
        "server.port": 9092,
        "kafka_sink.query.id": "q",
        "kafka_sink.batch": 3,
        "kafka_sink.bytes": 200,
        "kafka_sink.retries": 1,
        "kafka_sink.errors": 2,
        "kafka_sink.tasks": 2,
        "kafka_sink.bad_rows": 0,
    }
    for name in ("task 0", "task 1", "commit"):
        assert found[name].parent == batch.context
    assert dict(found["task 0"].attributes or {}) == {
        "kafka_sink.spark_partition": 0,
        "messaging.batch.message_count": 6,
        "kafka_sink.bytes": 120,
        "kafka_sink.retries": 1,
        "kafka_sink.errors": 2,
    }
    assert (found["commit"].attributes or {})["kafka_sink.transactions.committed"] == 2


def test_spans_have_the_name_of_their_query_which_is_asked_for_outside_of_commits(
    metrics: DeliveryMetrics, exporter: InMemorySpanExporter, tracer: WriteTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []

    def name(query_id: str) -> str:
        asked.append(threading.current_thread())
        return {"q": "clicks"}.get(query_id, "")

    monkeypatch.setattr(metrics, "query_name", name)
    metrics.writes.tell(committed())
    metrics.writes.tell(WriteFailed("q", 4, 995.0, "why"))
    metrics.writes.tell(WriteFailed("", 0, 995.0, "why"))
    tracer.stop()
    found = [span for span in exporter.get_finished_spans() if span.name.startswith("send")]
    assert [(span.attributes or {}).get("kafka_sink.query.name") for span in found] == ["clicks", "clicks", None]
    assert len(asked) == 2
    assert threading.current_thread() not in asked


def test_a_batch_whose_records_have_a_context_has_that_one(
    metrics: DeliveryMetrics, exporter: InMemorySpanExporter, tracer: WriteTracer
) -> None:
    metrics.writes.tell(committed(Destination(("a:1",), "events", context=CONTEXT, parent=PARENT)))
    found = spans(tracer, exporter)
    batch = found["send events"]
    assert batch.context is not None
    assert (f"{batch.context.trace_id:032x}", f"{batch.context.span_id:016x}") == tuple(CONTEXT.split("-")[1:3])
    assert batch.kind is SpanKind.PRODUCER
    assert batch.parent is not None
    assert f"{batch.parent.span_id:016x}" == PARENT.split("-")[2]
    assert found["task 1"].context is not None
    assert found["task 1"].context.span_id != batch.context.span_id
    assert found["task 1"].parent == batch.context


def test_a_context_without_a_parent_begins_its_own_trace(
    metrics: DeliveryMetrics, exporter: InMemorySpanExporter, tracer: WriteTracer
) -> None:
    metrics.writes.tell(committed(Destination(("a:1",), "events", context=CONTEXT)))
    batch = spans(tracer, exporter)["send events"]
    assert batch.context is not None
    assert (f"{batch.context.trace_id:032x}", batch.parent) == (CONTEXT.split("-")[1], None)


def test_a_failed_batch_has_a_span_with_the_error_from_its_beginning(
    metrics: DeliveryMetrics, exporter: InMemorySpanExporter, tracer: WriteTracer
) -> None:
    metrics.writes.tell(WriteBegan("job-1", 0, 990.0, WHERE))
    metrics.writes.tell(WriteFailed("job-1", 0, 995.0, "[RECORD] column partition: ...", destination=WHERE))
    metrics.writes.tell(WriteFailed("q", 1, 999.0, "Spark aborted the write."))
    tracer.stop()
    failed, other = exporter.get_finished_spans()
    assert seconds(failed) == (990.0, 995.0)
    assert (failed.name, other.name) == ("send events", "send")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "[RECORD] column partition: ...")
    assert (failed.attributes or {})["error.type"] == "RECORD"
    assert (other.attributes or {})["error.type"] == "_OTHER"


def test_only_the_tasks_that_lasted_longest_have_spans(metrics: DeliveryMetrics, exporter: InMemorySpanExporter) -> None:
    tracer = trace_writes(metrics, provider(exporter), most_tasks=2)
    metrics.writes.tell(committed(tasks=tuple(TaskTime(n, 1000.0, 1000.0 + n) for n in range(5))))
    found = spans(tracer, exporter)
    assert set(found) == {"send events", "task 3", "task 4", "commit"}
    assert (found["send events"].attributes or {})["kafka_sink.tasks"] == 5


def test_a_second_call_replaces_the_first_tracer(metrics: DeliveryMetrics, exporter: InMemorySpanExporter) -> None:
    first = trace_writes(metrics, provider(exporter))
    metrics.writes.tell(WriteBegan("q", 3, 995.0, WHERE))
    second = trace_writes(metrics, provider(exporter))
    metrics.writes.tell(committed())
    second.stop()
    first.stop()
    assert sorted(span.name for span in exporter.get_finished_spans()) == ["commit", "send events", "task 0", "task 1"]
    (batch,) = [span for span in exporter.get_finished_spans() if span.name == "send events"]
    assert seconds(batch) == (995.0, 1004.0)
    assert not metrics.writes.is_wanted


def test_events_that_wait_take_no_more_than_their_spans_need(metrics: DeliveryMetrics) -> None:
    started, release = threading.Event(), threading.Event()

    class Stuck(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            started.set()
            assert release.wait(30)
            return super().export(spans)

    exporter = Stuck()
    one = trace_writes(metrics, provider(exporter), most_tasks=10)
    try:
        metrics.writes.tell(committed())
        assert started.wait(30)
        tracemalloc.start()
        for number in range(100):
            partitions = PartitionReports({("events", place): PartitionReport(10, 200, 0, 9) for place in range(1000)})
            batch = BatchReport("q", number, 1000.0, 4.0, DeliveryReport(records=10, partitions=partitions))
            tasks = tuple(TaskTime(place, 1000.0 + place, 1001.5 + place, 10**6) for place in range(1000))
            metrics.writes.tell(WriteCommitted(batch, 1003.25, tasks, WHERE))
        del partitions, batch, tasks
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        release.set()
        one.stop()
    assert size < 100 * 10_000
    last = exporter.get_finished_spans()[-1]
    assert (last.attributes or {})["kafka_sink.tasks"] == 1000


def test_another_provider_than_the_sdks_is_taken(metrics: DeliveryMetrics, caplog: pytest.LogCaptureFixture) -> None:
    tracer = trace_writes(metrics, NoOpTracerProvider())  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        metrics.writes.tell(committed(Destination(("a:1",), "events", context=CONTEXT)))
        tracer.stop()
    assert caplog.records == []


def test_on_spark_connect_one_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trace_writes(DeliveryMetrics(None)).stop()
    (record,) = caplog.records
    assert record.getMessage() == "no spans are made: this session has no SparkContext that the driver program can use"


def test_after_its_stop_there_are_no_spans(metrics: DeliveryMetrics, exporter: InMemorySpanExporter, tracer: WriteTracer) -> None:
    tracer.stop()
    tracer.stop()
    metrics.writes.tell(committed())
    assert exporter.get_finished_spans() == ()
    assert not metrics.writes.is_wanted
