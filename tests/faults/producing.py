"""Producers for fault tests: short back-offs, one record a batch, and records that are numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.records.columns import RecordColumns

QUICK: dict[str, object] = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "linger.ms": 0,
    "max.block.ms": 10_000,
}


def producer_on(bootstrap_servers: str, **settings: object) -> Producer:
    """Settings are Kafka's option names with underscores for dots."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap_servers, **QUICK, **options})


def one_by_one(bootstrap_servers: str, **settings: object) -> Producer:
    """Each record is a batch."""
    return producer_on(bootstrap_servers, **{"batch_size": 1, **settings})


@contextmanager
def failing_scope(producer: Producer) -> Iterator[SendScope]:
    """A scope in which something is to fail, which the test looks at itself: leaving it neither flushes nor raises."""
    with producer.scope() as scope:
        yield scope
        scope.discard()


def numbers(values: Iterable[int], partition: int | None = None, width: int = 0) -> RecordColumns:
    """A record for each number; `width`: padded with zeros to so many bytes."""
    written = [b"%0*d" % (width, value) for value in values]
    chosen = None if partition is None else np.full(len(written), partition, dtype=np.int32)
    return RecordColumns(len(written), value=pa.array(written, pa.binary()), partition=chosen)


def figure(producer: Producer, name: str) -> float:
    """One of the producer's own metrics, as of now."""
    return producer.metrics()["producer-metrics"][name]


def buffered_bytes(producer: Producer) -> float:
    """How much of buffer.memory somebody holds."""
    return figure(producer, "buffer-total-bytes") - figure(producer, "buffer-available-bytes")


def send(producer: Producer, columns: RecordColumns, topic: str = "t") -> int:
    """All of it, in a scope of its own; how many records were acked."""
    with producer.scope() as scope:
        scope.append(topic, columns)
        scope.flush(20)
        return scope.report().records
