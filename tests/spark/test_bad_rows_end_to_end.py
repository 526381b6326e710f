"""Bad rows through Spark: they cost a row and not a job. Under exactly-once their letters are there once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_kafka_sink as sks
from spark_kafka_sink.errors import MetadataTimeoutError, TooManyBadRowsError
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from tests.exactly_once.opened import client_of, soon
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic
from tests.spark.bad_rows import BASE_MS, KEPT, LIMITED, why
from tests.spark.frames import options, run
from tests.spark.test_exactly_once import forget_commit
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

# By the last digit of the row's number: what is wrong with it.
REASONS = {
    1: "topic",
    2: "topic",
    3: "partition",
    4: "partition",
    5: "timestamp",
    6: "header",
    7: "too-large",
    8: "INVALID_TIMESTAMP",
}


class Target:
    """A topic, a dead-letter topic, and the options to write to them."""

    def __init__(self, kafka: Kafka, topic: str, letters: str) -> None:
        self.servers, self.topic, self.letters = kafka.bootstrap_servers, topic, letters
        self.options = options(
            kafka,
            on__error="dead-letter",
            dead__letter__topic=letters,
            kafka__max__request__size="20000",
            transactional__id__prefix=topic,
            delivery__guarantee="exactly-once",
        )

    @property
    def at_least_once(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if not name.startswith(("delivery", "transactional"))}

    def expect(self, good: Sequence[int], bad: Sequence[int]) -> None:
        """These are committed. EndTxn answers before its markers are there."""
        wanted = (list(good), list(bad))
        until(lambda: (self._keys(self.topic), self._keys(self.letters)), lambda found: found == wanted, f"{wanted}")

    def letters_by_number(self) -> dict[int, Witnessed]:
        return {number_of(each): each for each in self._read(self.letters)}

    def open_ids(self) -> list[str]:
        with client_of(self.servers) as client:
            return TransactionClient(client).list_open(self.topic, soon())

    def _keys(self, topic: str) -> list[int]:
        return sorted(map(number_of, self._read(topic)))

    def _read(self, topic: str) -> list[Witnessed]:
        return read_topic(self.servers, topic, isolation_level="read_committed")


def number_of(record: Witnessed) -> int:
    return int(record.key or b"-1")


@pytest.fixture
def target(kafka: Kafka, new_topic: NewTopic) -> Iterator[Target]:
    made = Target(kafka, new_topic(3, config=LIMITED), new_topic(2, config=KEPT))
    yield made
    assert made.open_ids() == []


def rows(df: DataFrame, topic: str) -> DataFrame:
    """Rows of every column, of which eight in ten are bad. df: has a column id."""
    kind = F.col("id") % 10
    return df.select(
        F.col("id").cast("string").alias("key"),
        F.when(kind == 7, F.expr("repeat('x', 30000)")).otherwise(F.lit("v")).alias("value"),
        F.when(kind == 1, F.lit(None)).when(kind == 2, F.lit("no topic")).otherwise(F.lit(topic)).alias("topic"),
        F.when(kind == 3, F.lit(-2)).when(kind == 4, F.lit(77)).otherwise(F.lit(None)).cast("int").alias("partition"),
        F.expr(f"timestamp_millis(CASE id % 10 WHEN 5 THEN -5 WHEN 8 THEN {BASE_MS * 3} ELSE {BASE_MS} END)").alias("timestamp"),
        F.expr("IF(id % 10 = 6, array(named_struct('key', CAST(NULL AS STRING), 'value', binary('x'))), NULL)").alias("headers"),
    )


def split(numbers: range) -> tuple[list[int], list[int]]:
    """Good and bad numbers."""
    return [each for each in numbers if each % 10 not in REASONS], [each for each in numbers if each % 10 in REASONS]


def stream(spark: SparkSession, folder: Path, target: Target, *files: range) -> DataFrame:
    """Rows of numbers, a file a micro-batch."""
    (folder / "input").mkdir(exist_ok=True)
    for number, numbers in enumerate(files):
        path = folder / "input" / f"{number:02}.json"
        path.write_text("".join(f'{{"id": {each}}}\n' for each in numbers))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes the oldest first
    given = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(folder / "input"))
    return rows(given.repartition(2), target.topic)


@pytest.mark.fault("record", "bad rows of every kind, with on.error")
def test_a_stream_writes_letters_exactly_once_though_its_last_batch_runs_again(
    spark: SparkSession, target: Target, metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    df = stream(spark, tmp_path, target, range(20), range(20, 50))
    query = run(df.writeStream.format("kafka_sink").options(**target.options), tmp_path)
    good, bad = split(range(50))
    target.expect(good, bad)
    forget_commit(tmp_path, 1)
    run(df.writeStream.format("kafka_sink").options(**target.options), tmp_path)
    target.expect(good, bad)
    assert metrics.committed is not None
    report = metrics.committed
    assert (report.delivered, report.dead_letters, report.dropped) == (len(good), len(bad), 0)
    assert report.bad_rows == {reason: 5 * list(REASONS.values()).count(reason) for reason in REASONS.values()}
    found = target.letters_by_number()
    assert {number: why(each)["reason"] for number, each in found.items()} == {each: REASONS[each % 10] for each in bad}
    assert {why(each)["query.id"] for each in found.values()} == {query.id}
    assert {(number < 20, why(each)["batch.id"]) for number, each in found.items()} == {(True, "0"), (False, "1")}
    assert {why(each)["spark.partition"] for each in found.values()} == {"0", "1"}


@pytest.mark.smoke
@pytest.mark.fault("record", "bad rows of every kind, with on.error")
def test_a_batch_write_delivers_the_good_rows_and_letters_of_the_others(
    spark: SparkSession, target: Target, metrics: sks.DeliveryMetrics
) -> None:
    df = rows(spark.range(0, 100, 1, 2), target.topic)
    df.write.format("kafka_sink").options(**target.at_least_once).mode("append").save()
    good, bad = split(range(100))
    target.expect(good, bad)
    for report in (metrics.live, metrics.committed):
        assert report is not None
        assert (report.delivered, report.dead_letters, report.dropped) == (len(good), len(bad), 0)
        assert report.delivered + report.dead_letters + report.dropped == 100
    found = {number: why(each) for number, each in target.letters_by_number().items()}
    assert "query.id" not in found[bad[0]]
    # Spark's partitions have 50 rows each. Brokers reject those with the reason INVALID_TIMESTAMP.
    assert {number: (each["spark.partition"], each["row"]) for number, each in found.items()} == {
        number: (str(number // 50), str(number % 50)) for number in bad
    }


@pytest.mark.smoke
def test_publish_reports_bad_rows(spark: SparkSession, target: Target) -> None:
    report = sks.publish(rows(spark.range(0, 20, 1, 2), target.topic), options=target.options)
    good, bad = split(range(20))
    target.expect(good, bad)
    assert report.total.dead_letters == len(bad)
    assert "16 bad rows (INVALID_TIMESTAMP 2, header 2, " in repr(report.total)
    assert "16 dead letters" in report._repr_html_()


@pytest.mark.whole("two runs of a stream; task/test_bad_rows.py has the checksum")
def test_a_replay_is_known_though_the_broker_takes_rows_now_that_it_rejected(
    spark: SparkSession, target: Target, metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    """A row that was dropped stays so: the first attempt is visible, and the replay is not. One batch has only dropped rows."""
    given = {name: value for name, value in target.options.items() if name != "dead.letter.topic"} | {"on.error": "drop"}
    df = stream(spark, tmp_path, target, range(1, 5), range(20, 40))
    run(df.writeStream.format("kafka_sink").options(**given), tmp_path)
    good, bad = split(range(20, 40))
    target.expect(good, [])
    assert metrics.committed is not None
    assert (metrics.committed.delivered, metrics.committed.dropped) == (len(good), len(bad) + 4)
    forget_commit(tmp_path, 1)
    set_config(target, "message.timestamp.after.max.ms", str(2**63 - 1))
    run(df.writeStream.format("kafka_sink").options(**given), tmp_path)
    target.expect(good, [])
    assert target.open_ids() == []


def set_config(target: Target, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, target.topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": target.servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


# Limits


def test_a_micro_batch_with_too_many_bad_rows_is_not_visible_and_goes_on_with_a_higher_limit(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    """Each task is within the limit, and the micro-batch is not."""
    df = stream(spark, tmp_path, target, range(10), range(10, 40))
    strict = target.options | {"on.error.max.rows": "20"}
    with pytest.raises(StreamingQueryException, match=r"\[TOO_MANY_BAD_ROWS\] 24 rows of 30 are bad \(INVALID_TIMESTAMP 3, "):
        run(df.writeStream.format("kafka_sink").options(**strict), tmp_path)
    target.expect(*split(range(10)))
    assert target.open_ids() == []
    run(df.writeStream.format("kafka_sink").options(**target.options), tmp_path)
    target.expect(*split(range(40)))


def test_publish_raises_the_error_of_a_limit_and_at_least_once_rows_stay(spark: SparkSession, target: Target) -> None:
    with pytest.raises(TooManyBadRowsError, match="16 rows of 20 are bad"):
        sks.publish(rows(spark.range(0, 20, 1, 2), target.topic), options=target.at_least_once | {"on.error.max.rows": "15"})
    target.expect(*split(range(20)))


# The dead-letter topic


@pytest.mark.fault("record", "a dead-letter topic that is missing, forbidden, compacted or too narrow")
@pytest.mark.embedded
def test_a_missing_dead_letter_topic_is_found_before_any_task(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker

    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=False)) as broker:
        broker.create_topic("events")
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.max.block.ms": "1500",
            "topic": "events",
            "on.error": "dead-letter",
            "dead.letter.topic": "letters",
        }
        df = spark.range(3).selectExpr("string(id) AS value")
        with pytest.raises(MetadataTimeoutError, match=r"topic letters \(option dead\.letter\.topic\): the topic does not exist"):
            sks.publish(df, options=given)
        with pytest.raises(PySparkException, match=r"topic letters \(option dead\.letter\.topic\): the topic does not exist"):
            df.write.format("kafka_sink").options(**given).mode("append").save()
        assert read_topic(broker.bootstrap_servers, "events") == []
        created = given | {"topic.create.partitions": "1", "kafka.max.block.ms": "10000"}
        df = spark.range(3).selectExpr("string(id) AS value", "int(id) AS partition")
        sks.publish(df, options=created)
        assert len(read_topic(broker.bootstrap_servers, "letters")) == 2
