"""What Spark's processes tell exporters and metrics in the driver program."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import permutations

import pytest

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import DeliveryMessage
from spark_kafka_sink.spark.open_transactions import MOST_QUERIES, OpenTransaction, merged, owner, transaction_ages
from spark_kafka_sink.spark.query_totals import BATCH_JOBS
from spark_kafka_sink.spark.write_events import (
    MOST_TASKS,
    Destination,
    Field,
    TaskTime,
    WriteBegan,
    WriteCommitted,
    WriteEvent,
    WriteFailed,
    event_from_bytes,
    event_to_bytes,
    task_times,
)
from tests.limits import calls_of
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


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    yield made
    made.close()


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_the_same_after_its_way(event: WriteEvent) -> None:
    assert event_from_bytes(event_to_bytes(event)) == event


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'["other"]', b'["began",1]', b'["failed","q",0,"soon","",0,null]'])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        event_from_bytes(data)


def test_details_of_a_commit_travel_only_if_an_exporter_wants_them(metrics: DeliveryMetrics) -> None:
    received, asked = list[WriteEvent](), list[int]()

    def details() -> WriteCommitted:
        asked.append(1)
        return WriteCommitted(BATCH, 1001.0, (), WHERE)

    feed = metrics.feed
    feed.committed(BATCH, details)
    assert asked == []
    metrics.writes.add(received.append)
    feed.committed(BATCH, details)
    feed.tell(WriteBegan("q", 4, 1.0, WHERE))
    metrics.writes.remove(received.append)
    feed.committed(BATCH, details)
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
    metrics: DeliveryMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[WriteEvent] = []

    def fail(event: WriteEvent) -> None:
        raise RuntimeError("no")

    metrics.writes.add(fail)
    metrics.writes.add(received.append)
    for event in EVENTS[:2]:
        metrics.writes.tell(event)
    assert len(received) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "an exporter raised RuntimeError; further errors of it are not logged: no"
    ]


def test_of_too_many_tasks_those_that_lasted_longest_stay() -> None:
    count = MOST_TASKS + 10
    messages = [DeliveryMessage(number, began=0.0, ended=float(number)) for number in range(count)]
    found = task_times([*messages, None])
    assert [one.spark_partition for one in found] == list(range(10, count))


# Ages of open transactions


T0 = 1_700_000_000.0


def opened(batch: int = 3, age: float = 0.0, query: str = "q", timeout: float = 60.0) -> OpenTransaction:
    return OpenTransaction(query, batch, T0 - age, timeout)


def told(*transactions: OpenTransaction) -> dict[str, OpenTransaction]:
    found: dict[str, OpenTransaction] = {}
    for each in transactions:
        found = merged(found, {each.query_id: each})  # as a task adds it
    return found


@pytest.mark.parametrize("order", list(permutations([opened(3, 20), opened(3, 5), opened(2, 50)])))
def test_the_oldest_transaction_of_the_last_batch_counts_in_any_order(order: tuple[OpenTransaction, ...]) -> None:
    assert transaction_ages(told(*order), [], {}, T0) == {"q": (20.0, 60.0)}


def test_running_tasks_count_too() -> None:
    assert transaction_ages(told(opened(3, 20)), [opened(3, 25)], {}, T0) == {"q": (25.0, 60.0)}
    assert transaction_ages({}, [opened(3, 25), opened(3, 1)], {}, T0) == {"q": (25.0, 60.0)}


def test_after_the_commit_the_age_is_0_until_the_next_batch_begins() -> None:
    assert transaction_ages(told(opened(3, 20)), [], {"q": 3}, T0) == {"q": (0.0, 60.0)}
    assert transaction_ages(told(opened(3, 20), opened(4, 2)), [], {"q": 3}, T0) == {"q": (2.0, 60.0)}


def test_the_commit_of_one_sink_of_a_query_does_not_hide_what_another_has_open() -> None:
    first, second = owner("q", "log-a/a"), owner("q", "log-b/b")
    both = told(opened(3, 20, first), opened(3, 12, second))
    assert set(both) == {first, second}
    assert transaction_ages(both, [], {}, T0) == {"q": (20.0, 60.0)}
    assert transaction_ages(both, [], {first: 3}, T0) == {"q": (12.0, 60.0)}
    assert transaction_ages(both, [], {first: 3, second: 3}, T0) == {"q": (0.0, 60.0)}
    assert transaction_ages(both, [], {"q": 3}, T0) == {"q": (0.0, 60.0)}


def test_ages_of_2_000_tasks_take_a_few_steps_for_each() -> None:
    finished = {f"job-{number}": opened(0, 5, f"job-{number}", 3600) for number in range(MOST_QUERIES)}
    running = [opened(5, 3)] * 2000
    assert calls_of(lambda: transaction_ages(finished, running, {}, T0)) <= 15 * (len(finished) + len(running))


def test_a_transaction_that_brokers_have_aborted_is_not_open() -> None:
    assert transaction_ages(told(opened(3, 61)), [], {}, T0) == {}
    again = told(opened(3, 100), opened(3, 10))
    assert transaction_ages(again, [], {}, T0) == {"q": (10.0, 60.0)}


def test_batch_jobs_are_one_query_with_the_transaction_closest_to_its_limit() -> None:
    jobs = told(opened(0, 30, "job-1", 300), opened(0, 20, "job-2", 60), opened(0, 50, "job-3", 60))
    assert transaction_ages(jobs, [], {"job-3": 0}, T0) == {BATCH_JOBS: (20.0, 60.0)}


def test_a_clock_of_an_executor_that_is_fast_gives_no_negative_age() -> None:
    assert transaction_ages(told(opened(3, -5)), [], {}, T0) == {"q": (0.0, 60.0)}


def test_few_queries_are_remembered() -> None:
    many = told(*(opened(0, -number, f"job-{number}") for number in range(MOST_QUERIES + 5)))
    assert len(many) == MOST_QUERIES
    assert "job-4" not in many


def test_a_job_whose_abort_is_told_has_no_open_transaction(metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: T0)
    metrics.live_tasks.take(b'["1", "", true, ["job-1", 0, %f, 60.0, ""], 5, 50, 0]' % (T0 - 7))
    assert metrics.transaction_ages() == {BATCH_JOBS: (7.0, 60.0)}
    metrics.feed.aborted(MicroBatch("job-1", 0))
    assert metrics.transaction_ages() == {BATCH_JOBS: (0.0, 60.0)}
