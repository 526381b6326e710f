"""What a task does with bad rows, without Spark: they go to the dead-letter topic or are dropped; the others are delivered."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.errors import (
    BrokerError,
    DeadLetterError,
    MetadataTimeoutError,
    RecordError,
    SerializationError,
    TooManyBadRowsError,
)
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.producer.serializers.schemas.resolved_schema import ResolvedSchema
from spark_kafka_sink.producer.serializers.schemas.schema_serializer import SchemaSerializer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark import partition_writer
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.bad_rows import reason_of
from spark_kafka_sink.spark.columns import records_by_topic
from spark_kafka_sink.spark.error_options import CONNECTS_NAMES, ErrorOptions, OnError
from spark_kafka_sink.spark.metrics import Feed
from spark_kafka_sink.spark.options import SinkOptions, sink_options
from spark_kafka_sink.spark.producer_cache import cache
from spark_kafka_sink.spark.row_splitting import split_batch
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema
from spark_kafka_sink.spark.task import run_task
from tests.exactly_once.opened import client_of, soon
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic
from tests.spark.frames import options

PREFIX = "__connect.errors."
SCHEMA = SinkSchema(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BASE_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # Kafka would delete rows of 2023 by their timestamps within minutes
LIMITED = {"message.timestamp.after.max.ms": "3600000", **KEPT}


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


class Given(NamedTuple):
    """A row of every column. Without a change it is good."""

    number: int
    topic: str | None
    value: str | None = "v"
    partition: int | None = None
    timestamp_ms: int | None = BASE_MS
    headers: Sequence[tuple[str | None, bytes | None] | None] | None = (("name", b"1"),)


def batch_of(rows: Iterable[Given]) -> pa.RecordBatch:
    rows = list(rows)
    headers = [
        None
        if row.headers is None
        else [None if each is None else dict(zip(("key", "value"), each, strict=True)) for each in row.headers]
        for row in rows
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.value for row in rows], pa.string()),
            pa.array([str(row.number) for row in rows], pa.string()),
            pa.array(headers, HEADERS),
            pa.array([row.topic for row in rows], pa.string()),
            pa.array([row.partition for row in rows], pa.int32()),
            pa.array(
                [None if row.timestamp_ms is None else row.timestamp_ms * 1000 for row in rows], pa.timestamp("us", tz="UTC")
            ),
        ],
        names=["value", "key", "headers", "topic", "partition", "timestamp"],
    )


def one_of_each(topic: str) -> tuple[list[Given], dict[int, str]]:
    """Rows of which every third is bad in its own way, and the reason of each bad row."""
    bad = {
        "topic": Given(1, None),
        "topic ": Given(4, "no topic"),
        "partition": Given(7, topic, partition=-2),
        "partition ": Given(10, topic, partition=77),
        "timestamp": Given(13, topic, timestamp_ms=-5),
        "header": Given(16, topic, headers=(("ok", b"2"), None)),
        "header ": Given(19, topic, headers=((None, b"2"),)),
        "too-large": Given(22, topic, value="x" * 30_000),
        "INVALID_TIMESTAMP": Given(25, topic, timestamp_ms=BASE_MS * 3),
    }
    rows = {each.number: each for each in bad.values()}
    return [rows.get(number, Given(number, topic)) for number in range(27)], {
        row.number: name.strip() for name, row in bad.items()
    }


def why(record: Witnessed) -> dict[str, str]:
    found = {name.removeprefix(PREFIX): value for name, value in record.headers if name.startswith(PREFIX)}
    return {name: (value or b"").decode() for name, value in found.items()}


def keys(kafka: Kafka, topic: str, **how: Any) -> list[int]:
    return keys_of(kafka.bootstrap_servers, topic, **how)


def keys_of(servers: str, topic: str, **how: Any) -> list[int]:
    return sorted(int(each.key or b"-1") for each in read_topic(servers, topic, **how))


def tolerant(kafka: Kafka, letters: str, **more: str) -> SinkOptions:
    named = {"on__error": "dead-letter", "dead__letter__topic": letters, "kafka__max__request__size": "20000", **more}
    return sink_options(options(kafka, **named))


def delivered(options: SinkOptions, *batches: Any, batch: MicroBatch | None = None) -> DeliveryReport:
    return run_task(batches, options, Feed(), batch)[0]


@pytest.mark.fault("record", "bad rows of every kind, with on.error")
def test_every_kind_of_bad_row_goes_to_the_dead_letter_topic_and_the_others_arrive(
    kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic, letters = new_topic(2, config=LIMITED), new_topic(config=KEPT)
    rows, bad = one_of_each(topic)
    # Two batches that are combined for one append.
    with caplog.at_level(logging.WARNING, "spark_kafka_sink.spark.bad_rows"):
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
    # All but what a broker rejected know their row.
    assert {number: why(each).get("row") for number, each in found.items()} == {
        number: None if number == 25 else str(number) for number in bad
    }


@pytest.mark.fault("record", "bad rows of every kind, with on.error")
def test_dropped_rows_are_counted_and_are_nowhere(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2, config=LIMITED)
    rows, bad = one_of_each(topic)
    settings = sink_options(options(kafka, on__error="drop", kafka__max__request__size="20000"))
    report = delivered(settings, (SCHEMA, batch_of(rows)))
    assert keys(kafka, topic) == [row.number for row in rows if row.number not in bad]
    assert (report.dropped, report.dead_letters, report.delivered) == (len(bad), 0, len(rows) - len(bad))


def test_a_task_of_only_bad_rows_succeeds(kafka: Kafka, new_topic: NewTopic) -> None:
    letters = new_topic(config=KEPT)
    report = delivered(tolerant(kafka, letters), (SCHEMA, batch_of(Given(number, None) for number in range(2500))))
    assert (report.delivered, report.dead_letters) == (0, 2500)
    assert keys(kafka, letters) == list(range(2500))


def test_rows_without_json_become_letters_with_a_text(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(), new_topic()
    numbers = [float("nan") if row % 4 == 1 else float(row) for row in range(10)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array([row == 5 for row in range(10)]), pa.array([str(row) for row in range(10)])],
        names=["n", "gone", "key"],
    )
    schema = SinkSchema(value=ColumnGroup((0,), ("n",), as_json=True), key=2, tombstone=1)
    report = delivered(tolerant(kafka, letters, topic=topic), (schema, batch))
    assert keys(kafka, topic) == [0, 2, 3, 4, 5, 6, 7, 8]  # 5 is a tombstone, so nobody reads its number
    found = {int(each.key or b"-1"): each for each in read_topic(kafka.bootstrap_servers, letters)}
    assert {number: each.value for number, each in found.items()} == {1: b'{"n":NaN}', 9: b'{"n":NaN}'}
    assert {why(each)["value.format"] for each in found.values()} == {"text"}
    assert {why(each)["stage"] for each in found.values()} == {"VALUE_CONVERTER"}
    assert report.bad_rows == {"serialization": 2}


def test_rows_that_a_serializer_refuses_keep_their_values_as_json(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(), new_topic()
    batch = pa.RecordBatch.from_arrays([pa.array([0.5, float("inf"), 2.0]), pa.array(["0", "1", "2"])], names=["value", "key"])
    settings = tolerant(kafka, letters, topic=topic, kafka__value__serializer="json")
    assert delivered(settings, (SinkSchema(value=0, key=1), batch)).bad_rows == {"serialization": 1}
    (found,) = read_topic(kafka.bootstrap_servers, letters)
    assert (found.key, found.value, why(found)["row"]) == (b"1", b"Infinity", "1")
    assert keys(kafka, topic) == [0, 2]


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


def test_brokers_may_reject_more_than_the_memory_for_rejected_rows_at_once() -> None:
    """One append of 16 MB, of which 1 MB is kept until it is taken. The last row is refused before."""
    with EmbeddedBroker() as broker:
        topic = broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
        letters = broker.create_topic("letters")
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.error": "dead-letter", "dead.letter.topic": letters}
        limits = {"kafka.buffer.memory": str(1 << 20), "kafka.max.request.size": "20000"}
        values = [b"%0*d" % (30_000 if row == 1999 else 8_000, row) for row in range(2000)]
        batch = pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])
        report = delivered(sink_options({**given, **limits, "topic": topic}), (SinkSchema(value=0), batch))
        assert (report.bad_rows, report.dead_letters) == ({"INVALID_RECORD": 1999, "too-large": 1}, 2000)
        found = read_topic(broker.bootstrap_servers, letters)
        assert sorted(each.value or b"" for each in found) == [b"", *values[:1999]]
        assert [why(each)["row"] for each in found if not each.value] == ["1999"]


def test_letters_of_rows_without_a_valid_topic_need_no_other_topic(kafka: Kafka, new_topic: NewTopic) -> None:
    letters = new_topic(3, config=KEPT)
    rows = [Given(number % 5, "no topic") for number in range(50)]
    delivered(tolerant(kafka, letters), (SCHEMA, batch_of(rows)))
    partitions: dict[bytes | None, set[int]] = {}
    for each in read_topic(kafka.bootstrap_servers, letters):
        partitions.setdefault(each.key, set()).add(each.partition)
    assert all(len(found) == 1 for found in partitions.values()), "letters of one key are in one partition"
    assert len(partitions) == 5


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
def test_a_forbidden_dead_letter_topic_fails_the_task() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        broker.faults.fail(ApiKey.METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None, topic="letters")
        settings = sink_options(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.error": "dead-letter", "dead.letter.topic": "letters"}
        )
        with pytest.raises(DeadLetterError, match=r"dead-letter topic letters: .*TOPIC_AUTHORIZATION_FAILED") as caught:
            delivered(settings, (SCHEMA, batch_of([Given(0, "events"), Given(1, None)])))
    assert caught.value.facts["topic"] == "letters"


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


# Limits


def test_a_task_with_too_many_bad_rows_fails_at_once(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(config=KEPT), new_topic(config=KEPT)
    settings = tolerant(kafka, letters, on__error__max__rows="2")
    seen: list[int] = []

    def batches() -> Iterator[Any]:
        for number in range(5):
            seen.append(number)
            yield SCHEMA, batch_of([Given(number, topic), Given(number, None)])

    with pytest.raises(TooManyBadRowsError) as caught:
        run_task(batches(), settings, Feed())
    assert seen == [0, 1, 2]
    text = "3 rows are bad (topic 3), more than on.error.max.rows=2 allows; one of the errors: [RECORD] column topic: is null"
    assert caught.value.message.startswith(text)
    assert (caught.value.facts["bad_rows"], caught.value.facts["reasons"]) == (3, {"topic": 3})


@pytest.mark.parametrize(
    ("limits", "option"),
    [
        (ErrorOptions(OnError.DROP, max_rows=2), "on.error.max.rows=2"),
        (ErrorOptions(OnError.DROP, max_fraction=0.1), "on.error.max.fraction=0.1"),
        (ErrorOptions(OnError.DROP, max_rows=3), None),
        (ErrorOptions(OnError.DROP, max_fraction=0.15), None),
        (ErrorOptions(OnError.DROP), None),
    ],
)
def test_limits_hold_for_the_sum_of_all_tasks(limits: ErrorOptions, option: str | None) -> None:
    reports = [
        DeliveryReport(records=10, bad_rows={"topic": 1, "header": 1}, dead_letters=2, bad_row_example="[RECORD] no"),
        DeliveryReport(records=9, bad_rows={"topic": 1}),
    ]
    if option is None:
        check_limits(limits, reports, is_visible=True)
        return
    for is_visible, outcome in ((True, "stay in their topics"), (False, "None of the rows and dead letters is visible")):
        with pytest.raises(TooManyBadRowsError) as caught:
            check_limits(limits, reports, is_visible=is_visible)
        assert caught.value.message.startswith(
            f"3 rows of 20 are bad (header 1, topic 2), more than {option} allows; one of the errors: [RECORD] no. Correct"
        )
        assert outcome in caught.value.message
        assert caught.value.facts["rows"] == 20


def test_exactly_the_allowed_share_of_rows_may_be_bad() -> None:
    for percent in range(1, 101):
        report = DeliveryReport(records=100 - percent, bad_rows={"topic": percent})
        check_limits(ErrorOptions(OnError.DROP, max_fraction=float(f"{percent / 100:.2f}")), [report], is_visible=True)
    check_limits(ErrorOptions(OnError.DROP, max_fraction=0.01), [DeliveryReport()], is_visible=True)


# Rows of partition_writer


def test_partition_writer_splits_off_rows_that_a_serializer_refuses(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "CHUNK_ROWS", 4)
    topic, letters = new_topic(), new_topic()
    given = options(kafka, topic=topic, on__error="dead-letter", dead__letter__topic=letters, kafka__value__serializer="int")
    write = sks.partition_writer(given)
    rows = [Row(key=str(row), value="no number" if row == 6 else row, partition=5 if row == 7 else None) for row in range(10)]
    write(rows)
    assert keys(kafka, topic) == [0, 1, 2, 3, 4, 5, 8, 9]
    found = {int(each.key or b"-1"): each for each in read_topic(kafka.bootstrap_servers, letters)}
    assert {number: (why(each)["reason"], why(each)["row"]) for number, each in found.items()} == {
        6: ("serialization", "6"),
        7: ("partition", "7"),
    }
    assert [(found[row].value, why(found[row]).get("value.format")) for row in (6, 7)] == [
        (b"no number", None),
        (b"\0\0\0\7", "serialized"),
    ]


@pytest.mark.parametrize(
    ("name", "good", "bad", "text"),
    [("string", "v", "a\ud800", rb"a\ud800"), ("json", {"a": "v"}, {"a": "\ud800"}, rb"{'a': '\ud800'}")],
)
def test_text_that_no_encoding_has_is_a_bad_row_of_a_serializer(
    kafka: Kafka, new_topic: NewTopic, name: str, good: object, bad: object, text: bytes
) -> None:
    topic, letters = new_topic(), new_topic()
    given = options(kafka, topic=topic, kafka__value__serializer=name)
    rows = [Row(key="0", value=good), Row(key="1", value=bad), Row(key="2", value=good)]
    with pytest.raises(SerializationError, match=r"row 1 of the task: .*text with a lone surrogate at .* encoded as UTF-8"):
        sks.partition_writer(given)(rows)
    sks.partition_writer(given | {"on.error": "dead-letter", "dead.letter.topic": letters})(rows)
    (letter,) = read_topic(kafka.bootstrap_servers, letters)
    assert (letter.key, letter.value, why(letter)["reason"], why(letter)["row"]) == (b"1", text, "serialization", "1")
    assert keys(kafka, topic) == [0, 2]


@pytest.mark.parametrize("on_error", ["dead-letter", "drop"])
def test_partition_writer_delivers_the_rows_around_invalid_values(kafka: Kafka, new_topic: NewTopic, on_error: str) -> None:
    topic, letters = new_topic(config=KEPT), new_topic(config=KEPT)
    good = {"key": None, "value": "v", "partition": 0, "timestamp": BASE_MS, "headers": [("name", b"1")]}
    changes: dict[int, dict[str, Any]] = {
        1: {"timestamp": datetime(1, 1, 1)},  # as Spark creates it
        2: {"timestamp": 2**63},
        3: {"partition": 2**31},
        4: {"value": "a\ud800", "timestamp": 2**63},
        5: {"headers": [("ok", b"2"), ("\ud800", b"3")]},
        6: {"key": "6\ud800"},
    }
    rows = [Row(**{**good, "key": str(row), **changes.get(row, {})}) for row in range(8)]
    named = {"dead__letter__topic": letters} if on_error == "dead-letter" else {}
    sks.partition_writer(options(kafka, topic=topic, on__error=on_error, **named))(rows)
    assert keys(kafka, topic) == [0, 7]
    if on_error == "drop":
        return
    found = {int(why(each)["row"]): each for each in read_topic(kafka.bootstrap_servers, letters)}
    assert {row: why(each)["reason"] for row, each in found.items()} == {
        1: "timestamp",
        2: "timestamp",
        3: "partition",
        4: "serialization",
        5: "header",
        6: "serialization",
    }
    assert int(why(found[1])["timestamp"]) < -62_135_000_000_000
    assert [why(found[row])["timestamp"] for row in (2, 4)] == [str(2**63)] * 2
    assert why(found[3])["partition"] == str(2**31)
    assert (found[4].value, why(found[4])["value.format"]) == (rb"a\ud800", "text")
    assert ([each for each in found[5].headers if not each[0].startswith(PREFIX)], why(found[5])["headers.omitted"]) == (
        [("ok", b"2")],
        "1",
    )
    assert (found[6].key, why(found[6])["key.format"]) == (rb"6\ud800", "text")
    assert [why(found[row])["stage"] for row in (3, 4, 5, 6)] == [
        "KAFKA_PRODUCE",
        "VALUE_CONVERTER",
        "HEADER_CONVERTER",
        "KEY_CONVERTER",
    ]


def test_partition_writer_keeps_to_limits_per_task(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    write = sks.partition_writer(options(kafka, topic=topic, on__error="drop", on__error__max__fraction="0.4"))
    write([Row(value="a", partition=0), Row(value="b", partition=0), Row(value="c", partition=9)])
    with pytest.raises(TooManyBadRowsError, match="1 row of 2 is bad"):
        write([Row(value="a", partition=0), Row(value="c", partition=9)])


def test_partition_writer_checks_the_dead_letter_topic_on_the_driver() -> None:
    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=False)) as broker:
        broker.create_topic("events")
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.max.block.ms": "300",
            "topic": "events",
            "on.error": "dead-letter",
            "dead.letter.topic": "letters",
        }
        with pytest.raises(MetadataTimeoutError, match=r"topic letters \(option dead\.letter\.topic\): the topic does not exist"):
            sks.partition_writer(given)


# In a transaction


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


def end(settings: SinkOptions, share: TaskTransaction, *, commit: bool) -> None:
    assert share.transaction is not None
    with client_of(settings.producer.bootstrap_servers[0]) as client:
        (ended,) = TransactionClient(client).end([share.transaction.handle], commit, soon()).values()
    assert ended.error == ""


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


# Reasons, and the split of a batch


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SerializationError("no", part="value"), "schema"),
        (SerializationError("no", part="key"), "serialization"),
        (RecordError("no", partition=3, row=1), "partition"),
        (RecordError("no", partitioner="mine", row=1), "partition"),
        (RecordError("no", column="headers", row=1), "header"),
        (RecordError("no"), "record"),
        (BrokerError("no", error="INVALID_RECORD"), "INVALID_RECORD"),
    ],
)
def test_reasons(error: sks.KafkaSinkError, reason: str) -> None:
    assert reason_of(error, frozenset({"value"})) == reason


_rows = st.builds(
    Given,
    st.integers(0, 99),
    st.sampled_from(["a", "b", None, "no topic", ""]),
    st.none() | st.just("v"),
    st.sampled_from([None, 0, 1, -1, -5]),
    st.sampled_from([None, 0, 1, -1, -5]),
    headers=st.sampled_from([None, (), (("h", b"1"),), (None,), ((None, b"1"),)]),
)


@settings(deadline=None)
@given(st.lists(_rows, min_size=1, max_size=30), st.sampled_from([None, "option"]))
def test_what_is_split_off_is_what_the_task_would_refuse(rows: list[Given], option: str | None) -> None:
    batch = batch_of(rows)
    split = split_batch(batch, SCHEMA, option, first_row=10)
    found = list(records_by_topic(split.batch, SCHEMA, option, first_row=10, rows=split.rows))
    good = sorted(each.row_in_task(row) for each in found for row in range(each.columns.num_records))
    bad = list(split.refused.rows or ())
    assert sorted([*good, *bad]) == list(range(10, 10 + len(rows)))
    assert bad == [10 + row for row in range(len(rows)) if is_refused(batch.slice(row, 1), option)]
    for place, row in enumerate(bad):
        assert split.refused.columns.slice(place, 1).key.to_pylist() == [str(rows[row - 10].number)]  # type: ignore[union-attr]
        assert split.refused.topics[place] == (option or rows[row - 10].topic)


def is_refused(batch: pa.RecordBatch, option: str | None) -> bool:
    try:
        list(records_by_topic(batch, SCHEMA, option))
    except RecordError:
        return True
    return False


def test_positions_count_from_the_whole_batch_if_rows_were_taken_out_before() -> None:
    rows = [Given(0, "a"), Given(1, None), Given(2, "a")]
    split = split_batch(batch_of(rows), SCHEMA, None, first_row=100, rows=np.array([5, 7, 9]))
    assert split.refused.rows == [107]
    assert split.rows.tolist() == [5, 9]
    (found,) = records_by_topic(split.batch, SCHEMA, None, first_row=100, rows=split.rows)
    assert [found.row_in_task(row) for row in range(2)] == [105, 109]
    assert replace(split.refused, rows=[1]).in_task(10).rows == [11]


def test_rows_that_do_not_fit_their_schema_are_counted_as_such(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, letters = new_topic(), new_topic()
    text = json.dumps(
        {
            "type": "record",
            "name": "order",
            "fields": [
                {"name": "state", "type": {"type": "enum", "name": "states", "symbols": ["new", "paid"]}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
            ],
        }
    )
    serializer = SchemaSerializer(ResolvedSchema("value", "avro", "orders-value", 7, text))
    prices = [Decimal(row) if row != 2 else Decimal("99999") for row in range(6)]
    states = ["lost" if row == 1 else None if row == 3 else "paid" for row in range(6)]
    value = pa.StructArray.from_arrays([pa.array(states), pa.array(prices, pa.decimal128(10, 2))], names=["state", "price"])
    batch = pa.RecordBatch.from_arrays([value, pa.array([str(row) for row in range(6)])], names=["value", "key"])
    given = tolerant(kafka, letters, topic=topic)
    given = replace(given, producer=replace(given.producer, value_serializer=serializer))
    report = delivered(given, (SinkSchema(value=0, key=1), batch))
    assert report.bad_rows == {"schema": 3}
    assert keys(kafka, topic) == [0, 4, 5]
    found = {int(each.key or b"-1"): each for each in read_topic(kafka.bootstrap_servers, letters)}
    assert {number: each.value for number, each in found.items()} == {
        1: b'{"state":"lost","price":1.00}',
        2: b'{"state":"paid","price":99999.00}',
        3: b'{"price":3.00}',  # as good rows have it
    }
    assert {number: (why(each)["row"], why(each)["stage"], why(each)["value.format"]) for number, each in found.items()} == {
        number: (str(number), "VALUE_CONVERTER", "json") for number in (1, 2, 3)
    }
