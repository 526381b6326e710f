from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import permutations

import pytest

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.spark.feed import OldestParam
from spark_kafka_sink.spark.open_transactions import MOST_QUERIES, OpenTransaction, merged, owner, transaction_ages
from spark_kafka_sink.spark.query_totals import BATCH_JOBS
from tests.limits import calls_of
from tests.spark.counting import counting


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    yield made
    made.close()


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


def test_the_accumulator_begins_with_nothing_and_merges() -> None:
    param = OldestParam()
    assert param.addInPlace(param.zero({"q": opened()}), {"q": opened()}) == {"q": opened()}


def test_a_job_whose_abort_is_told_has_no_open_transaction(metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: T0)
    metrics.live_tasks.take(b'["1", "", true, ["job-1", 0, %f, 60.0, ""], 5, 50, 0]' % (T0 - 7))
    assert metrics.transaction_ages() == {BATCH_JOBS: (7.0, 60.0)}
    metrics.feed.aborted(MicroBatch("job-1", 0))
    assert metrics.transaction_ages() == {BATCH_JOBS: (0.0, 60.0)}


def test_the_commit_of_the_first_sink_leaves_the_seconds_transaction_open(
    metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: T0)
    metrics.live_tasks.take(b'["1", "", true, ["q log-b/b", 3, %f, 60.0, ""], 5, 50, 0]' % (T0 - 7))
    metrics.batch_committed(BatchReport("q", 3, T0 - 9, 1.0, DeliveryReport(), "log-a/a"))
    assert metrics.transaction_ages() == {"q": (7.0, 60.0)}
    metrics.batch_committed(BatchReport("q", 3, T0 - 9, 9.0, DeliveryReport(), "log-b/b"))
    assert metrics.transaction_ages() == {"q": (0.0, 60.0)}
