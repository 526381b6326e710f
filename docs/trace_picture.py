"""`python -m docs.trace_picture` writes docs/pictures/trace.svg: the trace of a write and of a consumer, from a real run."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker

FILE = Path(__file__).parent / "pictures" / "trace.svg"
WIDTH, NAMES, NOTES, ROW, TOP = 760, 150, 190, 26, 44
ROWS, FIRST_ROWS, PARTITIONS = 400_000, 100, 6

STYLE = """
  svg { font: 12px system-ui, sans-serif; }
  .page { fill: #ffffff; } .text { fill: #1f2328; } .note { fill: #57606a; } .line { stroke: #d0d7de; }
  .send { fill: #0969da; } .task { fill: #54aeff; } .commit { fill: #8250df; }
  .consume { fill: #1a7f37; } .program { fill: #6e7781; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } .text { fill: #e6edf3; } .note { fill: #9198a1; } .line { stroke: #30363d; }
  }
"""


def main() -> None:
    """Writes rows to an embedded broker under exactly-once, reads them with another client, and draws the spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        with EmbeddedBroker() as broker:
            broker.create_topic("events", partitions=PARTITIONS)
            metrics = sks.register(spark)
            df = spark.range(0, ROWS, 1, 4).selectExpr("string(id) AS key", "to_json(struct(id, uuid() AS session)) AS value")
            settings = {"trace.header": "batch", "delivery.guarantee": "exactly-once", "kafka.compression.type": "lz4"}
            write(df.limit(FIRST_ROWS), metrics, broker, settings)  # starts Spark's Python processes
            tracer = sks.trace_writes(metrics, provider)
            with provider.get_tracer("nightly").start_as_current_span("nightly export"):
                write(df, metrics, broker, settings)
            consume(broker, provider)
            tracer.stop()
            metrics.close()
    finally:
        spark.stop()
    FILE.write_text(picture(exporter.get_finished_spans()), encoding="utf-8")


def write(df: DataFrame, metrics: sks.DeliveryMetrics, broker: EmbeddedBroker, settings: dict[str, str]) -> None:
    sks.publish(df, topic="events", bootstrap_servers=broker.bootstrap_servers, options=settings, metrics=metrics, progress=False)


def consume(broker: EmbeddedBroker, provider: TracerProvider) -> None:
    """Reads the topic and makes a span below the context of the last record."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
    try:
        consumer.assign([TopicPartition("events", partition, 0) for partition in range(PARTITIONS)])
        began, messages = time.time_ns(), list[Message]()
        while len(messages) < ROWS + FIRST_ROWS:
            messages += consumer.consume(10_000, timeout=0.2)
            if time.time_ns() - began > 60e9:
                raise TimeoutError(f"the consumer got {len(messages)} records")
        headers = dict(cast("list[tuple[str, bytes]]", messages[-1].headers()))
        context = TraceContextTextMapPropagator().extract({"traceparent": headers["traceparent"].decode()})
        provider.get_tracer("billing").start_span("consume events", context, start_time=began).end()
    finally:
        consumer.close()


def picture(spans: Sequence[ReadableSpan]) -> str:
    """Returns an SVG image with a row for each span, as trace viewers draw it."""
    rows = in_order(spans)
    begin = min(span.start_time or 0 for span, _ in rows)
    end = max(span.end_time or 0 for span, _ in rows)
    scale = (WIDTH - NAMES - NOTES - 16) / (end - begin)
    height = TOP + ROW * len(rows) + 12
    parts = [f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    for tick in range(5):
        x = NAMES + (end - begin) * scale * tick / 4
        parts.append(f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 12}" y2="{height - 8}"/>')
        label = f"{(end - begin) / 1e9 * tick / 4:.1f} s"
        parts.append(f'<text class="note" x="{x:.1f}" y="{TOP - 20}" text-anchor="middle">{label}</text>')
    for number, (span, depth) in enumerate(rows):
        y = TOP + ROW * number
        x, width = NAMES + ((span.start_time or 0) - begin) * scale, ((span.end_time or 0) - (span.start_time or 0)) * scale
        kind = span.name.partition(" ")[0]
        style = kind if kind in ("send", "task", "commit", "consume") else "program"
        parts.append(f'<text class="text" x="{10 + 14 * depth}" y="{y + 14}">{escape(span.name)}</text>')
        parts.append(f'<rect class="{style}" x="{x:.1f}" y="{y + 3}" width="{max(width, 2):.1f}" height="15" rx="3"/>')
        parts.append(f'<text class="note" x="{max(x + width, x + 2) + 6:.1f}" y="{y + 14}">{escape(note(span))}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def in_order(spans: Sequence[ReadableSpan]) -> list[tuple[ReadableSpan, int]]:
    """Returns each span with its depth, below its parent, in the order in which they began."""

    def below(parent: int | None, depth: int) -> list[tuple[ReadableSpan, int]]:
        inside = [span for span in spans if (None if span.parent is None else span.parent.span_id) == parent]
        found = []
        for span in sorted(inside, key=lambda one: one.start_time or 0):
            assert span.context is not None
            found += [(span, depth), *below(span.context.span_id, depth + 1)]
        return found

    return below(None, 0)


def note(span: ReadableSpan) -> str:
    """Returns the span's duration, and its records if it has any."""
    took = f"{((span.end_time or 0) - (span.start_time or 0)) / 1e6:,.0f} ms"
    attributes = span.attributes or {}
    for name, unit in (("messaging.batch.message_count", "records"), ("kafka_sink.transactions.committed", "transactions")):
        count = attributes.get(name)
        if isinstance(count, int):
            return f"{took}, {count:,} {unit}"
    return took


if __name__ == "__main__":
    main()
    print(FILE, file=sys.stderr)
