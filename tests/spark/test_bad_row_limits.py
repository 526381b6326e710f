"""How many rows may be bad: of a task, and of all tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.errors import (
    TooManyBadRowsError,
)
from spark_kafka_sink.options.error_options import ErrorOptions, OnError
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.task import run_task
from tests.kafka.fixtures import NewTopic, embedded_broker_kind
from tests.kafka.kafka import Kafka
from tests.spark.bad_rows import KEPT, SCHEMA, Given, batch_of, tolerant

broker_kind = embedded_broker_kind("a second for each; one stays, and test_bad_rows_end_to_end.py has every kind on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


def test_a_task_with_too_many_bad_rows_fails_at_once(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(config=KEPT), new_topic(config=KEPT)
    settings = tolerant(kafka, letters, on__error__max__rows="2")
    seen: list[int] = []

    def batches() -> Iterator[Any]:
        for number in range(5):
            seen.append(number)
            yield SCHEMA, batch_of([Given(number, topic), Given(number, None)])

    with pytest.raises(TooManyBadRowsError) as caught:
        run_task(batches(), settings, Feed())
    assert seen == [0, 1, 2]
    text = "3 rows are bad (topic 3), more than on.error.max.rows=2 allows; one of the errors: [RECORD] column topic: is null"
    assert caught.value.message.startswith(text)
    assert (caught.value.facts["bad_rows"], caught.value.facts["reasons"]) == (3, {"topic": 3})


@pytest.mark.parametrize(
    ("limits", "option"),
    [
        (ErrorOptions(OnError.DROP, max_rows=2), "on.error.max.rows=2"),
        (ErrorOptions(OnError.DROP, max_fraction=0.1), "on.error.max.fraction=0.1"),
        (ErrorOptions(OnError.DROP, max_rows=3), None),
        (ErrorOptions(OnError.DROP, max_fraction=0.15), None),
        (ErrorOptions(OnError.DROP), None),
    ],
)
def test_limits_hold_for_the_sum_of_all_tasks(limits: ErrorOptions, option: str | None) -> None:
    reports = [
        DeliveryReport(records=10, bad_rows={"topic": 1, "header": 1}, dead_letters=2, bad_row_example="[RECORD] no"),
        DeliveryReport(records=9, bad_rows={"topic": 1}),
    ]
    if option is None:
        check_limits(limits, reports, is_visible=True)
        return
    for is_visible, outcome in ((True, "stay in their topics"), (False, "None of the rows and dead letters is visible")):
        with pytest.raises(TooManyBadRowsError) as caught:
            check_limits(limits, reports, is_visible=is_visible)
        assert caught.value.message.startswith(
            f"3 rows of 20 are bad (header 1, topic 2), more than {option} allows; one of the errors: [RECORD] no. Correct"
        )
        assert outcome in caught.value.message
        assert caught.value.facts["rows"] == 20


def test_exactly_the_allowed_share_of_rows_may_be_bad() -> None:
    for percent in range(1, 101):
        report = DeliveryReport(records=100 - percent, bad_rows={"topic": percent})
        check_limits(ErrorOptions(OnError.DROP, max_fraction=float(f"{percent / 100:.2f}")), [report], is_visible=True)
    check_limits(ErrorOptions(OnError.DROP, max_fraction=0.01), [DeliveryReport()], is_visible=True)
