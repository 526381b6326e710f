"""What a notebook's stop button does to a call, in a real Jupyter kernel with Spark of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.spark.kernel import SETUP, Kernel

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


@pytest.mark.whole("starts a kernel and Spark, for 30 s; test_interrupted_publish.py interrupts a call in this process")
def test_an_interrupted_call_says_what_was_delivered_and_its_job_ends(kernel: Kernel) -> None:
    cell = kernel.run(PUBLISH, interrupt_when=has_rows)
    assert cell.error.startswith("KeyboardInterrupt")
    told = re.search(r"Kafka has acknowledged ([0-9,]+) rows or more; they stay in their topics", cell.error)
    assert told is not None, cell.error
    assert 0 < int(told[1].replace(",", "")) < 1_000_000
    left = kernel.run(STILL_RUNS)
    assert left.text.splitlines()[:2] == ["jobs []", "threads []"]
    assert "100" in kernel.run(AGAIN).text.splitlines()
