"""What Spark sees of the sink before and after its tasks, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StructField, StructType

import pyspark_kafka_sink
from spark_kafka_sink.errors import DeadlineError, KafkaSinkError, OptionError, SchemaError, UsageError
from spark_kafka_sink.exactly_once.commit_log_topic import made_again
from spark_kafka_sink.exactly_once.committer import CommitReport, Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.driver.foreach_batch import foreach_batch
from spark_kafka_sink.spark.driver.publish import publish
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import DeliveryMessage
from spark_kafka_sink.spark.plan import failed_writes
from spark_kafka_sink.spark.plan.data_source import KafkaSinkDataSource, reporting_to
from spark_kafka_sink.spark.plan.writers import KafkaSinkStreamWriter
from tests.spark.counting import counting, driver_listener

SCHEMA = StructType([StructField("value", BinaryType())])
# Spark hands options over with lower-cased keys.
OPTIONS = CaseInsensitiveDict(
    {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "checkpointlocation": "x", "queryname": "q"}
)
MESSAGES = [
    DeliveryMessage(0, DeliveryReport(records=2), query_id="q", began=2_000.0),
    DeliveryMessage(1, DeliveryReport(records=3), query_id="q", began=1_000.0),
]


def through_spark(thing: Any) -> Any:
    """As it arrives in another process."""
    serializer: Any = cast("Any", CloudPickleSerializer)()
    return serializer.loads(serializer.dumps(thing))


def source() -> DataSource:
    return KafkaSinkDataSource(options=OPTIONS)


def test_a_write_that_fails_while_spark_plans_it_is_counted() -> None:
    with closing(counting()) as metrics:
        reporting = reporting_to(metrics.feed)
        wrong = CaseInsensitiveDict({**OPTIONS, "acks": "no"})
        with pytest.raises(OptionError):
            reporting(options=wrong).streamWriter(SCHEMA, overwrite=False)
        with pytest.raises(UsageError):
            reporting(options=OPTIONS).writer(SCHEMA, overwrite=True)
        with pytest.raises(UsageError, match="Spark Connect does not tell"):  # nor does it a plain object
            foreach_batch({**OPTIONS, "delivery.guarantee": "exactly-once"}, metrics)(
                cast("Any", SimpleNamespace(sparkSession=0)), 1
            )
        with pytest.raises(SchemaError, match="column value: is bigint"):
            publish(pa.table({"value": [1]}), options=OPTIONS, metrics=metrics)
        assert metrics.writes.failed() == {"unknown": 2, "batch-jobs": 2}


def test_spark_finds_the_sink_by_itself_only_where_it_may_be_registered_over() -> None:
    found = getattr(pyspark_kafka_sink, "DefaultSource", None)
    assert (None if found is None else found.name()) == (None if pyspark.__version__.startswith("4.0") else "kafka_sink")
    assert KafkaSinkDataSource.name() == "kafka_sink"


def test_batch_overwrite_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^\[USAGE\] mode overwrite: .*use mode\('append'\)"):
        source().writer(SCHEMA, True)


def test_a_table_whose_options_spark_keeps_to_itself_says_where_to_write_them() -> None:
    source = KafkaSinkDataSource(options=CaseInsensitiveDict({}))
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is required: .* INSERT INTO t WITH \('kafka\.bootstrap"):
        source.writer(SCHEMA, False)


def test_a_commit_that_no_task_wrote_for_is_refused() -> None:
    """Trigger.Continuous never calls write() and commits [None, ...]."""
    writer = source().streamWriter(SCHEMA, False)
    incomplete: list[list[WriterCommitMessage | None]] = [[None], [*MESSAGES, None]]
    for messages in incomplete:
        with pytest.raises(UsageError, match=r"trigger\(continuous=\.\.\.\) is not supported"):
            writer.commit(messages, 0)
    writer.commit([], 0)


def test_a_refused_commit_is_told_to_the_driver_program_and_a_good_one_is_not() -> None:
    refusals: list[bytes] = []
    with driver_listener({b"C": lambda content: None, b"R": refusals.append}) as address:
        writer = through_spark(reporting_to(Feed(listener=address))(options=OPTIONS).streamWriter(SCHEMA, False))
        writer.commit(MESSAGES, 0)
        assert len(refusals) == 0
        with pytest.raises(UsageError):
            writer.commit([None], 1)
        assert len(refusals) == 1


def test_an_abort_says_what_stays_in_kafka(caplog: pytest.LogCaptureFixture) -> None:
    source().writer(SCHEMA, False).abort([*MESSAGES, None])
    assert "its finished tasks had stored 5 records in Kafka; writing again stores them a second time" in caplog.text
    source().streamWriter(SCHEMA, False).abort([None], 3)
    assert "the write was aborted; no rows were stored in Kafka by finished tasks" in caplog.text
    assert "0 records" not in caplog.text


@pytest.mark.parametrize("is_begun", [True, False])
def test_an_aborted_job_has_begun_to_commit_only_if_all_tasks_have_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_begun: bool
) -> None:
    def abort(*_: object) -> bool:
        raise made_again("commits")

    monkeypatch.setattr(Committer, "check", lambda *_: None)
    monkeypatch.setattr(Committer, "abort_job", abort)
    exactly_once = CaseInsensitiveDict({**OPTIONS, "delivery.guarantee": "exactly-once"})
    messages: list[WriterCommitMessage | None] = [*MESSAGES] if is_begun else [*MESSAGES, None]
    KafkaSinkDataSource(options=exactly_once).writer(SCHEMA, False).abort(messages)
    assert ("may be visible" in caplog.text, "None of its rows are visible" in caplog.text) == (is_begun, not is_begun)


def test_transactions_are_aborted_before_the_driver_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def abort(*_: object) -> bool:
        done.append("abort")
        return True

    monkeypatch.setattr(failed_writes, "KILL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Committer, "check", lambda *_: None)
    monkeypatch.setattr(Committer, "abort_job", abort)
    with driver_listener({b"A": lambda content: done.append("aborted"), b"W": lambda content: done.append("event")}) as address:
        exactly_once = CaseInsensitiveDict({**OPTIONS, "delivery.guarantee": "exactly-once"})
        writer = reporting_to(Feed(listener=address))(options=exactly_once).writer(SCHEMA, False)
        done.clear()
        writer.abort([*MESSAGES])
    assert list(dict.fromkeys(done)) == ["abort", "aborted", "event"]


@pytest.mark.parametrize(
    ("location", "end", "said"),
    [
        ("local", True, "batch 3 of 5e0fb6f6-0c2c-4a4b-9f0e-7d7c4e1f8a11 was stopped, and none of its transactions are open"),
        (
            "local",
            False,
            "`spark-kafka-sink transactions abort --query 5e0fb6f6-0c2c-4a4b-9f0e-7d7c4e1f8a11 --bootstrap",
        ),
        ("local", DeadlineError("no broker"), "([DEADLINE] no broker)"),
        ("hdfs://host/path", True, "run `spark-kafka-sink transactions list --bootstrap-servers localhost:1`"),
    ],
)
def test_what_a_stopped_micro_batch_has_open_is_ended_or_told_with_the_command_and_the_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    location: str,
    end: bool | KafkaSinkError,
    said: str,
) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "5e0fb6f6-0c2c-4a4b-9f0e-7d7c4e1f8a11"}))
    drivers: list[str] = []

    def end_stopped(_: object, batch: MicroBatch, driver: str, counted: Callable[[int, CommitReport], None]) -> bool:
        drivers.append(driver)
        if isinstance(end, KafkaSinkError):
            raise end
        return end

    monkeypatch.setattr(failed_writes, "KILL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Committer, "end_stopped", end_stopped)
    checkpoint = str(tmp_path) if location == "local" else location
    exactly_once = CaseInsensitiveDict({**OPTIONS, "delivery.guarantee": "exactly-once", "checkpointlocation": checkpoint})
    through_spark(reporting_to(Feed(driver="c0"))(options=exactly_once).streamWriter(SCHEMA, False)).abort([None], 3)
    assert said in caplog.text
    assert set(drivers) == ({"c0"} if location == "local" else set())
    if "none of its transactions" not in said:
        assert re.search(r"may be open until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, when brokers abort them", caplog.text)


def test_rows_that_the_end_of_a_stopped_micro_batch_commits_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "5e0fb6f6-0c2c-4a4b-9f0e-7d7c4e1f8a11"}))

    def end_stopped(_: object, batch: MicroBatch, driver: str, counted: Callable[[int, CommitReport], None]) -> bool:
        counted(batch.number - 1, CommitReport(5, False, 2, 0, 0, 10))
        return True

    monkeypatch.setattr(Committer, "end_stopped", end_stopped)
    received: list[BatchReport] = []
    options = CaseInsensitiveDict({**OPTIONS, "delivery.guarantee": "exactly-once", "checkpointlocation": str(tmp_path)})
    with driver_listener({b"C": lambda content: received.append(BatchReport.from_bytes(content))}) as address:
        made = through_spark(reporting_to(Feed(listener=address, driver="c0")))
        made(options=options).streamWriter(SCHEMA, False).abort([], 3)
    assert [(each.batch, each.report.records, each.report.transactions_committed) for each in received] == [(2, 5, 2)]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_failed_write_has_its_query_from_the_checkpoint_if_no_task_has_finished(tmp_path: Path, scheme: str) -> None:
    query_id = "5e0fb6f6-0c2c-4a4b-9f0e-7d7c4e1f8a11"
    (tmp_path / "metadata").write_text(json.dumps({"id": query_id}))
    with closing(counting()) as metrics:
        made = reporting_to(metrics.feed)
        for location in (f"{scheme}{tmp_path}", "hdfs://host/path"):
            options = CaseInsensitiveDict({**OPTIONS, "checkpointlocation": location})
            through_spark(made(options=options).streamWriter(SCHEMA, False)).abort([None], 3)
        assert metrics.writes.failed() == {query_id: 1, "unknown": 1}


def test_a_commit_reports_to_the_handle_that_the_class_is_bound_to() -> None:
    received: list[BatchReport] = []
    with driver_listener({b"C": lambda content: received.append(BatchReport.from_bytes(content))}) as address:
        bound = through_spark(reporting_to(Feed(listener=address)))
        writer = through_spark(bound(options=OPTIONS).streamWriter(SCHEMA, False))
        assert isinstance(writer, KafkaSinkStreamWriter)
        writer.commit(MESSAGES, 7)
        bound(options=OPTIONS).writer(SCHEMA, False).commit(MESSAGES)
    assert [each.report for each in received] == [DeliveryReport(records=5)] * 2
    assert (received[0].query_id, received[0].batch, received[0].began) == ("q", 7, 1_000.0)
    assert received[0].seconds > 1_000_000
    assert received[1].query_id.startswith("job-")


def test_a_sessions_options_are_those_of_each_write_that_does_not_set_them() -> None:
    bound = through_spark(reporting_to(Feed(), {"kafka.Linger.Ms": "soon"}))
    with pytest.raises(OptionError, match=r"option kafka\.linger\.ms: 'soon' is not a whole number"):
        bound(options=OPTIONS).writer(SCHEMA, False)
    bound(options={**OPTIONS, "kafka.linger.ms": "8"}).writer(SCHEMA, False)
    assert KafkaSinkDataSource.session_options == {}


def test_a_sessions_options_do_not_show() -> None:
    bound = reporting_to(Feed(), {"kafka.sasl.password": "hunter2"})
    assert repr(bound.session_options) == str(bound.session_options) == "<kafka.sasl.password>"
