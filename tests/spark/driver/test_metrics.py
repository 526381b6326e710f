from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark import reports_to_driver
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.metrics import DRIVER, DeliveryMetrics
from spark_kafka_sink.spark.feed import DeliveryReportParam, Feed
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.query_totals import MOST_TOTALS, QueryTotals
from spark_kafka_sink.spark.reports_to_driver import ListenerAddress, send
from spark_kafka_sink.spark.write_events import WriteCommitted, WriteFailed
from tests.spark.counting import counting, driver_listener
from tests.spark.reports import reports
from tests.waiting import HOUR_S

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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
    assert metrics.feed == Feed(driver=DRIVER)
    metrics.close()


def batch(records: int = 1, query: str = "q", number: int = 0) -> BatchReport:
    return BatchReport(query, number, 1_700_000_000.0, 2.0, DeliveryReport(records=records))


def test_a_feed_to_nowhere_takes_reports() -> None:
    feed = pickle.loads(pickle.dumps(Feed()))
    feed.task_done(DeliveryReport())
    feed.committed(batch())
    feed.refused()
    assert feed == Feed()


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    yield made
    made.close()


def test_commits_add_up_and_each_is_in_the_history(metrics: DeliveryMetrics) -> None:
    feed = Feed(listener=metrics.feed.listener)
    for number in (0, 1):
        feed.committed(batch(records=number + 1, number=number))
    metrics.batch_committed(batch(records=10, query="other"))
    assert metrics.committed == DeliveryReport(records=13)
    assert metrics.of("q").to_arrow()["rows"].to_pylist() == [1, 2]
    assert metrics.of(cast("StreamingQuery", SimpleNamespace(id="other", name=None))).rows == 10
    assert sorted(metrics.query_ids()) == ["other", "q"]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"null", b"[1]", b"\xff\xff", b'["q", 0, 1, 2]\n{"records": "x"}', b"cos\nsystem\n(S'true'\ntR."]
)
def test_anything_but_a_report_is_refused_even_with_the_token(metrics: DeliveryMetrics, body: bytes) -> None:
    address = metrics.feed.listener
    assert address is not None
    for kind in (b"C", b"P"):
        with pytest.raises(OSError):
            send(address, kind, body)
    assert metrics.committed is None


def test_a_refused_commit_is_told_without_content() -> None:
    told: list[None] = []
    metrics = counting(lambda: told.append(None))
    try:
        address = metrics.feed.listener
        assert address is not None
        with pytest.raises(OSError):
            send(address, b"R", b"R")
        assert told == []
        Feed(listener=address).refused()
        assert told == [None]
        assert metrics.committed is None
    finally:
        metrics.close()


def test_a_driver_program_that_is_gone_does_not_fail_the_commit_but_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with driver_listener({}) as closed:
        address = ListenerAddress(closed.port, "secret" * 5 + "ab")
    Feed(listener=address).committed(batch())
    assert "did not reach the driver program" in caplog.text
    Feed(listener=address).refused()
    assert "could not report a refused commit" in caplog.text
    assert "secret" not in caplog.text


def test_a_commit_is_reported_where_the_drivers_host_cannot_be_reached_from_its_own_machine() -> None:
    """A NAT or a bridged network: nothing listens where executors find the driver."""
    told: list[None] = []
    made = counting(
        lambda: told.append(None), "spark://h:7077", spark_driver_host="127.0.0.2", spark_driver_bindAddress="127.0.0.1"
    )
    try:
        feed = pickle.loads(pickle.dumps(Feed(listener=made.feed.listener)))
        feed.committed(batch(records=5))
        feed.refused()
        assert made.committed == DeliveryReport(records=5)
        assert told == [None]
    finally:
        made.close()


@pytest.fixture(params=["takes connections", "does not"])
def silent(request: pytest.FixtureRequest) -> Iterator[ListenerAddress]:
    """The address of a program that is stopped. The kernel takes its connections until too many wait."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        if request.param == "does not":
            for _ in range(8):
                waiting = opened.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(server.getsockname())
        yield ListenerAddress(server.getsockname()[1], "0" * 32)


def test_a_driver_program_that_does_not_answer_delays_a_commit_once_and_not_each_of_them(
    silent: ListenerAddress, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []

    def count(*message: Any) -> int | None:
        tried.append(message)
        return send(*message)

    monkeypatch.setattr(reports_to_driver, "send", count)
    monkeypatch.setattr(reports_to_driver, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(reports_to_driver, "RETRY_S", HOUR_S)
    feed = Feed(listener=silent)
    for number in range(50):
        feed.committed(batch(number=number))
        feed.tell(WriteFailed("q", number, 1.0, "why"))
    assert (len(tried), caplog.text.count("did not reach the driver program")) == (1, 1)


def test_a_report_that_cannot_be_made_does_not_fail_the_commit(
    metrics: DeliveryMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    def details() -> WriteCommitted:
        raise ZeroDivisionError("garbage")

    metrics.writes.add(lambda event: None)
    Feed(listener=metrics.feed.listener).committed(batch(records=5), details)
    assert metrics.committed == DeliveryReport(records=5)
    assert "a commit's details did not reach the driver program: ZeroDivisionError: garbage" in caplog.text


def test_a_line_is_logged_for_each_batch_when_asked(metrics: DeliveryMetrics, caplog: pytest.LogCaptureFixture) -> None:
    metrics.batch_committed(batch(number=1))
    assert caplog.text == ""
    with caplog.at_level("INFO", "spark_kafka_sink.batches"):
        metrics.log_batches()
        metrics.log_batches()
        metrics.batch_committed(batch(number=2, records=5_000))
        metrics.batch_committed(batch(number=7, query="named"))
        metrics.of(SimpleNamespace(id="named", name="clicks"))  # type: ignore[arg-type] # as much of a query as it reads
        metrics.batch_committed(batch(number=8, query="named"))
        metrics.close()
    first, *_, last = [each.message for each in caplog.records]
    assert first == "batch 2 of q: 5,000 rows in 2.0 s (2,500 rows/s), 0.0 MB, 0 retries"
    assert last.startswith("batch 8 of clicks: ")


def test_on_a_cluster_the_listener_is_where_the_driver_is() -> None:
    made = counting(master="spark://h:7077", spark_driver_host="localhost", spark_driver_bindAddress="127.0.0.1")
    assert made.feed.listener is not None
    assert made.feed.listener.host == "localhost"
    made.close()


def test_totals_are_sums_by_query_and_batch_jobs_are_one(metrics: DeliveryMetrics) -> None:
    metrics.batch_committed(batch(records=5, number=1))
    metrics.batch_committed(batch(records=7, number=2))
    for _ in range(3):
        metrics.batch_committed(batch(records=1, query=MicroBatch.of_new_job().query_id))
    assert metrics.totals() == {
        "q": QueryTotals(2, 12, 1_700_000_002.0, 2.0, 7, ANY, last_batch=2),
        "batch-jobs": QueryTotals(3, 3, 1_700_000_002.0, 2.0, 1, ANY),
    }


def test_a_micro_batch_that_several_sinks_report_counts_once_with_the_records_of_all(metrics: DeliveryMetrics) -> None:
    for number in (1, 2):
        for sink in ("log-a/a", "log-b/b"):
            metrics.batch_committed(replace(batch(records=5, number=number), sink=sink))
    (totals,) = metrics.totals().values()
    assert (totals.batches, totals.records) == (2, 20)
    assert (totals.last_batch, totals.last_records, totals.seconds) == (2, 10, 2.0)


def test_totals_are_of_the_queries_that_committed_last(metrics: DeliveryMetrics) -> None:
    for number in range(MOST_TOTALS + 5):
        metrics.batch_committed(batch(query=f"q{number}"))
        metrics.batch_committed(batch(query="q0", number=number + 1))
    assert len(metrics.totals()) == MOST_TOTALS
    assert metrics.totals()["q0"].batches == MOST_TOTALS + 6
    assert "q1" not in metrics.totals()


def test_a_refused_commit_is_told_also_after_a_report_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reports_to_driver, "TIMEOUT_S", 0.2)
    released, told = threading.Event(), threading.Event()
    with driver_listener({b"C": lambda content: released.wait(60) and None, b"R": lambda content: told.set()}) as address:
        feed = Feed(listener=address)
        feed.committed(batch())
        assert "timed out" in caplog.text
        released.set()
        monkeypatch.setattr(reports_to_driver, "TIMEOUT_S", 60.0)  # only the first report shall be late
        feed.refused()
        assert told.wait(60)
