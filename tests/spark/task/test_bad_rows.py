"""What a task does with bad rows, without Spark: they go to the dead-letter topic or are dropped; the others are delivered."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    DeadLetterError,
    TooManyBadRowsError,
)
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.options.error_options import CONNECTS_NAMES
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.task import run_task
from tests.kafka.fixtures import NewTopic, embedded_broker_kind, on_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.bad_rows import (
    BASE_MS,
    KEPT,
    LIMITED,
    PREFIX,
    SCHEMA,
    Given,
    batch_of,
    delivered,
    end,
    keys,
    keys_of,
    one_of_each,
    tolerant,
    why,
)
from tests.spark.frames import options
from tests.waiting import until

broker_kind = embedded_broker_kind("a second for each; one stays, and test_bad_rows_end_to_end.py has every kind on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


@on_real_kafka
@pytest.mark.fault("record", "bad rows of every kind, with on.error")
def test_every_kind_of_bad_row_goes_to_the_dead_letter_topic_and_the_others_arrive(
    kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic, letters = new_topic(2, config=LIMITED), new_topic(config=KEPT)
    rows, bad = one_of_each(topic)
    # Two batches that are combined for one append.
    with caplog.at_level(logging.WARNING, "spark_kafka_sink.spark.task.bad_rows"):
        report = delivered(tolerant(kafka, letters), (SCHEMA, batch_of(rows[:15])), (SCHEMA, batch_of(rows[15:])))
    assert keys(kafka, topic) == [row.number for row in rows if row.number not in bad]
    found = {int(each.key or b"-1"): each for each in read_topic(kafka.bootstrap_servers, letters)}
    assert {number: why(each)["reason"] for number, each in found.items()} == bad
    counts = {reason: list(bad.values()).count(reason) for reason in bad.values()}
    assert (report.bad_rows, report.dead_letters, report.dropped) == (counts, len(bad), 0)
    assert report.delivered + report.dead_letters + report.dropped == len(rows)
    assert report.records == len(rows)
    (warning,) = [each.getMessage() for each in caplog.records if each.name.endswith(".bad_rows")]
    assert "this task has 9 bad rows (INVALID_TIMESTAMP 1, header 2, " in warning
    # The rows as they were.
    assert {number: each.value for number, each in found.items()} == {number: None if number == 22 else b"v" for number in bad}
    assert why(found[22])["value.size"] == "30000"
    assert {number: each.timestamp for number, each in found.items() if number not in (13, 25)} == dict.fromkeys(
        bad.keys() - {13, 25}, BASE_MS
    )
    assert (why(found[13])["timestamp"], why(found[25])["timestamp"]) == ("-5", str(BASE_MS * 3))
    assert [each for each in found[16].headers if not each[0].startswith(PREFIX)] == [("ok", b"2")]
    assert why(found[4])["topic"] == "no topic"
    assert [why(found[number]).get("partition") for number in (7, 10)] == ["-2", "77"]
    # Each knows its row in the task, also if a broker rejected it.
    assert {number: why(each).get("row") for number, each in found.items()} == {number: str(number) for number in bad}


def test_rows_that_a_broker_rejects_keep_their_numbers_through_topics_batches_and_parts() -> None:
    """Two topics that reject rows without a key, in Arrow batches that are combined or appended in parts, with other bad rows."""
    with EmbeddedBroker() as broker:
        topics = [broker.create_topic(name, partitions=3, configs={"cleanup.policy": "compact"}) for name in ("t", "u")]
        letters = broker.create_topic("letters")
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.error": "dead-letter", "dead.letter.topic": letters}
        limits = {"kafka.buffer.memory": str(1 << 20), "kafka.max.request.size": "20000", "kafka.linger.ms": "60000"}
        numbers = range(5000)
        keys_given = [None if number % 7 == 0 else str(number) for number in numbers]
        topics_given = [None if number % 101 == 50 else topics[number % 3 == 1] for number in numbers]
        values = [b"%0*d" % (21_000 if number % 97 == 50 else 300, number) for number in numbers]
        columns = [pa.array(values), pa.array(keys_given), pa.array(topics_given)]
        whole = pa.RecordBatch.from_arrays(columns, names=["value", "key", "topic"])
        schema = SinkSchema(value=0, key=1, topic=2)
        batches = [(schema, whole.slice(start, size)) for start, size in ((0, 40), (40, 35), (75, 925), (1000, 4000))]
        report = delivered(sink_options(given | limits), *batches)
        bad = {n for n in numbers if n % 7 == 0 or n % 101 == 50 or n % 97 == 50}
        found = [why(each) for each in read_topic(broker.bootstrap_servers, letters)]
        assert report.bad_rows.keys() == {"INVALID_RECORD", "topic", "too-large"}
        assert sorted(int(each["row"]) for each in found) == sorted(bad)
        rejected = {int(each.value or b"-1"): why(each) for each in read_topic(broker.bootstrap_servers, letters) if each.value}
        assert {number: each["row"] for number, each in rejected.items()} == {number: str(number) for number in rejected}
        assert {each["reason"] for each in rejected.values()} == {"INVALID_RECORD", "topic"}


@pytest.mark.fault("record", "bad rows of every kind, with on.error")
def test_dropped_rows_are_counted_and_are_nowhere(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2, config=LIMITED)
    rows, bad = one_of_each(topic)
    settings = sink_options(options(kafka, on__error="drop", kafka__max__request__size="20000"))
    report = delivered(settings, (SCHEMA, batch_of(rows)))
    assert keys(kafka, topic) == [row.number for row in rows if row.number not in bad]
    assert (report.dropped, report.dead_letters, report.delivered) == (len(bad), 0, len(rows) - len(bad))


@pytest.mark.fault("record", "a dead-letter topic that is missing, forbidden, compacted or too narrow")
def test_a_row_that_a_broker_finds_too_large_keeps_its_key(kafka: Kafka, new_topic: NewTopic) -> None:
    """Its letter is as large, and the dead-letter topic has the same limit."""
    topic, letters = (new_topic(config={"max.message.bytes": "10000", **KEPT}) for _ in range(2))
    rows = [Given(number, topic, value="x" * (15_000 if number == 1 else 10)) for number in range(3)]
    report = delivered(tolerant(kafka, letters), (SCHEMA, batch_of(rows)))
    assert report.bad_rows == {"MESSAGE_TOO_LARGE": 1}
    assert keys(kafka, topic) == [0, 2]
    (found,) = read_topic(kafka.bootstrap_servers, letters)
    assert (found.key, found.value, why(found)["value.size"]) == (b"1", None, "15000")


def test_rows_whose_topic_is_the_dead_letter_topic_are_bad() -> None:
    """A broker may reject them as too large. They must not lose their values then, as letters do, nor pass the limits."""
    with EmbeddedBroker() as broker:
        topic, letters = broker.create_topic("own"), broker.create_topic("own-letters", configs=KEPT)
        looks_like_letter = ((f"{PREFIX}reason", b"serialization"), ("own", b"1"))
        rows = [Given(0, topic), Given(1, letters, value="x" * 8000, headers=looks_like_letter), Given(2, topic)]
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.error": "dead-letter", "dead.letter.topic": letters}
        report = delivered(sink_options(given), (SCHEMA, batch_of(rows)))
        assert (report.bad_rows, report.dead_letters, report.delivered) == ({"topic": 1}, 1, 2)
        (found,) = read_topic(broker.bootstrap_servers, letters)
        assert (found.key, found.value) == (b"1", b"x" * 8000)
        assert [header for header in found.headers if not header[0].startswith(PREFIX)] == [("own", b"1")]
        assert [why(found)[name] for name in ("topic", "reason", "row")] == [letters, "topic", "1"]
        with pytest.raises(TooManyBadRowsError, match=r"column topic: own-letters is the dead-letter topic"):
            delivered(sink_options(given | {"on.error.max.rows": "0"}), (SCHEMA, batch_of(rows)))


def test_the_log_has_the_first_error_which_may_quote_a_value_but_not_the_row(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as broker:
        settings = sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "on.error": "drop"})
        rows = [Given(0, "first topic", value="secret"), Given(1, "second topic")]
        assert "first topic" in delivered(settings, (SCHEMA, batch_of(rows))).bad_row_example
    (warning,) = [each.getMessage() for each in caplog.records if each.name.endswith(".bad_rows")]
    assert "first topic" in warning
    assert "secret" not in warning
    assert "second topic" not in warning
    assert CONNECTS_NAMES["errors.log.include.messages"].endswith("only its first error, which may quote a value")


# The dead-letter topic fails


@pytest.mark.fault("record", "a dead-letter topic that is missing, forbidden, compacted or too narrow")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD])
def test_letters_that_a_broker_refuses_fail_the_task(code: ErrorCode, guarantee: str) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        broker.create_topic("letters")
        broker.faults.fail(ApiKey.PRODUCE, code, times=None, topic="letters")
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "delivery.guarantee": guarantee}
        settings = sink_options(given | {"on.error": "dead-letter", "dead.letter.topic": "letters"})
        batch = MicroBatch.of_new_job() if guarantee == "exactly-once" else None
        with pytest.raises(DeadLetterError, match=rf"dead-letter topic letters: .*{code.name}") as caught:
            delivered(settings, (SCHEMA, batch_of([Given(0, "events"), Given(1, None)])), batch=batch)
        assert keys_of(broker.bootstrap_servers, "events", isolation_level="read_committed") == ([] if batch else [0])
    assert caught.value.facts["topic"] == "letters"


def test_letters_that_fail_while_rows_follow_are_named() -> None:
    """Any later append learns of it first."""
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        broker.create_topic("letters")
        fault = broker.faults.fail(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None, topic="letters")
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.linger.ms": "0"}
        settings = sink_options(given | {"on.error": "dead-letter", "dead.letter.topic": "letters"})
        sent: list[int] = []

        def batches() -> Iterator[Any]:
            yield SCHEMA, batch_of(Given(number, None) for number in range(1000))  # as many as are sent at once
            fault.wait()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                sent.append(1)
                yield SCHEMA, batch_of([Given(0, "events")])

        with pytest.raises(DeadLetterError, match=r"dead-letter topic letters: .*TOPIC_AUTHORIZATION_FAILED"):
            run_task(batches(), settings, Feed())
        assert sent


@pytest.mark.fault("record", "a dead-letter topic that is missing, forbidden, compacted or too narrow")
def test_a_compacted_dead_letter_topic_refuses_letters_without_a_key(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(), new_topic(config={"cleanup.policy": "compact"})
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), pa.array([None, 9], pa.int32())], names=["value", "partition"])
    with pytest.raises(DeadLetterError, match=rf"dead-letter topic {letters}: .*INVALID_RECORD") as caught:
        delivered(tolerant(kafka, letters, topic=topic), (SinkSchema(value=0, partition=1), batch))
    assert caught.value.facts == {"topic": letters, "error": "INVALID_RECORD"}


# Bad rows under exactly-once: their letters, and what a task says of its rows


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
    until(lambda: keys(kafka, letters, isolation_level="read_committed"), lambda found: found == sorted(bad), "the letters")
    found = read_topic(kafka.bootstrap_servers, letters, isolation_level="read_committed")
    assert {int(each.key or b"-1"): why(each)["row"] for each in found} == {number: str(number) for number in bad}
    good = [row.number for row in rows if row.number not in bad]
    until(lambda: keys(kafka, topic, isolation_level="read_committed"), lambda found: found == good, "the rows")


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
