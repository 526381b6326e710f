"""delivery.guarantee=exactly-once through Spark, judged by a consumer that reads committed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_kafka_sink as sks
from spark_kafka_sink.errors import RecordError
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_log_topic import CommitLogDeletedError, made_again
from spark_kafka_sink.exactly_once.committer import Committer, OwnTransactions
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.spark.task.task import QUERY_ID
from tests.exactly_once.opened import client_of, soon
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import numbers, options, run, save
from tests.waiting import until

pytestmark = pytest.mark.spark


class Target:
    """A topic, and the options to write to it exactly once. The prefix of its transactional ids is its own."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.servers = kafka.bootstrap_servers
        self.topic = topic
        self.options = options(kafka, topic=topic, delivery__guarantee="exactly-once", transactional__id__prefix=topic)

    def expect(self, values: Iterable[int], topic: str | None = None) -> None:
        """These are committed, in order of value. EndTxn answers before its markers are there."""
        expected = list(values)
        until(lambda: self._values(topic or self.topic), lambda found: found == expected, f"{expected}")

    def _values(self, topic: str) -> list[int]:
        return sorted(int(each.value or b"") for each in read_topic(self.servers, topic, isolation_level="read_committed"))

    def batches_of_query(self, name: str) -> list[int]:
        """Returns the last batch of each query of this name, from the commit log."""
        with client_of(self.servers) as client:
            logged = CommitLog(client, CommitLogSettings()).last_records(soon()).records.values()
        return [each.record.batch for each in logged if each.record.name == name]

    def open_ids(self) -> list[str]:
        with client_of(self.servers) as client:
            return TransactionClient(client).list_open(self.topic, soon())


@pytest.fixture
def target(kafka: Kafka, new_topic: NewTopic) -> Iterator[Target]:
    made = Target(kafka, new_topic(3))
    yield made
    assert made.open_ids() == []


def stream(spark: SparkSession, folder: Path, *files: range) -> DataFrame:
    """Rows of numbers, a file a micro-batch."""
    for number, rows in enumerate(files):
        add(spark, folder, rows, f"{number:02}")
    schema = numbers(spark, 1).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "input"))


def add(spark: SparkSession, folder: Path, rows: range, name: str) -> None:
    (folder / "input").mkdir(exist_ok=True)
    text = "".join(f'{{"key": "{row % 7}", "value": "{row}"}}\n' for row in rows)
    path = folder / "input" / f"{name}.json"
    path.write_text(text)
    written_s = 1_700_000_000 + int(name)  # Spark takes the oldest first
    os.utime(path, (written_s, written_s))


def sink(df: DataFrame, target: Target, **more: str) -> DataStreamWriter:
    return df.repartition(2).writeStream.format("kafka_sink").options(**target.options, **more)


def forget_commit(folder: Path, batch: int) -> None:
    """As if the driver had died before Spark noted that the batch was committed."""
    for name in (str(batch), f".{batch}.crc"):
        (folder / "checkpoint" / "commits" / name).unlink()


@pytest.mark.smoke
@pytest.mark.fault("spark", "a replayed batch with other partitioning")
def test_each_row_of_a_stream_is_there_once_though_its_last_batch_runs_again(
    spark: SparkSession, target: Target, metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    df = stream(spark, tmp_path, range(100), range(100, 150))
    run(sink(df, target), tmp_path)
    assert metrics.live is not None
    assert metrics.committed is not None
    assert (metrics.live.records, metrics.live.commits) == (150, 0)
    committed = metrics.committed
    assert (committed.records, committed.commits, committed.transactions_committed) == (150, 2, 4)
    forget_commit(tmp_path, 1)
    add(spark, tmp_path, range(150, 160), "10")
    run(sink(df.coalesce(1), target).queryName(target.topic), tmp_path)
    target.expect(range(160))
    assert metrics.committed.records == 160
    assert target.batches_of_query(target.topic) == [2]


@pytest.mark.smoke
def test_update_mode_is_exactly_once_through_foreach_batch(
    spark: SparkSession, target: Target, metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    newest = F.max(F.col("value").cast("int")).cast("string").alias("value")
    newest_by_key = stream(spark, tmp_path, range(7), range(100, 107)).groupBy("key").agg(newest)
    write = sks.foreach_batch(target.options, metrics)
    for expected in (7, 0):  # what is written again is aborted
        run(newest_by_key.writeStream.queryName(target.topic).outputMode("update").foreachBatch(write), tmp_path)
        target.expect([*range(7), *range(100, 107)])
        assert metrics.committed is not None
        assert metrics.committed.records == 14
        assert sum(each.report.records for each in write.reports) == expected
        assert target.batches_of_query(target.topic) == [1]
        forget_commit(tmp_path, 1)


def test_a_job_in_ones_own_foreach_batch_is_written_again_when_its_batch_runs_again(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    df = stream(spark, tmp_path, range(5))
    for runs in (1, 2):
        run(df.writeStream.foreachBatch(lambda rows, _: save(rows, target.options)), tmp_path)
        target.expect(sorted([*range(5)] * runs))
        forget_commit(tmp_path, 0)


def test_two_sinks_in_one_foreach_batch_must_be_told_apart(
    spark: SparkSession, target: Target, new_topic: NewTopic, tmp_path: Path
) -> None:
    other = new_topic()
    df = stream(spark, tmp_path, range(5))

    second = {"topic": other, "sink.name": "2"}

    def both(**more: str) -> DataStreamWriter:
        writes = [sks.foreach_batch(target.options), sks.foreach_batch({**target.options, **more})]

        def write(df: DataFrame, batch: int) -> None:
            for number, each in enumerate(writes):
                spark.sparkContext.setJobGroup(f"sink {number}", "which a program may set as it likes")
                each(df, batch)

        return df.writeStream.foreachBatch(write)

    with pytest.raises(StreamingQueryException, match=r"\[USAGE\] batch 0: two sinks of one foreachBatch"):
        run(both(topic=other), tmp_path)
    target.expect([])  # the first has not committed either
    run(both(**second), tmp_path)
    target.expect(range(5))
    target.expect(range(5), other)


@pytest.fixture
def within_query(spark: SparkSession) -> Iterator[None]:
    """Spark says of this thread what it says of a query's."""
    spark.sparkContext.setLocalProperty(QUERY_ID, str(uuid.uuid4()))
    yield
    spark.sparkContext.setLocalProperty(QUERY_ID, None)  # type: ignore[arg-type]  # removes it


@pytest.mark.usefixtures("within_query")
def test_a_second_call_with_a_batch_that_is_committed_loses_no_rows_in_silence(spark: SparkSession, target: Target) -> None:
    write = sks.foreach_batch(target.options)
    write(numbers(spark, 5), 0)
    with pytest.raises(sks.KafkaSinkError, match=r"batch 0: this sink has committed it already, and would write none"):
        write(numbers(spark, 5).selectExpr("key", "'100' AS value"), 0)
    write(numbers(spark, 6).where("value = 5"), 1)
    target.expect(range(6))


@pytest.mark.usefixtures("within_query")
def test_a_batch_that_failed_may_be_tried_again_but_not_be_left_out(spark: SparkSession, target: Target) -> None:
    write = sks.foreach_batch(target.options)
    with pytest.raises(sks.KafkaSinkError):
        write(numbers(spark, 5).withColumnRenamed("value", "other"), 0)
    with pytest.raises(sks.KafkaSinkError, match=r"batch 1: batch 0 was not committed"):
        write(numbers(spark, 5), 1)
    write(numbers(spark, 5), 0)
    target.expect(range(5))


@pytest.mark.usefixtures("within_query")
def test_two_sinks_with_one_prefix_would_abort_what_the_other_has_open(spark: SparkSession, target: Target) -> None:
    sks.foreach_batch(target.options)(numbers(spark, 5), 0)
    with pytest.raises(sks.KafkaSinkError, match=r"two sinks of one foreachBatch have the same commit log, or the same prefix"):
        sks.foreach_batch({**target.options, "commit.log.topic": f"{target.topic}-2"})(numbers(spark, 5), 0)
    target.expect(range(5))


def test_outside_of_a_query_foreach_batch_cannot_be_exactly_once(spark: SparkSession, target: Target) -> None:
    with pytest.raises(sks.KafkaSinkError, match=r"not called by a streaming query's foreachBatch; use publish"):
        sks.foreach_batch(target.options)(numbers(spark, 1), 0)


@pytest.mark.smoke
def test_a_batch_job_is_visible_as_a_whole(spark: SparkSession, target: Target, metrics: sks.DeliveryMetrics) -> None:
    numbers(spark, 100, tasks=5).write.format("kafka_sink").options(**target.options).mode("append").save()
    report = sks.publish(spark.range(100, 150, 1, 3).selectExpr("string(id) AS value"), options=target.options)
    target.expect(range(150))
    assert report.total.records == 50
    assert metrics.committed is not None
    assert (metrics.committed.records, metrics.committed.transactions_committed) == (100, 5)


@pytest.mark.smoke
def test_of_a_batch_job_that_fails_nothing_is_visible_and_nothing_is_open(spark: SparkSession, target: Target) -> None:
    # The last rows of the second task are to a partition that there is not.
    df = numbers(spark, 4000, tasks=2).selectExpr("value", "IF(int(value) = 3999, -1, int(value) % 3) AS partition")
    with pytest.raises(PySparkException, match="column partition: -1 is negative"):
        df.write.format("kafka_sink").options(**target.options).mode("append").save()
    assert target.open_ids() == []
    with pytest.raises(RecordError, match="column partition: -1 is negative"):
        sks.publish(df, options=target.options)
    assert target.open_ids() == []
    sks.publish(numbers(spark, 3), options=target.options)
    target.expect(range(3))


def test_a_killed_task_that_begins_its_transaction_late_leaves_it_not_open(spark: SparkSession, target: Target) -> None:
    # Spark looks at 2 s, 4 s, ... whether it has killed a task, and ends its worker 2 s later. The second task fails after 2 s.
    slow = {"kafka.interceptor.classes": "tests.producer.recording_interceptors.SlowFirstTask"}
    wait = "java_method('java.lang.Thread', 'sleep', 2000L)"
    df = numbers(spark, 20, tasks=2).selectExpr(
        "value", f"IF(int(value) < 19, int(value) % 3, nvl2({wait}, -1, -1)) AS partition"
    )
    with pytest.raises(RecordError, match="column partition: -1 is negative"):
        sks.publish(df, options={**target.options, **slow})
    assert target.open_ids() == []
    sks.publish(numbers(spark, 3), options=target.options)
    target.expect(range(3))


@pytest.mark.fault("spark", "an unusable commit log, before the first batch's tasks")
def test_a_batch_job_that_could_not_be_committed_ends_before_its_tasks_begin(
    spark: SparkSession, target: Target, kafka: Kafka, new_topic: NewTopic
) -> None:
    never = numbers(spark, 1).selectExpr("raise_error('a task has begun') AS value")
    no_log = new_topic(2, on=kafka, config={"cleanup.policy": "delete"})
    with pytest.raises(PySparkException, match=r"cleanup\.policy=delete"):
        never.write.format("kafka_sink").options(**target.options, **{"commit.log.topic": no_log}).mode("append").save()
    with pytest.raises(sks.KafkaSinkError, match="is for streaming queries"):
        sks.publish(never, options={**target.options, "commit.log.start": "0"})


@pytest.mark.fault("spark", "an unusable commit log, before the first batch's tasks")
def test_a_stream_that_could_not_be_committed_ends_before_the_tasks_of_its_first_batch_begin(
    spark: SparkSession, target: Target, kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    never = stream(spark, tmp_path, range(3)).selectExpr("raise_error('a task has begun') AS value")
    given = {**target.options, "commit.log.topic": new_topic(2, on=kafka, config={"cleanup.policy": "delete"})}
    with pytest.raises(StreamingQueryException, match=r"cleanup\.policy=delete"):
        run(never.writeStream.foreachBatch(sks.foreach_batch(given)), tmp_path)


def test_of_a_job_that_cannot_begin_nothing_is_to_be_aborted(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "delivery.guarantee": "exactly-once", "topic": "any"}
    with pytest.raises(sks.KafkaSinkError, match="column value is required"):
        sks.publish(numbers(spark, 1).withColumnRenamed("value", "other"), options=nowhere)
    assert "not all of its transactions are aborted" not in caplog.text


@pytest.mark.parametrize("is_begun", [True, False])
def test_publish_knows_whether_a_job_that_failed_had_begun_to_commit(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_begun: bool
) -> None:
    told: list[int] = []

    def refuse(_self: Committer, _job: MicroBatch, own: OwnTransactions, *_: object, **__: object) -> NoReturn:
        told.append(len(own))
        raise made_again("commits")

    rows = numbers(spark, 10)
    if not is_begun:  # no task gets a row, so none begins a transaction after this test
        rows = rows.selectExpr("raise_error('a task failed') AS value")
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", refuse)
        patch.setattr(Committer, "abort_job", refuse)
        with pytest.raises((CommitLogDeletedError, PySparkException)):
            sks.publish(rows, options=target.options)
    assert ("may be visible" in caplog.text, "None of its rows are visible" in caplog.text) == (is_begun, not is_begun)
    commit, *aborts = told if is_begun else [0, *told]
    assert aborts == [commit]
    with client_of(target.servers) as client:
        transactions = TransactionClient(client)
        for name in target.open_ids():
            transactions.init_producer_id(name, 60_000, soon())


def test_foreach_partition_has_no_commit(target: Target) -> None:
    with pytest.raises(sks.KafkaSinkError, match=r"option delivery\.guarantee: partition_writer does not support exactly-once"):
        sks.partition_writer(target.options)


# delivery.guarantee=exactly-once at brokers that are too old for it: no row is written, and the error says what to do


NEEDS = r"exactly-once requires Kafka 3\.8 or newer .*delivery\.guarantee=at-least-once"


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_memory=True, like="3.7") as made:
        yield made


def test_a_batch_job_writes_nothing(spark: SparkSession, old_kafka: EmbeddedKafka) -> None:
    topic = old_kafka.create_topic("of-a-job", 2)
    with pytest.raises(PySparkException, match=NEEDS):
        save(numbers(spark, 10), options(old_kafka, topic=topic, delivery__guarantee="exactly-once"))

    assert read_topic(old_kafka.bootstrap_servers, topic) == []
    assert not [each for each in old_kafka.metadata().topics if each.startswith("__spark_kafka_sink")]


def test_at_least_once_works(spark: SparkSession, old_kafka: EmbeddedKafka) -> None:
    topic = old_kafka.create_topic("at-least-once", 2)
    save(numbers(spark, 10), options(old_kafka, topic=topic))

    assert len(read_topic(old_kafka.bootstrap_servers, topic)) == 10
