"""Many tasks on one producer and many partitions: nobody waits for ever, nothing is lost, and each keeps its own order."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from tests.faults.producing import producer_on
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

pytestmark = pytest.mark.slow

THREADS = 8
PARTITIONS = 64
ROWS_AT_ONCE = 10_000
BYTES = 9
# It takes a tenth of that on an idle machine.
DEADLINE_S = 240


class Task(threading.Thread):
    """Sends `rows` records, `value` its number and the record's (1 and 8 bytes), in scopes of five appends each."""

    def __init__(self, producer: Producer, topic: str, number: int, rows: int) -> None:
        super().__init__(name=f"task {number}")
        self.report = DeliveryReport()
        self.error: BaseException | None = None
        self._producer, self._topic, self._number, self._rows = producer, topic, number, rows
        self._random = np.random.default_rng(number)

    def run(self) -> None:
        try:
            for start in range(0, self._rows, 5 * ROWS_AT_ONCE):
                with self._producer.scope() as scope:
                    for first in range(start, start + 5 * ROWS_AT_ONCE, ROWS_AT_ONCE):
                        scope.append(self._topic, self._columns(first))
                    scope.flush(DEADLINE_S)
                    self.report.add(scope.report())
        except BaseException as error:
            self.error = error

    def _columns(self, first: int) -> RecordColumns:
        values = np.empty((ROWS_AT_ONCE, BYTES), dtype=np.uint8)
        values[:, 0] = self._number
        values[:, 1:] = np.arange(first, first + ROWS_AT_ONCE, dtype=">i8").view(np.uint8).reshape(-1, 8)
        offsets = pa.py_buffer(np.arange(0, values.size + 1, BYTES, dtype=np.int32))
        column = pa.Array.from_buffers(pa.binary(), ROWS_AT_ONCE, [None, offsets, pa.py_buffer(values)])
        partitions = self._random.integers(0, PARTITIONS, ROWS_AT_ONCE, dtype=np.int32)
        return RecordColumns(ROWS_AT_ONCE, value=column, partition=partitions)


@pytest.mark.timeout(DEADLINE_S + 120)
@pytest.mark.whole("half a minute each; tests/producer/test_many_threads.py has fewer records and memory that is always full")
@pytest.mark.parametrize(("memory_mb", "rows"), [(2, 250_000), (32, 250_000)])
def test_eight_tasks_on_one_producer_and_64_partitions(kafka: Kafka, new_topic: NewTopic, memory_mb: int, rows: int) -> None:
    """With 2 MB all of them wait for memory all the time."""
    topic = new_topic(PARTITIONS)
    with producer_on(kafka.bootstrap_servers, buffer_memory=memory_mb << 20, max_block_ms=120_000, linger_ms=5) as producer:
        tasks = [Task(producer, topic, number, rows) for number in range(THREADS)]
        deadline = time.monotonic() + DEADLINE_S
        for task in tasks:
            task.start()
        for task in tasks:
            task.join(max(0.0, deadline - time.monotonic()))
        assert [task.name for task in tasks if task.is_alive()] == []
        assert [task.error for task in tasks if task.error] == []
    assert [task.report.records for task in tasks] == [rows] * THREADS
    read = read_topic(kafka.direct_servers, topic)
    values = np.frombuffer(b"".join(record.value or b"" for record in read), dtype=np.uint8).reshape(-1, BYTES)
    partitions = np.array([record.partition for record in read])
    numbers = values[:, 1:].copy().view(">i8").ravel()
    for number in range(THREADS):
        mine = values[:, 0] == number
        assert np.array_equal(np.sort(numbers[mine]), np.arange(rows)), f"task {number}: lost or twice"
        for partition in range(PARTITIONS):
            assert np.all(np.diff(numbers[mine & (partitions == partition)]) > 0), f"task {number}: order in {partition}"
