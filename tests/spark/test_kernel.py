"""What a notebook's stop and restart buttons do to a call and to a stream, in a real Jupyter kernel with Spark of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psutil
import pytest

from tests.spark.kernel import SETUP, Kernel

GONE_S = 60.0

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel() as started:
        assert started.run(SETUP).error == ""
        yield started


PUBLISH = """
df = spark.range(0, 1_000_000, 1, 2).selectExpr("string(id) AS key", "string(id) AS value")
sks.publish(df, topic="events", bootstrap_servers=broker.bootstrap_servers, options={"max.records.per.second": "2000"})
"""
STILL_RUNS = """
import threading, time
end = time.monotonic() + 30
while (jobs := spark.sparkContext.statusTracker().getActiveJobsIds()) and time.monotonic() < end:
    time.sleep(0.05)
print("jobs", jobs)
print("threads", [one.name for one in threading.enumerate() if one.name in ("kafka-sink-bar", "kafka-sink-cancel")])
"""
AGAIN = """
few = spark.range(0, 100, 1, 1).selectExpr("string(id) AS key", "string(id) AS value")
print(sks.publish(few, topic="events", bootstrap_servers=broker.bootstrap_servers).total.records)
"""


def has_rows(text: str) -> bool:
    """Whether the bar shows rows that brokers have acknowledged."""
    return re.search(r"[1-9][0-9,]* rows, ", text) is not None


def test_an_interrupted_call_says_what_was_delivered_and_its_job_ends(kernel: Kernel) -> None:
    cell = kernel.run(PUBLISH, interrupt_when=has_rows)
    assert cell.error.startswith("KeyboardInterrupt")
    told = re.search(r"Kafka has acknowledged ([0-9,]+) rows or more; they stay in their topics", cell.error)
    assert told is not None, cell.error
    assert 0 < int(told[1].replace(",", "")) < 1_000_000
    left = kernel.run(STILL_RUNS)
    assert left.text.splitlines()[:2] == ["jobs []", "threads []"]
    assert "100" in kernel.run(AGAIN).text.splitlines()


STREAM = """
import tempfile
rates = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
query = (
    rates.selectExpr("string(value) AS key", "string(value) AS value").writeStream.format("kafka_sink")
    .option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", "events")
    .option("delivery.guarantee", "exactly-once").option("checkpointLocation", tempfile.mkdtemp()).start()
)
end = time.monotonic() + 90
while not len(metrics.of(query)) and time.monotonic() < end:
    time.sleep(0.1)
"""
WATCH = "metrics.watch(interval_s=0.2)"
GOES_ON = """
before, end = len(metrics.of(query)), time.monotonic() + 60
while len(metrics.of(query)) < before + 2 and query.isActive and time.monotonic() < end:
    time.sleep(0.1)
print("active", query.isActive, query.exception(), len(metrics.of(query)) >= before + 2)
"""


@pytest.mark.whole("starts Spark once more, for 30 s; tests of watch and of its handler are in test_watch.py")
def test_an_interrupt_ends_the_view_and_not_the_query_and_a_restart_leaves_no_process(kernel: Kernel) -> None:
    kernel.run("import time")
    assert kernel.run(STREAM).error == ""
    view = kernel.run(WATCH, interrupt_when=lambda text: "trend" in text)
    assert view.error == ""
    assert "active True None True" in kernel.run(GOES_ON).text
    left = kernel.descendants()
    assert any("java" in process.name() for process in left)
    kernel.restart()
    _, alive = psutil.wait_procs(left, GONE_S)
    assert alive == []
    assert kernel.run("print(1 + 1)").text.strip() == "2"
