"""The body that every way of calling shares, without Spark: at least once, and in a transaction."""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import Row

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, ClientMetricsManager, EmbeddedBroker, PushedMetrics
from spark_kafka_sink.errors import BatchAbortedError, DeliveryError, RecordError, RecordTooLargeError, UsageError
from spark_kafka_sink.exactly_once import micro_batch
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.transactions import transaction_manager
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.driver import partition_writer
from spark_kafka_sink.spark.driver.partition_writer import batches_of_rows
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import share_from_json, share_to_json
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task import task
from spark_kafka_sink.spark.task.coalescer import CoalescedRecords
from spark_kafka_sink.spark.task.columns import TopicRecords
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.task import SchemaAndBatch, run_task, task_batch
from tests.exactly_once.opened import client_of, soon
from tests.kafka.fixtures import NewTopic, embedded_broker_kind, on_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.bad_rows import end
from tests.spark.frames import options, read_values
from tests.waiting import until, wait_until

broker_kind = embedded_broker_kind("a second for each; one stays, and the tests of this folder with Spark run on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


@pytest.fixture(autouse=True)
def _ten_rows_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_writer, "CHUNK_ROWS", 10)


def delivered(batches: Iterable[SchemaAndBatch], settings: SinkOptions) -> DeliveryReport:
    report, share = run_task(batches, settings, Feed())
    assert share is None
    return report


def numbered(start: int, stop: int) -> list[Row]:
    return [Row(value=str(number), partition=0) for number in range(start, stop)]


def test_all_rows_of_a_task_are_in_kafka_when_it_reports(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    report = delivered(batches_of_rows(numbered(0, 95), topic), sink_options(options(kafka, topic=topic)))
    assert report.records == 95
    assert report.partitions[topic, 0].last_offset == 94
    assert read_values(kafka, topic) == list(range(95))


def test_the_next_task_of_a_worker_counts_only_its_own_rows(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    settings = sink_options(options(kafka, topic=topic))
    counts = [delivered(batches_of_rows(numbered(0, count), topic), settings).records for count in (30, 7)]
    assert counts == [30, 7]


def test_rows_that_were_held_back_are_let_go_when_they_are_appended(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would be there a second time, as the next ones are held: up to 8 MB more in each Python worker."""
    topic = new_topic()
    held: list[weakref.ref[pa.Array]] = []
    add = CoalescedRecords.add

    def noted(group: CoalescedRecords, records: TopicRecords) -> None:
        held.append(weakref.ref(records.columns.value))
        add(group, records)

    monkeypatch.setattr(CoalescedRecords, "add", noted)
    monkeypatch.setattr(SendScope, "rows_per_append", lambda scope, topic: 20)

    def batches() -> Iterator[SchemaAndBatch]:
        first, second, third = batches_of_rows(numbered(0, 30), topic)
        yield first
        assert held[0]() is not None
        yield second
        assert held[0]() is None
        yield third

    assert delivered(batches(), sink_options(options(kafka, topic=topic))).records == 30


def test_a_failure_counts_the_batches_that_a_broker_rejected() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        broker.faults.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, times=None)
        settings = sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"})
        with pytest.raises(DeliveryError) as caught:
            delivered(batches_of_rows(numbered(0, 3), "events"), settings)
    note, way_out = caught.value.__notes__
    assert note == "Kafka has acknowledged no rows. Rejected batches by error: INVALID_RECORD 1"
    assert way_out == "To go on without such rows, set on.error=dead-letter and dead.letter.topic."


@on_real_kafka
def test_a_failure_says_what_was_acked_and_that_stays(kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic()
    scopes: list[SendScope] = []
    watched = task._watched

    def noted(scope: SendScope, feed: Feed) -> AbstractContextManager[None]:
        scopes.append(scope)
        return watched(scope, feed)

    monkeypatch.setattr(task, "_watched", noted)

    def rows() -> Iterator[Row]:
        # One row more than a batch has, so that the batch is on its way; then wait for its acknowledgement.
        yield from numbered(0, 11)
        wait_until(lambda: scopes[0].progress()[0] == 10)
        yield Row(value="bad", partition=-1)

    with pytest.raises(RecordError, match="column partition: -1 is negative, in row 11 of the data") as caught:
        # A task holds few rows for a second if it knows the topic's partitions already, which is a race. With 0 it holds none.
        delivered(batches_of_rows(rows(), topic), sink_options(options(kafka, topic=topic, kafka__linger__ms="0")))
    assert caught.value.__notes__ == [
        "Kafka has acknowledged 10 rows; they stay in their topics, and another attempt writes them again.",
        "To go on without such rows, set on.error=dead-letter and dead.letter.topic.",
    ]
    assert read_values(kafka, topic) == list(range(10))


@pytest.mark.fault("spark", "a task raises mid-write and is retried")
def test_a_task_after_a_failed_one_inherits_nothing_of_it(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    settings = sink_options(options(kafka, topic=topic, kafka__linger__ms="60000"))
    with pytest.raises(RecordError):
        delivered(batches_of_rows([*numbered(0, 20), Row(value="bad", partition=99)], topic), settings)
    assert delivered(batches_of_rows(numbered(100, 105), topic), settings).records == 5
    assert read_values(kafka, topic) == list(range(100, 105))


def test_a_row_that_the_producer_refuses_is_named_as_the_tasks_row(kafka: Kafka, new_topic: NewTopic) -> None:
    even, odd = new_topic(), new_topic()
    rows = [Row(value=b"x" * (20_000 if row == 25 else 1), topic=odd if row % 2 else even) for row in range(30)]
    with pytest.raises(RecordTooLargeError) as caught:
        delivered(batches_of_rows(rows, None), sink_options(options(kafka, kafka__max__request__size="10000")))
    assert caught.value.__notes__[0] == "That is row 25 of the data, counted from 0."


@pytest.mark.fault("record", "null header, header without a key")
@pytest.mark.parametrize(("header", "problem"), [(None, "a header is null"), ((None, b""), "a header has a null key")])
def test_a_bad_header_is_named_as_the_tasks_row(kafka: Kafka, new_topic: NewTopic, header: object, problem: str) -> None:
    topic = new_topic()
    rows = [Row(value="v", headers=[("name", b""), header if row == 13 else ("", None)]) for row in range(25)]
    with pytest.raises(RecordError, match=rf"{topic}: row 3 of \d+: {problem}") as caught:
        delivered(batches_of_rows(rows, topic), sink_options(options(kafka, topic=topic)))
    assert caught.value.__notes__[0] == "That is row 13 of the data, counted from 0."


def test_a_task_reports_topics_of_too_many_partitions_as_sums(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "MOST_PARTITIONS", 2)
    narrow, wide = new_topic(), new_topic(3)
    rows = [Row(value="1", topic=narrow, partition=0), *(Row(value="1", topic=wide, partition=at % 3) for at in range(7))]
    report = delivered(batches_of_rows(rows, None), sink_options(options(kafka)))
    assert report.records == 8
    assert {key: (one.records, one.last_offset) for key, one in report.partitions.items()} == {
        (narrow, 0): (1, 0),
        (wide, -1): (7, -1),
    }


def test_the_tasks_of_a_worker_share_its_rate_limit(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    settings = sink_options(options(kafka, topic=topic, max__records__per__second="50"))
    begun = time.monotonic()
    reports = [delivered(batches_of_rows(numbered(first, first + 40), topic), settings) for first in (0, 40, 80)]
    assert time.monotonic() - begun > 120 / 50 - 1 - 0.01
    # Not each task waits: between two of them there may be time enough to save up for all rows of the next.
    assert sum(report.rate_limited_ms for report in reports) > 0
    assert read_values(kafka, topic) == list(range(120))


def test_all_topics_of_an_arrow_batch_are_asked_for_together() -> None:
    """One after another each topic that the broker creates took a request, and a wait for the next one."""
    topics = [f"new-{number}" for number in range(200)]
    batch = pa.record_batch({"value": [b"x"] * 200, "topic": topics})
    with EmbeddedBroker() as broker:
        asked = broker.faults.seen(ApiKey.METADATA)
        settings = sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers})
        assert delivered([(SinkSchema(value=0, topic=1), batch)], settings).records == 200
        assert broker.faults.seen(ApiKey.METADATA) - asked < 10


def test_a_task_whose_option_is_off_pushes_nothing() -> None:
    pushes: list[PushedMetrics] = []
    manager = ClientMetricsManager(pushes.append, metrics=("",), interval_ms=100)
    with EmbeddedBroker(config=BrokerConfig(client_metrics=manager)) as broker:
        broker.create_topic("pushed")
        for name, is_on in (("off", "false"), ("on", "true")):
            options = {"kafka.client.id": name, "kafka.enable.metrics.push": is_on}
            options |= {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "pushed"}
            sks.partition_writer(options)(iter([Row(value="7")]))
        until(lambda: {push.client_id for push in list(pushes)}, lambda found: "on" in found, "a push")
    assert {push.client_id for push in pushes} == {"on"}


# The body of a task under exactly-once, without Spark


@pytest.fixture
def settings(kafka: Kafka, new_topic: NewTopic) -> SinkOptions:
    return sink_options(options(kafka, topic=new_topic(), delivery__guarantee="exactly-once"))


def write(settings: SinkOptions, rows: list[Row], batch: MicroBatch) -> tuple[DeliveryReport, TaskTransaction]:
    return written(batches_of_rows(rows, settings.topic), settings, batch)


def written(
    batches: Iterable[SchemaAndBatch], settings: SinkOptions, batch: MicroBatch
) -> tuple[DeliveryReport, TaskTransaction]:
    report, share = run_task(batches, settings, Feed(), batch)
    assert share is not None
    return report, share


def committed(settings: SinkOptions) -> list[int]:
    assert settings.topic is not None
    read = read_topic(settings.producer.bootstrap_servers[0], settings.topic, isolation_level="read_committed")
    return [int(each.value or b"") for each in read]


def open_ids(settings: SinkOptions, batch: MicroBatch) -> list[str]:
    with client_of(settings.producer.bootstrap_servers[0]) as client:
        handles = TransactionClient(client).open_handles(TransactionalIds("spark-kafka-sink", batch.query_id), soon())
    return [each.transactional_id for each in handles]


@on_real_kafka
def test_a_tasks_rows_are_acked_and_invisible_until_somebody_else_commits_them(settings: SinkOptions) -> None:
    batch = MicroBatch.of_new_job()
    report, share = write(settings, numbered(0, 95), batch)
    assert (report.records, share.batch) == (95, batch)
    assert share.transaction is not None
    handle = share.transaction.handle
    assert (handle.records, handle.partitions) == (95, ((settings.topic, "0"),))
    assert open_ids(settings, batch) == [handle.transactional_id]
    assert committed(settings) == []
    end(settings, share_from_json(share_to_json(share), batch), commit=True)
    assert open_ids(settings, batch) == []


def test_a_task_whose_worker_ends_with_its_jvm_aborts_its_transaction(settings: SinkOptions) -> None:
    """PySpark's daemon sends SIGHUP to its workers."""
    batch = MicroBatch.of_new_job()

    def batches() -> Iterator[SchemaAndBatch]:
        for number, each in enumerate(batches_of_rows(numbered(0, 10_000), settings.topic)):
            if number == 900:
                until(lambda: open_ids(settings, batch), len, "an open transaction")
                signal.raise_signal(signal.SIGHUP)
            yield each

    settings = replace(settings, producer=replace(settings.producer, linger_ms=0, batch_size=1000))
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(SystemExit):
        run_task(batches(), settings, Feed(), batch)
    assert open_ids(settings, batch) == []
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_task_without_rows_has_no_transaction_but_says_so(settings: SinkOptions) -> None:
    batch = MicroBatch.of_new_job()
    report, share = write(settings, [], batch)
    assert (report.records, share) == (0, TaskTransaction(batch, None))
    assert share_from_json(share_to_json(share), batch) == share


@pytest.mark.fault("spark", "a task raises mid-write and is retried")
def test_a_task_that_fails_leaves_nothing_open_and_the_next_is_not_harmed(settings: SinkOptions) -> None:
    batch = MicroBatch.of_new_job()
    with pytest.raises(RecordError, match="column partition: -1 is negative") as caught:
        write(settings, [*numbered(0, 20), Row(value="bad", partition=-1)], batch)
    note, _ = caught.value.__notes__
    assert note == "The task's transaction is aborted: consumers that read committed see none of its rows."
    assert open_ids(settings, batch) == []
    _, share = write(settings, numbered(100, 105), batch)
    end(settings, share, commit=True)


def test_a_task_of_a_job_that_has_taken_too_long_already_fails_before_it_writes(
    settings: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = MicroBatch.of_new_job()
    _, share = write(settings, numbered(0, 5), batch)
    later = time.monotonic() + settings.producer.transaction_timeout_ms / 1000 + 61
    monkeypatch.setattr(micro_batch, "time", SimpleNamespace(monotonic=lambda: later))
    rows = iter(numbered(5, 10))
    with pytest.raises(BatchAbortedError, match=rf"{batch}: .*kafka\.transaction\.timeout\.ms"):
        written(batches_of_rows(rows, settings.topic), settings, batch)
    assert len(list(rows)) == 5
    end(settings, share, commit=False)
    assert open_ids(settings, batch) == []


def test_a_job_is_as_old_as_its_first_row_that_went_to_a_broker(settings: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are held until there are enough for an append have begun no transaction yet, however slowly others come."""
    behind_s = [settings.producer.transaction_timeout_ms / 1000 + 61]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() - behind_s[0])
    monkeypatch.setattr(micro_batch, "time", clock)
    monkeypatch.setattr(transaction_manager, "time", clock)
    settings = replace(settings, producer=replace(settings.producer, linger_ms=60_000))
    _, other = write(settings, numbered(0, 5), MicroBatch.of_new_job())  # the producer knows the topic now
    batch = MicroBatch.of_new_job()

    def rows() -> Iterator[Row]:
        yield from numbered(5, 25)
        behind_s[0] = 0
        yield from numbered(25, 30)

    shares = [
        other,
        written(batches_of_rows(rows(), settings.topic), settings, batch)[1],
        write(settings, numbered(30, 35), batch)[1],
    ]
    for share in shares:
        end(settings, share, commit=True)


def test_a_task_that_runs_while_its_job_takes_too_long_fails_and_leaves_nothing_open(
    settings: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = MicroBatch.of_new_job()
    _, share = write(settings, numbered(0, 5), batch)

    def rows() -> Iterator[Row]:
        yield from numbered(5, 15)
        later = time.monotonic() + settings.producer.transaction_timeout_ms / 1000 + 61
        monkeypatch.setattr(micro_batch, "time", SimpleNamespace(monotonic=lambda: later))
        yield from numbered(15, 10_000)

    with pytest.raises(BatchAbortedError):
        written(batches_of_rows(rows(), settings.topic), settings, batch)
    end(settings, share, commit=False)
    assert open_ids(settings, batch) == []


def test_a_task_that_spark_tells_nothing_of_its_batch_writes_nothing() -> None:
    with pytest.raises(UsageError, match="this Spark task has no query id and batch id"):
        task_batch()
