"""Makes OpenTelemetry's spans of what a driver writes to Kafka: one for each batch, and below it its tasks and its commit."""

from __future__ import annotations

import atexit
import copy
import logging
import os
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.options.record_options import TRACEPARENT
from spark_kafka_sink.reports.partition_reports import PartitionReports
from spark_kafka_sink.spark.driver.event_queue import NOISY, EventQueue
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.write_events import Destination, TaskTime, WriteBegan, WriteCommitted, WriteEvent, WriteFailed
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger(__name__)

MOST_TASKS: Final = 100
"""With a span of their own, by default. An exporter's queue holds 2,048 spans by default."""

STOP_S: Final = 10.0
_AT_EXIT_S: Final = 5.0
_MOST_BEGAN: Final = 1000
_USED_BY: Final = "trace_writes()"
_CODE: Final = re.compile(r"^\[([A-Z_]+)\]")

Attributes = dict[str, Any]


class _Waiting(NamedTuple):
    """An event with what its spans need of it. tasks: how many it had."""

    event: WriteEvent
    tasks: int = 0


def _waiting(event: WriteEvent, most_tasks: int) -> _Waiting:
    """Returns what waits of an event: 1,000 events with all of their tasks and partitions took 225 MB."""
    where = event.destination
    slim = None if where is None else replace(where, fields=())
    match event:
        case WriteCommitted():
            report = replace(event.batch.report, partitions=PartitionReports(), ack_latency={}, bad_row_example="")
            longest = tuple(sorted(event.tasks, key=lambda one: one.began - one.ended)[:most_tasks])
            batch = replace(event.batch, report=report)
            return _Waiting(replace(event, batch=batch, tasks=longest, destination=slim), len(event.tasks))
        case WriteBegan():
            return _Waiting(event if slim is None else replace(event, destination=slim))
        case WriteFailed():
            return _Waiting(replace(event, destination=slim))


class WriteTracer:
    """Makes spans. `trace_writes` makes it.

    Threads: Spark's and the metrics listener's threads hand events over. A daemon thread makes the spans, because a span
    processor may export each at once. `stop()` may be called from any thread. Processes: a forked child makes no spans, and
    `stop()` does nothing there, also at its end.
    """

    def __init__(
        self, metrics: DeliveryMetrics, provider: TracerProvider, most_tasks: int, before: WriteTracer | None = None
    ) -> None:
        """Begins to listen. before: the tracer whose place it takes, with what that knows of batches. Stop it afterwards."""
        self._metrics = metrics
        self._tracer: Tracer = provider.get_tracer("spark_kafka_sink", __version__)
        self._most_tasks = most_tasks
        self._began: dict[tuple[str, int], float] = {} if before is None else before._began
        self._queue = EventQueue[_Waiting](
            "OpenTelemetry", self._make, lambda one: isinstance(one.event, WriteBegan), quiet=NOISY
        )
        if before is not None:
            metrics.writes.remove(before._take)
        metrics.writes.add(self._take)
        self._process = os.getpid()
        atexit.register(self._at_exit)

    def stop(self, timeout: float = STOP_S) -> None:
        """Stops making spans. It does not shut the tracer provider down. A second call does nothing.

        Args:
            timeout: Seconds to wait for spans of batches that are done. One warning says how many were lost.
        """
        if os.getpid() != self._process:
            return
        atexit.unregister(self._at_exit)
        self._metrics.writes.remove(self._take)
        with _lock:
            if _tracers.get(self._metrics) is self:
                del _tracers[self._metrics]
        self._queue.stop(timeout)

    def _at_exit(self) -> None:
        self.stop(_AT_EXIT_S)

    def _take(self, event: WriteEvent) -> None:
        self._queue.put(_waiting(event, self._most_tasks))

    def _make(self, waiting: _Waiting) -> None:
        match event := waiting.event:
            case WriteBegan():
                while len(self._began) >= _MOST_BEGAN:  # whose ends were not seen
                    del self._began[next(iter(self._began))]
                self._began[event.query_id, event.batch] = event.at
            case WriteCommitted():
                self._committed(event, waiting.tasks)
            case WriteFailed():
                self._failed(event)

    def _committed(self, event: WriteCommitted, tasks: int) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        batch = event.batch
        began = min(self._began.pop((batch.query_id, batch.batch), batch.began), batch.began)
        end = batch.began + batch.seconds
        attributes = {**self._query(batch.query_id, batch.batch), **_batch_attributes(event, tasks)}
        span = self._batch_span(event.destination, began, attributes)
        inside = set_span_in_context(span, _empty())
        for task in event.tasks:
            name = f"task {task.spark_partition}"
            one = self._tracer.start_span(name, inside, SpanKind.INTERNAL, _task_attributes(task), start_time=_ns(task.began))
            one.end(_ns(max(task.ended, task.began)))
        ended = {
            "kafka_sink.transactions.committed": batch.report.transactions_committed,
            "kafka_sink.transactions.aborted": batch.report.transactions_aborted,
        }
        commit = self._tracer.start_span("commit", inside, SpanKind.INTERNAL, ended, start_time=_ns(event.commit_began))
        commit.end(_ns(max(end, event.commit_began)))
        span.end(_ns(max(end, began)))

    def _failed(self, event: WriteFailed) -> None:
        from opentelemetry.trace import Status, StatusCode

        began = self._began.pop((event.query_id, event.batch), event.at)
        code = _CODE.match(event.message)  # of the sink's error
        kind = code[1] if code else "interrupted" if event.is_interrupt else "_OTHER"
        attributes = {**self._query(event.query_id, event.batch), "error.type": kind}
        span = self._batch_span(event.destination, began, attributes)
        span.set_status(Status(StatusCode.ERROR, event.message))
        span.end(_ns(max(event.at, began)))

    def _query(self, query_id: str, batch: int) -> Attributes:
        found: Attributes = {"kafka_sink.query.id": query_id, "kafka_sink.batch": batch}
        # Not before an event waits: for a name that is not known yet Spark is asked, and a commit must not wait for that.
        if query_id and (name := self._metrics.query_name(query_id)):
            found["kafka_sink.query.name"] = name
        return found

    def _batch_span(self, where: Destination | None, began: float, attributes: Attributes) -> Span:
        """Returns a batch's span, which has the ids of its records' headers."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent, kind, tracer = _empty(), SpanKind.CLIENT, self._tracer
        if where is not None and where.parent:
            parent = TraceContextTextMapPropagator().extract({TRACEPARENT: where.parent}, parent)
        if where is not None and where.context:
            # The conventions: PRODUCER, if consumers see the span's context, and else CLIENT.
            kind, tracer = SpanKind.PRODUCER, _with_ids(tracer, where.context)
        name = f"send {where.topic}" if where is not None and where.topic else "send"
        return tracer.start_span(name, parent, kind, {**_messaging(where), **attributes}, start_time=_ns(began))


class _NoTracer(WriteTracer):
    """Makes no spans, where Spark does not allow it."""

    def __init__(self) -> None:
        self._process = -1  # `stop()` does nothing


def trace_writes(
    metrics: DeliveryMetrics, tracer_provider: TracerProvider | None = None, *, most_tasks: int = MOST_TASKS
) -> WriteTracer:
    """Makes OpenTelemetry's spans for what this driver writes to Kafka: see [tracing](monitoring.md#tracing).

    `publish` and `foreach_batch` give spans if they get `metrics`. A slow exporter delays nothing. On Spark Connect no spans
    are made, and one warning says so. A second call with the same `metrics` replaces the first one's tracer.

    Args:
        metrics: The result of `register(spark)`.
        tracer_provider: A provider of OpenTelemetry's SDK. None: the global one.
        most_tasks: The most tasks of a batch with a span of their own; those that lasted longest.

    Raises:
        InstallationError: opentelemetry-sdk is missing.
    """
    check_extra("opentelemetry.sdk", _USED_BY)
    if not metrics.available:
        logger.warning("no spans are made: this session has no SparkContext that the driver program can use")
        return _NoTracer()
    if tracer_provider is None:
        from opentelemetry.trace import get_tracer_provider

        tracer_provider = get_tracer_provider()  # type: ignore[assignment]
    assert tracer_provider is not None
    with _lock:
        old = _tracers.get(metrics)
        _tracers[metrics] = made = WriteTracer(metrics, tracer_provider, most_tasks, old)
    if old is not None:
        old.stop()
    return made


_lock = threading.Lock()
_tracers: dict[DeliveryMetrics, WriteTracer] = {}


class _Ids:
    """Gives a span the ids of a context that exists already. A class of the SDK's, IdGenerator, asks for both."""

    def __init__(self, trace_id: int, span_id: int) -> None:
        self._trace_id = trace_id
        self._span_id = span_id

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id

    def is_trace_id_random(self) -> bool:
        return True


def _with_ids(tracer: Tracer, context: str) -> Tracer:
    """Returns a tracer whose next span has the ids of a traceparent. Only the SDK's tracers have such ids."""
    if not hasattr(tracer, "id_generator"):
        return tracer
    _, trace_id, span_id, *_ = context.split("-")
    made: Any = copy.copy(tracer)
    made.id_generator = _Ids(int(trace_id, 16), int(span_id, 16))
    return made  # type: ignore[no-any-return]


def _empty() -> Context:
    """Returns a context without a span: what is current in this thread has nothing to do with the batch."""
    from opentelemetry.context import Context

    return Context()


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _messaging(where: Destination | None) -> Attributes:
    """Returns attributes of OpenTelemetry's conventions for messaging."""
    found: Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    if where is not None and where.topic:
        found["messaging.destination.name"] = where.topic
    if where is not None and where.servers:
        host, _, port = where.servers[0].rpartition(":")
        found["server.address"] = host.strip("[]")
        found["server.port"] = int(port)
    return found


def _batch_attributes(event: WriteCommitted, tasks: int) -> Attributes:
    report = event.batch.report
    return {
        "messaging.batch.message_count": report.records,
        **_counts(report.bytes, report.retries, sum(report.errors.values())),
        "kafka_sink.tasks": tasks,
        "kafka_sink.bad_rows": sum(report.bad_rows.values()),
    }


def _task_attributes(task: TaskTime) -> Attributes:
    return {
        "kafka_sink.spark_partition": task.spark_partition,
        "messaging.batch.message_count": task.records,
        **_counts(task.bytes, task.retries, task.errors),
    }


def _counts(size: int, retries: int, errors: int) -> Attributes:
    return {"kafka_sink.bytes": size, "kafka_sink.retries": retries, "kafka_sink.errors": errors}
