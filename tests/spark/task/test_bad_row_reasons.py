"""Why a row is bad, how bad rows are split off their batch, and how many there may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_kafka_sink as sks
from spark_kafka_sink.errors import (
    BrokerError,
    RecordError,
    SerializationError,
    TooManyBadRowsError,
)
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.formats.schema_serializer import ResolvedSchema, SchemaSerializer
from spark_kafka_sink.options.error_options import ErrorOptions, OnError
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.bad_row_limits import check_limits
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.schema import SinkSchema
from spark_kafka_sink.spark.task.bad_rows import reason_of
from spark_kafka_sink.spark.task.columns import records_by_topic
from spark_kafka_sink.spark.task.producer_cache import cache
from spark_kafka_sink.spark.task.refused_rows import split_batch
from spark_kafka_sink.spark.task.task import run_task
from tests.kafka.fixtures import NewTopic, embedded_broker_kind
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.bad_rows import KEPT, SCHEMA, Given, batch_of, delivered, end, keys, tolerant, why

broker_kind = embedded_broker_kind("a second for each; one stays, and test_bad_rows_end_to_end.py has every kind on real Kafka")


@pytest.fixture(autouse=True)
def _no_producer_left() -> Iterator[None]:
    yield
    cache.close()


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
    good = sorted(each.batch_rows.row_in_task(row) for each in found for row in range(each.columns.num_records))
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
    assert [found.batch_rows.row_in_task(row) for row in range(2)] == [105, 109]
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


# How many rows may be bad: of a task, and of all tasks


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


@pytest.mark.parametrize("batch", [MicroBatch("query", 0), MicroBatch.of_new_job()], ids=["stream", "job"])
def test_under_exactly_once_a_streams_task_writes_on_beyond_the_limit_because_the_commit_decides(
    kafka: Kafka, new_topic: NewTopic, batch: MicroBatch
) -> None:
    settings = tolerant(kafka, new_topic(config=KEPT), delivery__guarantee="exactly-once", on__error__max__rows="2")
    rows = (SCHEMA, batch_of([Given(number, None) for number in range(5)]))
    if batch.is_job:
        with pytest.raises(TooManyBadRowsError):
            run_task([rows], settings, Feed(), batch)
        return
    report, share = run_task([rows], settings, Feed(), batch)
    assert report.dead_letters == 5
    assert share is not None
    end(settings, share, commit=False)


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
