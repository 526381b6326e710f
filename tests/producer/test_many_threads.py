"""Eight threads on one producer send records one by one and columns, all at once: nothing is stuck, lost, twice, or out of order.

STRESS_RECORDS=5000000 python -m pytest -s tests/producer/test_many_threads.py --timeout 1800
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.base.producer_record import OnCompletion, RecordMetadata
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import producer_on
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

FEW = 100_000
MANY = int(os.environ.get("STRESS_RECORDS", "400000"))
THREADS, PARTITIONS = 8, 64
KEYS = 50  # of each thread
ROUND = 2500  # records that a thread sends one by one before it appends a quarter as many
COLUMN_ROWS = ROUND // 4
SAMPLE = 97  # every so many-th record has a callback
PADDING = b" " + b"x" * 80
AT_ONCE = max(1, PARTITIONS * 400_000 // MANY)  # partitions that are read back together: what was read takes memory
DEADLINE_S = 120 + MANY / 5000

Acked = dict[tuple[int, int], bytes]


class Task:
    """One thread's records: value `thread kind number`, with numbers that go up in each kind."""

    def __init__(self, producer: Producer, topic: str, thread: int) -> None:
        self.producer, self.topic, self.thread = producer, topic, thread
        self.keys = [b"%d-%d" % (thread, key) for key in range(KEYS)]
        self.singles = self.rows = 0
        self.acked: Acked = {}
        self.errors: list[KafkaSinkError] = []

    def run(self, records: int) -> None:
        with self.producer.scope() as scope:
            while self.singles + self.rows < records:
                self.send_some()
                scope.append(self.topic, self.columns())
        last = self.producer.send(self.topic, self.value(b"one", self.singles), self.keys[self.singles % KEYS])
        self.singles += 1
        last.result(DEADLINE_S)

    def send_some(self) -> None:
        send, topic, keys = self.producer.send, self.topic, self.keys
        for number in range(self.singles, self.singles + ROUND):
            value = self.value(b"one", number)
            if number % SAMPLE:
                send(topic, value, keys[number % KEYS])
            else:
                send(topic, value, keys[number % KEYS], on_completion=self.told(value))
        self.singles += ROUND

    def told(self, value: bytes) -> OnCompletion:
        def callback(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            if error is not None:
                self.errors.append(error)
            self.acked[metadata.partition, metadata.offset] = value

        return callback

    def columns(self) -> RecordColumns:
        numbers = range(self.rows, self.rows + COLUMN_ROWS)
        self.rows += COLUMN_ROWS
        return RecordColumns(
            COLUMN_ROWS,
            value=pa.array([self.value(b"column", number) for number in numbers]),
            key=pa.array([self.keys[number % KEYS] for number in numbers]),
        )

    def value(self, kind: bytes, number: int) -> bytes:
        return b"%d %b %d" % (self.thread, kind, number) + PADDING


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("records", whole_but([FEW, MANY], {FEW}, "four times as long; a quarter fills the memory as well"))
def test_eight_threads_lose_nothing_and_keep_their_order(kafka: Kafka, new_topic: NewTopic, records: int) -> None:
    topic = new_topic(PARTITIONS)
    others = threading.active_count()
    settings = {"buffer_memory": 8 << 20, "batch_size": 32 * 1024, "linger_ms": 5, "max_block_ms": 60_000}
    with producer_on(kafka.bootstrap_servers, **settings) as producer:
        tasks = [Task(producer, topic, thread) for thread in range(THREADS)]
        begun, cpu = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(THREADS) as pool:
            for ended in [pool.submit(task.run, records // THREADS) for task in tasks]:
                ended.result(DEADLINE_S)
        producer.flush(DEADLINE_S)
        sent = sum(task.singles + task.rows for task in tasks)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        assert threading.active_count() - others < THREADS
    print(f"\n{sent:,} records in {seconds:.1f} s: {sent / seconds:,.0f} a second, {1e6 * cpu / sent:.2f} us of CPU each")
    assert not [error for task in tasks for error in task.errors]
    found = check_log(kafka, topic, {place: value for task in tasks for place, value in task.acked.items()})
    assert found == {
        (b"%d" % task.thread, kind): count for task in tasks for kind, count in ((b"one", task.singles), (b"column", task.rows))
    }
    assert sum(found.values()) == sent >= records


def check_log(kafka: Kafka, topic: str, acked: Acked) -> Counter[tuple[bytes, bytes]]:
    """How many records of each thread and kind there are; within a partition each comes in order, and so none twice."""
    found: Counter[tuple[bytes, bytes]] = Counter()
    last: dict[tuple[int, bytes, bytes], int] = {}
    seen = 0
    for first in range(0, PARTITIONS, AT_ONCE):
        partitions = range(first, min(first + AT_ONCE, PARTITIONS))
        for record in read_topic(kafka.bootstrap_servers, topic, partitions=partitions, deadline_s=DEADLINE_S):
            thread, kind, number, _ = (record.value or b"").split(b" ")
            assert record.key == b"%b-%d" % (thread, int(number) % KEYS)
            stream = record.partition, thread, kind
            assert int(number) > last.get(stream, -1), f"{stream}: {number!r} is out of order"
            last[stream] = int(number)
            found[thread, kind] += 1
            if (record.partition, record.offset) in acked:
                assert acked[record.partition, record.offset] == record.value
                seen += 1
    assert seen == len(acked) > 0
    return found
