"""Bad rows under exactly-once: their letters, and what a task says of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.task import run_task
from tests.kafka.fixtures import NewTopic, embedded_broker_kind, on_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.bad_rows import KEPT, LIMITED, SCHEMA, Given, batch_of, end, keys, one_of_each, tolerant, why
from tests.spark.frames import options

broker_kind = embedded_broker_kind("a second for each; one stays, and test_bad_rows_end_to_end.py has every kind on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


@on_real_kafka
def test_letters_are_in_the_transaction_of_their_task(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(2, config=LIMITED), new_topic(config=KEPT)
    rows, bad = one_of_each(topic)
    settings = tolerant(kafka, letters, delivery__guarantee="exactly-once")
    shares = []
    for number in range(2):
        report, share = run_task([(SCHEMA, batch_of(rows))], settings, Feed(), MicroBatch.of_new_job())
        assert share is not None
        assert share.transaction is not None
        assert share.transaction.handle.records == report.records == len(rows)
        assert keys(kafka, letters, isolation_level="read_committed") == ([] if number == 0 else sorted(bad))
        end(settings, share, commit=number == 0)
        shares.append(share)
    assert keys(kafka, letters, isolation_level="read_committed") == sorted(bad)
    found = read_topic(kafka.bootstrap_servers, letters, isolation_level="read_committed")
    assert {int(each.key or b"-1"): why(each)["row"] for each in found} == {number: str(number) for number in bad}
    assert keys(kafka, topic, isolation_level="read_committed") == [row.number for row in rows if row.number not in bad]


def test_the_checksum_covers_bad_rows_however_they_are_split(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(2, config=LIMITED), new_topic(config=KEPT)
    rows, _ = one_of_each(topic)
    settings = tolerant(kafka, letters, delivery__guarantee="exactly-once")
    whole, parts = [rows], [rows[:2], rows[2:3], rows[3:20], rows[20:]]
    # Other rows, of which as many are bad: by the task's checks, by the producer's, by a broker's.
    others = [
        [[row._replace(value="w") if row.number == number else row for row in rows]] for number in (1, 4, 7, 10, 13, 16, 22, 25)
    ]
    checksums = [checksum(settings, each) for each in (whole, parts, *others)]
    assert checksums[0] == checksums[1]
    assert len(set(checksums)) == len(checksums) - 1


def checksum(settings: SinkOptions, batches: Sequence[Sequence[Given]]) -> int:
    _, share = run_task([(SCHEMA, batch_of(rows)) for rows in batches], settings, Feed(), MicroBatch.of_new_job())
    assert share is not None
    assert share.transaction is not None
    end(settings, share, commit=False)
    return share.transaction.checksum


@pytest.mark.parametrize("on_error", ["dead-letter", "drop"])
def test_a_task_says_what_spark_passed_to_it_whatever_is_refused_of_it(kafka: Kafka, new_topic: NewTopic, on_error: str) -> None:
    narrow, wide = (
        new_topic(2, config=LIMITED | {"message.timestamp.after.max.ms": each}) for each in ("3600000", str(2**63 - 1))
    )
    named = {"dead__letter__topic": new_topic(config=KEPT)} if on_error == "dead-letter" else {}
    more = {"on__error": on_error, "delivery__guarantee": "exactly-once", "kafka__max__request__size": "20000"}
    rows, bad = one_of_each(narrow)
    found = []
    for topic in (narrow, wide):
        settings = sink_options(options(kafka, topic=topic, **more, **named))
        without_topic = [row._replace(topic=topic if row.topic == narrow else row.topic) for row in rows]
        report, share = run_task([(SCHEMA, batch_of(without_topic))], settings, Feed(), MicroBatch.of_new_job())
        assert share is not None
        assert share.rows is not None
        end(settings, share, commit=False)
        found.append((report.bad_rows.get("INVALID_TIMESTAMP", 0), share.rows.rows))
    rejected = sum(reason == "INVALID_TIMESTAMP" for reason in bad.values())
    assert rejected > 0
    assert found == [(rejected, len(rows)), (0, len(rows))]


def test_a_transaction_of_only_dropped_rows_is_none(kafka: Kafka) -> None:
    settings = sink_options(options(kafka, on__error="drop", delivery__guarantee="exactly-once"))
    report, share = run_task([(SCHEMA, batch_of([Given(0, None)]))], settings, Feed(), MicroBatch.of_new_job())
    assert share is not None
    assert share.transaction is None
    assert share.rows is not None
    assert share.rows.rows == 1
    assert report.dropped == 1
