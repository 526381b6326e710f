"""`report.topic` through Spark: a record about each committed batch, there exactly when the batch is."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.spark.plan import report_topic
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import numbers, options, run, save
from tests.spark.test_exactly_once import add, forget_commit, stream
from tests.waiting import until

pytestmark = pytest.mark.spark


def reports_in(kafka: Kafka, topic: str) -> list[dict[str, Any]]:
    """What a reader of committed records finds, by key and batch."""
    found = read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")
    reports = [json.loads(each.value or b"") for each in found]
    assert [(each.key or b"").decode() for each in found] == [each["query_id"] for each in reports]
    return sorted(reports, key=lambda each: (each["query_id"], each["batch"]))


@pytest.fixture
def settings(kafka: Kafka, new_topic: NewTopic) -> dict[str, str]:
    """Of the sink, with a topic of reports."""
    return options(kafka, topic=new_topic(3), report__topic=new_topic())


def test_each_batch_of_a_stream_has_one_report_though_its_last_batch_runs_again(
    spark: SparkSession, kafka: Kafka, settings: dict[str, str], metrics: sks.DeliveryMetrics, tmp_path: Path
) -> None:
    settings |= {"delivery.guarantee": "exactly-once", "transactional.id.prefix": settings["topic"]}
    rows = stream(spark, tmp_path, range(100), range(100, 150))
    query = run(rows.writeStream.format("kafka_sink").queryName("orders").options(**settings), tmp_path)
    forget_commit(tmp_path, 1)
    add(spark, tmp_path, range(150, 160), "10")
    run(rows.writeStream.format("kafka_sink").queryName("orders").options(**settings), tmp_path)

    found = until(lambda: reports_in(kafka, settings["report.topic"]), lambda found: len(found) >= 3, "three reports")
    assert [(each["batch"], each["records"], each["query_name"], each["guarantee"]) for each in found] == [
        (0, 100, "orders", "exactly-once"),
        (1, 50, "orders", "exactly-once"),
        (2, 10, "orders", "exactly-once"),
    ]
    assert {each["query_id"] for each in found} == {str(query.id)}
    # The offsets of a report are those of the batch's rows.
    written = until(
        lambda: read_topic(kafka.bootstrap_servers, settings["topic"], isolation_level="read_committed"),
        lambda found: len(found) >= 160,
        "the rows of all batches",
    )
    for each, batch in zip(found, (range(100), range(100, 150), range(150, 160)), strict=True):
        places = {part["partition"]: range(part["first_offset"], part["last_offset"] + 1) for part in each["partitions"]}
        of_batch = [int(row.value or b"") for row in written if row.offset in places.get(row.partition, ())]
        assert sorted(of_batch) == list(batch)
    # The program's own counts are the same. It has one more line, without rows, of the run whose rows were aborted.
    history = metrics.from_topic(settings["report.topic"], "orders", bootstrap_servers=kafka.bootstrap_servers)
    of_driver = metrics.of(query)
    assert (history.query_id, history.name, len(history)) == (str(query.id), "orders", 3)
    for name in ("batch", "rows", "bytes", "compressed_bytes", "retries", "errors"):
        assert history.column(name).tolist() == of_driver.column(name)[of_driver.column("rows") > 0].tolist()
    assert metrics.committed is not None
    assert (metrics.committed.records, metrics.committed.reports_lost) == (160, 0)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_batch_jobs_have_a_report_however_they_are_written(
    spark: SparkSession, kafka: Kafka, settings: dict[str, str], metrics: sks.DeliveryMetrics, guarantee: str
) -> None:
    settings |= {"delivery.guarantee": guarantee}
    save(numbers(spark, 30), settings)
    sks.publish(numbers(spark, 20), metrics=metrics, options=settings)
    sks.publish(numbers(spark, 10).toArrow(), options=settings)
    write = sks.foreach_batch(settings, metrics)
    if guarantee == "at-least-once":
        write(numbers(spark, 5), 0)
    wanted = [5, 10, 20, 30] if guarantee == "at-least-once" else [10, 20, 30]

    def counts() -> list[int]:
        return sorted(each["records"] for each in reports_in(kafka, settings["report.topic"]))

    until(counts, lambda found: found == wanted, f"{wanted}")
    assert all(each["query_id"].startswith("job-") for each in reports_in(kafka, settings["report.topic"]))
    assert sks.tail(settings["report.topic"], options=settings).num_rows == len(wanted)


def test_a_topic_without_the_query_names_those_that_it_has(
    spark: SparkSession, kafka: Kafka, settings: dict[str, str], metrics: sks.DeliveryMetrics
) -> None:
    save(numbers(spark, 3), settings)
    job = metrics.query_ids()[0]
    topic, servers = settings["report.topic"], kafka.bootstrap_servers
    with pytest.raises(UsageError, match=f"topic {topic}: no query 'other' has a report.*: {job}"):
        metrics.from_topic(topic, "other", bootstrap_servers=servers)
    with pytest.raises(UsageError, match="n must be 1 to 10,000"):
        metrics.from_topic(topic, job, n=0, bootstrap_servers=servers)
    assert len(metrics.from_topic(topic, job, options=settings)) == 1  # the options of the write
    with sks.Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, b"no report")
    assert len(metrics.from_topic(topic, job, options=options(kafka))) == 1


def test_a_stream_goes_on_without_its_topic_of_reports(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: NewTopic,
    metrics: sks.DeliveryMetrics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    settings = options(kafka, topic=new_topic(), report__topic=missing)
    # Nothing but the wait for the missing topic is short here: max.block.ms would be the limit of the rows' topic as well.
    monkeypatch.setattr(report_topic, "_WAIT_MS", 300)
    query = run(stream(spark, tmp_path, range(10), range(10, 30)).writeStream.format("kafka_sink").options(**settings), tmp_path)
    assert metrics.of(query).column("rows").tolist() == [10, 20]
    assert metrics.committed is not None
    assert metrics.committed.reports_lost == 2
    assert sks.publish(numbers(spark, 1).toArrow(), options=settings).total.reports_lost == 1
