"""What Spark's processes tell exporters in the driver program."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.destination import Destination, Field
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import DeliveryMessage
from spark_kafka_sink.spark.write_events import (
    MOST_TASKS,
    TaskTime,
    WriteBegan,
    WriteCommitted,
    WriteEvent,
    WriteFailed,
    event_from_bytes,
    event_to_bytes,
    task_times,
)
from tests.spark.counting import counting

WHERE = Destination(("a:1",), "t", None, (Field("s", "struct", "über", (Field("x", "int"),)),), "context", "parent")
BATCH = BatchReport("q", 3, 1000.0, 2.0, DeliveryReport(records=5))
EVENTS: tuple[WriteEvent, ...] = (
    WriteBegan("job-1", 0, 1.5, WHERE),
    WriteCommitted(BATCH, 1001.0, (TaskTime(0, 1.0, 2.0, 5, 100, 1, 2),), WHERE),
    WriteCommitted(BATCH, 1001.0),
    WriteFailed("q", 1, 2.5, "why", True, WHERE),
    WriteFailed("", 1, 2.5, "why"),
)


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_the_same_after_its_way(event: WriteEvent) -> None:
    assert event_from_bytes(event_to_bytes(event)) == event


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'["other"]', b'["began",1]', b'["failed","q",0,"soon","",0,null]'])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        event_from_bytes(data)


def test_details_of_a_commit_travel_only_if_an_exporter_wants_them() -> None:
    metrics, received, asked = counting(), list[WriteEvent](), list[int]()

    def details() -> WriteCommitted:
        asked.append(1)
        return WriteCommitted(BATCH, 1001.0, (), WHERE)

    try:
        feed: Feed = metrics.feed
        feed.committed(BATCH, details)
        assert asked == []
        metrics.writes.add(received.append)
        feed.committed(BATCH, details)
        feed.tell(WriteBegan("q", 4, 1.0, WHERE))
        metrics.writes.remove(received.append)
        feed.committed(BATCH, details)
    finally:
        metrics.close()
    assert received == [details(), WriteBegan("q", 4, 1.0, WHERE)]
    assert metrics.committed is not None
    assert metrics.committed.records == 15


def test_without_a_driver_program_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    metrics = counting()
    feed = metrics.feed
    metrics.close()
    with caplog.at_level(logging.WARNING):
        feed.tell(EVENTS[0])
        Feed().tell(EVENTS[0])
    assert caplog.records == []


def test_an_exporter_that_raises_is_logged_once_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics: DeliveryMetrics = counting()
    received: list[WriteEvent] = []

    def fail(event: WriteEvent) -> None:
        raise RuntimeError("no")

    try:
        metrics.writes.add(fail)
        metrics.writes.add(received.append)
        for event in EVENTS[:2]:
            metrics.writes.tell(event)
    finally:
        metrics.close()
    assert len(received) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "an exporter raised RuntimeError; further errors of it are not logged: no"
    ]


def test_of_too_many_tasks_those_that_lasted_longest_stay() -> None:
    count = MOST_TASKS + 10
    messages = [DeliveryMessage(number, began=0.0, ended=float(number)) for number in range(count)]
    found = task_times([*messages, None])
    assert [one.spark_partition for one in found] == list(range(10, count))
