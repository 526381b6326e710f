"""The body of a task under exactly-once, without Spark."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.sql import Row

from spark_kafka_sink.errors import BatchAbortedError, KafkaSinkError, RecordError, UsageError
from spark_kafka_sink.exactly_once import micro_batch
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.producer.transactions import transaction_manager
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.driver import partition_writer
from spark_kafka_sink.spark.driver.partition_writer import batches_of_rows
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import share_from_json, share_to_json
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.task import SchemaAndBatch, run_task, task_batch
from tests.exactly_once.opened import client_of, soon
from tests.kafka.acls import KafkaWithAcls
from tests.kafka.fixtures import NewTopic, embedded_broker_kind, on_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import options
from tests.waiting import until

broker_kind = embedded_broker_kind("a second for each; some stay, and test_exactly_once.py runs on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


@pytest.fixture(autouse=True)
def _ten_rows_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_writer, "CHUNK_ROWS", 10)


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


def numbered(start: int, stop: int) -> list[Row]:
    return [Row(value=str(number), partition=0) for number in range(start, stop)]


def committed(settings: SinkOptions) -> list[int]:
    assert settings.topic is not None
    read = read_topic(settings.producer.bootstrap_servers[0], settings.topic, isolation_level="read_committed")
    return [int(each.value or b"") for each in read]


def open_ids(settings: SinkOptions, batch: MicroBatch) -> list[str]:
    with client_of(settings.producer.bootstrap_servers[0]) as client:
        handles = TransactionClient(client).open_handles(TransactionalIds("spark-kafka-sink", batch.query_id), soon())
    return [each.transactional_id for each in handles]


def end(settings: SinkOptions, share: TaskTransaction, commit: bool) -> None:
    assert share.transaction is not None
    with client_of(settings.producer.bootstrap_servers[0]) as client:
        (ended,) = TransactionClient(client).end([share.transaction.handle], commit, soon()).values()
    assert ended.error == ""


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
    end(settings, share_from_json(share_to_json(share), batch), True)
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


def test_attempts_of_a_batch_have_transactions_of_their_own_and_later_batches_use_their_ids_again(settings: SinkOptions) -> None:
    query = MicroBatch.of_new_job().query_id
    shares = [write(settings, numbered(0, 3), MicroBatch(query, number))[1] for number in (0, 0)]
    for share in shares:
        end(settings, share, False)
    shares += [write(settings, numbered(0, 3), MicroBatch(query, 1))[1] for _ in range(2)]
    ids = [share.transaction.handle.transactional_id for share in shares if share.transaction is not None]
    assert len(set(ids)) == 2
    assert ids[:2] == ids[2:]
    for share in shares[2:]:
        end(settings, share, False)


def test_equal_rows_have_equal_checksums_and_others_have_others(settings: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [write(settings, numbered(0, 30), MicroBatch.of_new_job())[1]]
    monkeypatch.setattr(partition_writer, "CHUNK_ROWS", 7)
    shares += [write(settings, rows, MicroBatch.of_new_job())[1] for rows in (numbered(0, 30), numbered(1, 31))]
    one, same, other = (share.transaction.checksum for share in shares if share.transaction is not None)
    assert one == same != other
    for share in shares:
        end(settings, share, False)


def test_a_task_that_fails_leaves_nothing_open_and_the_next_is_not_harmed(settings: SinkOptions) -> None:
    batch = MicroBatch.of_new_job()
    with pytest.raises(RecordError, match="column partition: -1 is negative") as caught:
        write(settings, [*numbered(0, 20), Row(value="bad", partition=-1)], batch)
    note, _ = caught.value.__notes__
    assert note == "The task's transaction is aborted: consumers that read committed see none of its rows."
    assert open_ids(settings, batch) == []
    _, share = write(settings, numbered(100, 105), batch)
    end(settings, share, True)


def test_a_missing_permission_is_told_by_the_first_task(kafka_with_acls: KafkaWithAcls) -> None:
    settings = sink_options(options(kafka_with_acls, topic="any", delivery__guarantee="exactly-once"))
    with (
        kafka_with_acls.denied(ResourceType.TRANSACTIONAL_ID, "spark-kafka-sink", AclOperation.WRITE, prefixed=True),
        pytest.raises(KafkaSinkError, match=r"transactional id spark-kafka-sink\.job-.*TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ):
        write(settings, numbered(0, 1), MicroBatch.of_new_job())


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
    end(settings, share, False)
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
        end(settings, share, True)


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
    end(settings, share, False)
    assert open_ids(settings, batch) == []


def test_a_task_that_spark_tells_nothing_of_its_batch_writes_nothing() -> None:
    with pytest.raises(UsageError, match="this Spark task has no query id and batch id"):
        task_batch()
