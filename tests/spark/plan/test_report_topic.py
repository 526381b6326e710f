"""Reports of commits without Spark: what holds them up, and what they must not hold up."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.plan import commits, report_topic
from spark_kafka_sink.spark.plan.commits import commit_shares
from spark_kafka_sink.spark.plan.report_topic import write_report
from spark_kafka_sink.spark.report_record import ReportRecord
from spark_kafka_sink.spark.task.producer_cache import cache
from tests.exactly_once.opened import client_of
from tests.exactly_once.queries import PREFIX, Query
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import HOUR_S, until


@pytest.fixture(autouse=True)
def _reports_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report gets a small part of transaction.timeout.ms, so that a busy machine could lose one that shall be there."""
    monkeypatch.setattr(report_topic, "_SHARE", 1)
    monkeypatch.setattr(report_topic, "_WAIT_MS", 60_000)


@pytest.fixture
def query(kafka: Kafka, new_topic: NewTopic) -> Iterator[Query]:
    with client_of(kafka) as client:
        yield Query(kafka, client, new_topic(), "report-test-commits")
    cache.close()
    commits.committers.close()


def options_of(query: Query, report_topic: str) -> SinkOptions:
    return sink_options(
        {
            "kafka.bootstrap.servers": query.kafka.bootstrap_servers,
            "topic": query.topic,
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": PREFIX,
            "commit.log.topic": query.log_topic,
            "commit.log.partitions": "2",
            "report.topic": report_topic,
            "kafka.transaction.timeout.ms": "60000",
        }
    )


def committed(query: Query, options: SinkOptions, number: int, *values: str) -> DeliveryReport:
    """The report of a micro-batch with these rows, a task each."""
    batch = MicroBatch(query.id, number)
    shares = [TaskTransaction(batch, each) for each in query.write(*values, batch=number)]
    return total(commit_shares(options, batch, shares, [DeliveryReport(records=1) for _ in shares], Feed(), 0.0).reports)


def batches_in(kafka: Kafka, topic: str) -> list[int]:
    found = read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")
    return [ReportRecord.of(each.value).batch.batch for each in found]


def test_a_batch_without_rows_has_a_report_too_and_may_run_again(query: Query, new_topic: NewTopic) -> None:
    topic = new_topic()
    options = options_of(query, topic)
    first, again = committed(query, options, 0), committed(query, options, 0)
    assert (first.commits, first.records, again.records) == (1, 0, 0)
    committed(query, options, 1, "a", "b")
    query.expect("a", "b")
    until(lambda: batches_in(query.kafka, topic), lambda found: found == [0, 1], "the reports")
    assert query.open_ids() == []


@pytest.mark.parametrize("lost_first", [True, False])
def test_a_batch_whose_report_is_lost_in_one_of_two_runs_is_the_same_batch(
    query: Query, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, lost_first: bool
) -> None:
    """Empty or not: a report is no row."""
    batches: list[tuple[str, ...]] = [(), ("a",)]
    for number, values in enumerate(batches):
        for is_lost in (lost_first, not lost_first):
            with monkeypatch.context() as patched:
                if is_lost:
                    patched.setattr(commits, "prepare_report", lambda *_: None)
                report = committed(query, options_of(query, new_topic()), number, *values)
            assert report.reports_lost == is_lost
    query.expect("a")
    assert query.open_ids() == []


def test_a_topic_that_nobody_may_write_to_costs_one_warning_and_no_rows(
    query: Query, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    options = options_of(query, missing)
    monkeypatch.setattr(report_topic, "_WAIT_MS", 300)  # for a topic that does not come
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        lost = [committed(query, options, number, f"{number}").reports_lost for number in range(3)]
    assert lost == [1, 1, 1]
    query.expect("0", "1", "2")
    (warning,) = [each.getMessage() for each in caplog.records if "report.topic" in each.getMessage()]
    assert f"option report.topic: topic {missing} did not get the report of batch 0 of {query.id}" in warning
    assert query.open_ids() == []


@pytest.mark.parametrize("trouble", ["denied", "quota", "silent"])
def test_a_topic_that_refuses_reports_or_is_slow_costs_no_rows(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedKafka(in_memory=True) as kafka, client_of(kafka) as client:
        rows, reports = kafka.create_topic("rows"), kafka.create_topic("reports")
        query, faults = Query(kafka, client, rows, "report-test-commits"), kafka.broker.faults
        if trouble == "denied":
            faults.fail(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=reports)
        elif trouble == "quota":
            faults.throttle(ApiKey.PRODUCE, HOUR_S * 1000, topic=reports)
            monkeypatch.setattr(report_topic, "_WAIT_MS", 2_000)  # for the end of the pause, and for all that the first needs
        else:
            faults.hold(ApiKey.PRODUCE, topic=reports, times=None)
            monkeypatch.setattr(report_topic, "_WAIT_MS", 200)  # for an answer that does not come
        options = options_of(query, reports)
        lost = [committed(query, options, number, f"{number}").reports_lost for number in range(2)]
        query.expect("0", "1")
        # A quota holds up what is sent next.
        assert lost == ([0, 1] if trouble == "quota" else [1, 1])
        cache.close(0)
        commits.committers.close()


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_without_transactions_a_report_is_a_record_of_its_own(guarantee: str) -> None:
    with EmbeddedKafka(in_memory=True) as kafka:
        reports = kafka.create_topic("reports")
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        options = sink_options({**servers, "topic": "rows", "report.topic": reports, "delivery.guarantee": guarantee})
        assert write_report(options, BatchReport("query", 3, 0.0, 0.0, DeliveryReport()))
        assert batches_in(kafka, reports) == [3]
        cache.close()


def test_a_report_is_committed_after_the_rows_of_its_batch() -> None:
    ended = list[str]()
    with EmbeddedKafka(in_memory=True) as kafka, client_of(kafka) as client:
        rows, reports = kafka.create_topic("rows"), kafka.create_topic("reports")
        query = Query(kafka, client, rows, "report-test-commits")
        kafka.broker.faults.watch(ApiKey.END_TXN, on_request=lambda _, request: ended.append(request.transactional_id))
        batch = MicroBatch(query.id, 0)
        shares = [TaskTransaction(batch, each) for each in query.write("a", "b")]
        commit_shares(options_of(query, reports), batch, shares, [], Feed(), 0.0)
        own = {each.transaction.handle.transactional_id for each in shares if each.transaction is not None}
        of_batch = [each for each in ended if "log" not in each]
        assert set(of_batch[:2]) == own
        assert len(of_batch) == 3
        until(lambda: batches_in(kafka, reports), lambda found: found == [0], "the report")
        cache.close()
        commits.committers.close()


def test_a_prepared_batch_takes_its_report_along_when_another_process_completes_it(
    query: Query, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    options = options_of(query, topic)

    def died(name: str, _batch: int) -> None:
        if name == "prepared.after":
            raise ConnectionAbortedError

    with monkeypatch.context() as patched, pytest.raises(ConnectionAbortedError):
        patched.setattr("spark_kafka_sink.exactly_once.failpoints.reach", died)
        committed(query, options, 0, "a", "b")
    assert batches_in(query.kafka, topic) == []
    committed(query, options, 0, "a", "b")
    query.expect("a", "b")
    until(lambda: batches_in(query.kafka, topic), lambda found: found == [0], "the report")
    assert query.open_ids() == []
