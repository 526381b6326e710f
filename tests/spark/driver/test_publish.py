from __future__ import annotations

import threading
import traceback

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import MetadataTimeoutError, OptionError, RecordTooLargeError, SchemaError, UsageError
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.kafka.witness import read_topic
from tests.spark.frames import expected, numbers, options, read_records, records
from tests.spark.session import wait_for_listeners

pytestmark = pytest.mark.spark


@pytest.mark.smoke
def test_publish_returns_a_report_of_what_is_in_kafka(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It shows a bar, counts on the handle, and becomes a DataFrame with a row for each task and partition."""
    topic, before = new_topic(3), set(threading.enumerate())
    given = options(kafka, Topic=topic)
    report = sks.publish(records(spark, 300, 3), options=given, metrics=metrics, progress=True)
    assert "kafka_sink: 100%" in capsys.readouterr().err
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "kafka-sink-bar"]
    assert read_records(kafka, topic) == expected(300, 3)
    assert metrics.live == metrics.committed == report.total
    assert report.total.records == sum(task.report.records for task in report.tasks) == 300
    assert [task.spark_partition for task in report.tasks] == [0, 1]
    assert {key: (one.first_offset, one.last_offset) for key, one in report.total.partitions.items()} == {
        (topic, partition): (0, 99) for partition in range(3)
    }
    assert report.rows_per_second == pytest.approx(300 / report.seconds)
    of_tasks = report.to_spark(spark)
    assert of_tasks.schema.simpleString() == (
        "struct<spark_partition:int,topic:string,partition:int,records:bigint,bytes:bigint,first_offset:bigint,last_offset:bigint>"
    )
    assert [tuple(row) for row in of_tasks.collect()] == [tuple(row.values()) for row in report.to_arrow().to_pylist()]
    assert [tuple(row) for row in report.total.to_spark(spark).select("partition", "records", "last_offset").collect()] == [
        (partition, 100, 99) for partition in range(3)
    ]
    assert sks.DeliveryReport().to_spark(spark).collect() == []


def test_publish_of_no_rows_is_a_report_of_0(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    report = sks.publish(numbers(spark, 10).where("false"), topic=new_topic(), bootstrap_servers=[kafka.bootstrap_servers])
    assert report.total == sks.DeliveryReport()
    assert repr(report).startswith("records     0\n")


def test_wrong_arguments_are_refused_before_any_task(spark: SparkSession, kafka: Kafka) -> None:
    df = numbers(spark, 1)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is required"):
        sks.publish(df, topic="t")
    with pytest.raises(OptionError, match="option Topic: given as an argument too"):
        sks.publish(df, topic="t", options=options(kafka, Topic="t"))
    with pytest.raises(SchemaError, match="column topic is required"):
        sks.publish(df, bootstrap_servers=kafka.bootstrap_servers)
    with pytest.raises(UsageError, match=r"no argument acks; write options=\{'kafka\.acks': \.\.\.\}"):
        sks.publish(df, topic="t", acks="all")
    with pytest.raises(UsageError, match=r"no argument bootstrap_server; did you mean bootstrap_servers\?"):
        sks.publish(df, topic="t", bootstrap_server="localhost:1")
    with pytest.raises(UsageError, match=r"not a builtins\.dict"):
        sks.publish({"value": ["a"]}, topic="t")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a streaming DataFrame"):
        sks.publish(spark.readStream.format("rate").load(), topic="t", bootstrap_servers=kafka.bootstrap_servers)


def jobs_run(spark: SparkSession) -> int:
    """Returns how many jobs without a group this Spark has run."""
    wait_for_listeners(spark)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_wrong_address_is_raised_alone_before_any_job(spark: SparkSession) -> None:
    address, before = f"127.0.0.1:{free_ports(1)[0]}", jobs_run(spark)
    with pytest.raises(
        MetadataTimeoutError, match=f"no broker of bootstrap.servers {address} answered the Spark driver"
    ) as caught:
        sks.publish(numbers(spark, 1), topic="t", options={"kafka.bootstrap.servers": address, "kafka.max.block.ms": "500"})
    assert jobs_run(spark) == before
    shown = "".join(traceback.format_exception(caught.value))
    assert "During handling of" not in shown
    assert shown.endswith(f"\nSee {caught.value.link}\n")


@pytest.mark.smoke
def test_the_error_of_a_task_is_raised_without_sparks_traces(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    df = spark.range(0, 10, 1, 1).selectExpr("repeat('v', IF(id = 7, 20000, 10)) AS value")
    with pytest.raises(RecordTooLargeError) as caught:
        sks.publish(df, options=options(kafka, topic=topic, kafka__max__request__size="10000"))
    shown = "".join(traceback.format_exception(caught.value))
    assert "That is row 7 of the task" in shown
    assert "py4j" not in shown.lower()
    assert "\tat " not in shown
    assert shown.endswith(f"\nSee {caught.value.link}\n")


def test_columns_that_nobody_writes_do_not_travel(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    """A year-month interval has no place in Arrow for Python: handed over, it ended the task in KeyError: 21."""
    topic = new_topic()
    df = numbers(spark, 10).selectExpr("make_ym_interval(1, 2) AS extra", "1 AS dup", "2 AS dup", "key AS `KEY`", "value")
    assert sks.publish(df, topic=topic, bootstrap_servers=kafka.bootstrap_servers).total.records == 10
    assert sorted(int(record[1]) for record in read_records(kafka, topic)) == list(range(10))


def test_spark_says_whether_the_case_of_columns_matters(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic, session = new_topic(), spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    df = session.range(5).selectExpr("string(id) AS `Key`", "string(id + 10) AS key", "string(id) AS value")
    sks.publish(df, topic=topic, bootstrap_servers=kafka.bootstrap_servers)
    assert sorted(int(record[1]) for record in read_records(kafka, topic)) == list(range(10, 15))
    session.conf.set("spark.sql.caseSensitive", "false")
    with pytest.raises(SchemaError, match="columns Key and key differ in case alone"):
        sks.publish(df, topic=topic, bootstrap_servers=kafka.bootstrap_servers)


@pytest.mark.whole("a job that waits; tests/faults/test_rate_limit.py and task/test_task.py have the limit")
def test_a_job_takes_as_long_as_the_rate_limit_says_and_its_report_shows_it(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    limited = options(kafka, topic=topic, delivery__guarantee="exactly-once", max__records__per__second="200")
    report = sks.publish(numbers(spark, 800, tasks=2), options=limited)
    assert report.total.records == 800
    assert report.seconds > 800 / 2 / 200 - 1  # two workers
    assert report.total.rate_limited_ms > 1000
    assert "held back by the rate limit for " in repr(report)
    assert sorted(int(row.value or b"") for row in read_topic(kafka.bootstrap_servers, topic)) == list(range(800))


@pytest.mark.whole("a job that waits; tests/faults/test_rate_limit.py has what ends a wait")
def test_a_job_that_waits_for_the_rate_limit_can_be_cancelled(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    slow = options(kafka, topic=topic, max__records__per__second="1", kafka__linger__ms="0")
    raised: list[BaseException] = []

    def write() -> None:
        try:
            sks.publish(numbers(spark, 10_000, tasks=1), options=slow)
        except BaseException as error:
            raised.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    kafka.wait_for(lambda: bool(list(read_topic(kafka.bootstrap_servers, topic))), "the first record", 60)
    spark.sparkContext.cancelAllJobs()
    writer.join(60)
    assert "cancel" in str(raised[0]).lower()
    assert sks.publish(numbers(spark, 10), options=options(kafka, topic=topic)).total.records == 10
