"""Producers for fault tests: short back-offs, one record a batch, and records that are numbers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.kafka import Kafka
from tests.waiting import wait_until

QUICK: dict[str, object] = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "linger.ms": 0,
    "max.block.ms": 60_000,
}


def producer_on(bootstrap_servers: str, **settings: object) -> Producer:
    """Settings are Kafka's option names with underscores for dots."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap_servers, **QUICK, **options})


def producer_at(kafka: Kafka | RecordingBroker, **settings: object) -> Producer:
    """As `producer_on`, with the defaults of users."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, **options})


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


def commit_next(producer: Producer, topic: str, *values: int, offset: bool = False) -> None:
    """A transaction of these records; with `offset` also of the group that has the topic's name."""
    producer.begin_transaction()
    for value in values:
        producer.send(topic, b"%d" % value)
    if offset:
        producer.send_offsets_to_transaction({(topic, 0): values[0]}, topic)
    producer.commit_transaction()


# Tasks that send numbered records without a pause, and what a log must then hold: each number once, in order


DEADLINE_S = 90.0


class NumberedStream:
    """One thread that appends 0, 1, 2... to each of `partitions` in turn, scope after scope, until it is told to end.

    It rests 10 ms after each round, for the brokers that restart beside it need the processor too. `report` and `sent` are
    whole once the `with` is left, which flushes. An error in the thread is raised there.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int, *, rows: int = 200, width: int = 8) -> None:
        """rows: in each append. width: of each record's value in bytes, with zeros before the number."""
        self.report = DeliveryReport()
        self.sent = 0  # records in each partition, appended and flushed
        self.appended = 0
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._rows = rows
        self._width = width
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"stream to {topic}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        if kind is None and self._error is not None:
            raise self._error
        if kind is None and self._thread.is_alive():
            raise TimeoutError(f"the stream did not end in {DEADLINE_S:g} s")

    def wait_for_more(self, records: int, deadline_s: float = DEADLINE_S) -> None:
        """Until so many more records have been appended to each partition."""
        wanted = self.appended + records
        wait_until(lambda: self.appended >= wanted or self._error is not None, f"{records} more records appended", deadline_s)

    def wait_until_more_is_sent(self, deadline_s: float = DEADLINE_S) -> None:
        """Until more than has been appended now is flushed, and in `report`."""
        appended = self.appended
        wait_until(lambda: self.sent > appended or self._error is not None, f"more than {appended} flushed", deadline_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with self._producer.scope() as scope:
                    for _ in range(20):
                        self._append_to_each(scope)
                        if self._stop.wait(0.01):
                            break
                    scope.flush(DEADLINE_S)
                    self.report.add(scope.report())
                    self.sent = self.appended
        except BaseException as error:
            self._error = error

    def _append_to_each(self, scope: SendScope) -> None:
        rows = range(self.appended, self.appended + self._rows)
        for partition in range(self._partitions):
            scope.append(self._topic, numbers(rows, partition, self._width))
        self.appended += self._rows


def assert_each_once_in_order(found: Sequence[int], count: int) -> None:
    """That `found` is 0, 1, 2... `count` - 1; the text names the first place where it is not."""
    for place, (number, due) in enumerate(itertools.zip_longest(found, range(count))):
        if number != due:
            around = list(found[max(0, place - 3) : place + 4])
            kind = "lost" if due not in found else "out of order or twice"
            raise AssertionError(
                f"at {place} stands {number} where {due} is due ({kind}); around it: {around}; {len(found)} of {count}"
            )
