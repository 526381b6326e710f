from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.metrics import CommitListener, DeliveryMetrics, DeliveryReportParam, Feed, ListenerAddress
from tests.spark.reports import reports

PARAM = DeliveryReportParam()
optional = st.none() | reports


@given(st.lists(reports, min_size=1, max_size=4))
def test_the_accumulator_adds_up_what_tasks_report(each: list[DeliveryReport]) -> None:
    value = PARAM.zero(None)
    for report in each:
        value = PARAM.addInPlace(value, report)
    assert value == total(each)


@given(optional, optional)
def test_adding_changes_neither_report(one: DeliveryReport | None, other: DeliveryReport | None) -> None:
    before = pickle.dumps((one, other))
    PARAM.addInPlace(one, other)
    assert pickle.loads(before) == (one, other)


def test_nothing_reported_is_not_a_report_of_nothing() -> None:
    assert PARAM.zero(DeliveryReport(records=5)) is None
    assert PARAM.addInPlace(None, None) is None
    assert PARAM.addInPlace(None, DeliveryReport()) == DeliveryReport()


def test_without_accumulators_a_count_is_an_error_and_never_0() -> None:
    metrics = DeliveryMetrics(None)
    assert not metrics.available
    for count in ("live", "committed"):
        with pytest.raises(UsageError, match="Spark Connect has no accumulators"):
            getattr(metrics, count)
    shown = "DeliveryMetrics(not available: Spark Connect has no accumulators)"
    assert repr(metrics) == str(metrics) == shown
    assert metrics._repr_html_() == f"<p>{shown}</p>"
    assert metrics.feed == Feed()
    metrics.close()


def test_a_feed_to_nowhere_takes_reports() -> None:
    feed = pickle.loads(pickle.dumps(Feed()))
    feed.task_done(DeliveryReport())
    feed.committed([DeliveryReport()])
    feed.refused()
    assert feed == Feed()


def test_a_commit_reports_the_sum_of_its_tasks() -> None:
    received: list[DeliveryReport] = []
    listener = CommitListener(received.append, lambda: None)
    try:
        Feed(listener=listener.address).committed([DeliveryReport(records=1), DeliveryReport(records=2)])
    finally:
        listener.stop()
    assert received == [DeliveryReport(records=3)]


def test_a_driver_program_that_is_gone_does_not_fail_the_commit_but_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    listener = CommitListener(lambda report: None, lambda: None)
    listener.stop()
    address = ListenerAddress(listener.address.port, "secret" * 5 + "ab")
    Feed(listener=address).committed([DeliveryReport()])
    assert "did not reach the driver program" in caplog.text
    Feed(listener=address).refused()
    assert "could not report a refused commit" in caplog.text
    assert "secret" not in caplog.text
