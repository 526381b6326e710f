"""Appends with `on_bad_rows`: the bad rows are handed over as they were given, and the others are sent, once and in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import (
    DeliveryError,
    KafkaSinkError,
    MetadataTimeoutError,
    RecordError,
    RecordTooLargeError,
    SchemaError,
    SerializationError,
    TransactionAbortableError,
)
from spark_kafka_sink.producer.base.bad_rows import BadRows
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns
from tests.faults.producing import figure, numbers, producer_on
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.inside import meet
from tests.producer.recording_interceptors import Recording
from tests.producer.transactions.transacting import deadline, scoped, somebody_else, until_read

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


class Evens(Serializer):
    """Refuses odd numbers. Adds a header to what is not null, and removes it from what records bring."""

    adds_headers = True
    own_headers = ("id",)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if value % 2:
            raise ValueError("odd")
        return b"%d" % value

    def headers_of(self, topic: str, kind: pa.DataType | None) -> FixedHeaders:
        return (("id", b"7"),)


class ByValue:
    """A partitioner of rows that fails for some."""

    def partition_record(self, topic: str, key: bytes | None, value: bytes | None, cluster: object) -> int:
        return int(value or b"") % 7


class Duplicating(ProducerInterceptor):
    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        return RecordColumns(2, value=pa.concat_arrays([columns.value, columns.value]))


class Reversing(ProducerInterceptor):
    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        return RecordColumns(columns.num_records, value=columns.value[::-1])  # type: ignore[index]


@pytest.fixture
def cluster() -> Any:
    with RecordingBroker() as made:
        made.topic("t", [1, 1])
        yield made


def header_rows(rows: list[list[tuple[str | None, bytes]]]) -> pa.Array:
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], pa.list_(PAIR))


def test_every_reason_costs_its_rows_only(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, found = new_topic(3), list[BadRows]()
    wrong: dict[int, str] = {
        2: "headers",
        3: "timestamp",
        64: "partition",
        65: "large",
        130: "headers",
        199: "partition",
        300: "large",
    }
    values = [b"%d" % n if wrong.get(n) != "large" else bytes(5000) for n in range(301)]
    headers: list[list[tuple[str | None, bytes]]] = [
        [(None, b"")] if wrong.get(n) == "headers" else [("h", b"%d" % n)] for n in range(301)
    ]
    stamps = [-5 if wrong.get(n) == "timestamp" else 1000 + n for n in range(301)]
    partitions = [(9 if n == 64 else -7) if wrong.get(n) == "partition" else n % 3 for n in range(301)]
    columns = RecordColumns(
        301,
        value=pa.array(values),
        headers=header_rows(headers),
        timestamp=np.array(stamps, np.int64),
        partition=np.array(partitions, np.int32),
    )
    with producer_on(kafka.bootstrap_servers, max_request_size=2000, batch_size=1500) as producer, producer.scope() as scope:
        scope.append(topic, columns, on_bad_rows=found.append)
        scope.flush(30)
        assert scope.report().records == 301 - len(wrong)
        assert figure(producer, "record-error-total") == len(wrong)
    assert [row for rows in found for row in (rows.rows if rows.rows is not None else [])] == sorted(wrong)
    for rows in found:
        assert rows.rows is not None
        row = int(rows.rows[0])
        assert (rows.columns.num_records, rows.columns.value.to_pylist()) == (1, [values[row]])  # type: ignore[union-attr]
        assert rows.columns.timestamp is not None
        assert rows.columns.timestamp.tolist() == [stamps[row]]
        assert isinstance(rows.error, RecordTooLargeError if wrong[row] == "large" else RecordError)
        assert f"row {row} of 301" in rows.error.message
        assert rows.error.facts["row"] == row
        assert rows.error.__traceback__ is None
    for partition in range(3):
        read = read_topic(kafka.direct_servers, topic, partitions=[partition])
        good = [n for n in range(301) if n % 3 == partition and n not in wrong]
        assert [(int(record.value or b""), record.timestamp, record.headers) for record in read] == [
            (n, 1000 + n, (("h", b"%d" % n),)) for n in good
        ]


@pytest.mark.parametrize("odd", [range(1, 1000, 2), range(1, 1000, 100), [999], [1], range(1, 50, 2)], ids=str)
def test_rows_that_a_serializer_refuses_are_given_back_unserialized(cluster: RecordingBroker, odd: range) -> None:
    found = list[BadRows]()
    given = [n if n in odd else None if n % 10 == 6 else 2 * n for n in range(1000)]
    columns = RecordColumns(1000, value=pa.array(given, pa.int64()), fixed_headers=(("id", b"old"), ("own", b"x")))
    with producer_on(cluster.bootstrap_servers, value_serializer=Evens()) as producer, producer.scope() as scope:
        scope.append("t", columns, on_bad_rows=found.append)
        scope.flush(30)
    assert [rows.columns.value.to_pylist() for rows in found] == [[given[row]] for row in odd]  # type: ignore[union-attr]
    assert {type(rows.error) for rows in found} == {SerializationError}
    read = read_topic(cluster.bootstrap_servers, "t")
    assert sorted(int(record.value) for record in read if record.value is not None) == sorted(
        2 * n for n in range(1000) if n not in odd and n % 10 != 6
    )
    assert len(read) == 1000 - len(odd)
    for record in read:
        assert sorted(record.headers) == ([("own", b"x")] if record.value is None else [("id", b"7"), ("own", b"x")])


def test_rows_that_a_partitioner_refuses(cluster: RecordingBroker) -> None:
    found = list[BadRows]()
    with producer_on(cluster.bootstrap_servers, partitioner_class=ByValue()) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(70)), on_bad_rows=found.append)
        scope.flush(30)
    assert [rows.error.facts["row"] for rows in found] == [n for n in range(70) if n % 7 > 1]
    assert (cluster.values(partition=0), cluster.values(partition=1)) == (list(range(0, 70, 7)), list(range(1, 70, 7)))


def test_a_partition_that_does_not_exist_is_looked_for_once_for_all_rows(cluster: RecordingBroker) -> None:
    found = list[BadRows]()
    columns = RecordColumns(500, value=pa.array([b"1"] * 500), partition=np.full(500, 9, np.int32))
    with producer_on(cluster.bootstrap_servers) as producer, producer.scope() as scope:
        scope.append("t", numbers([0]))
        begun = figure(producer, "request-total")
        scope.append("t", columns, on_bad_rows=found.append)
        assert figure(producer, "request-total") - begun < 10
        scope.flush(60)
    assert len(found) == 500


def test_errors_about_all_rows_are_raised(cluster: RecordingBroker) -> None:
    found = list[BadRows]()
    with producer_on(cluster.bootstrap_servers, max_block_ms=200) as producer, producer.scope() as scope:
        meet(producer, "t")
        with pytest.raises(SchemaError):
            scope.append("t", RecordColumns(1, value=pa.array([1])), on_bad_rows=found.append)
        with pytest.raises(MetadataTimeoutError):
            scope.append("no-such-topic", numbers([1]), on_bad_rows=found.append)
        with pytest.raises(RecordError, match="not a valid topic name"):
            scope.append("no topic", numbers([1]), on_bad_rows=found.append)
    assert found == []


def test_without_a_callback_a_bad_row_is_an_error_and_nothing_is_sent(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, value_serializer=Evens()) as producer, producer.scope() as scope:
        with pytest.raises(SerializationError, match="row 1: "):
            scope.append("t", RecordColumns(3, value=pa.array([0, 1, 2])))
        scope.flush(60)
    assert cluster.values() == cluster.values(partition=1) == []


def test_a_callback_that_raises_ends_the_append_and_nothing_is_sent(cluster: RecordingBroker) -> None:
    def too_many(rows: BadRows) -> None:
        raise DeliveryError("too many bad rows")

    with producer_on(cluster.bootstrap_servers, value_serializer=Evens()) as producer, producer.scope() as scope:
        with pytest.raises(DeliveryError, match="too many"):
            scope.append("t", RecordColumns(3, value=pa.array([0, 1, 2])), on_bad_rows=too_many)
        scope.flush(60)
    assert cluster.values() == cluster.values(partition=1) == []


def test_where_interceptors_changed_the_rows_their_places_are_not_known(cluster: RecordingBroker) -> None:
    found = list[BadRows]()
    with (
        producer_on(cluster.bootstrap_servers, value_serializer=Evens(), interceptor_classes=[Duplicating()]) as producer,
        producer.scope() as scope,
    ):
        scope.append("t", RecordColumns(1, value=pa.array([1])), on_bad_rows=found.append)
    assert [(rows.rows, rows.columns.num_records) for rows in found] == [(None, 1)] * 2


def test_where_interceptors_returned_other_rows_in_the_same_number_those_are_handed_over(cluster: RecordingBroker) -> None:
    """A row at the same place of what was given may be a good one."""
    found = list[BadRows]()
    with (
        producer_on(cluster.bootstrap_servers, value_serializer=Evens(), interceptor_classes=[Reversing()]) as producer,
        producer.scope() as scope,
    ):
        scope.append("t", RecordColumns(3, value=pa.array([0, 2, 3])), on_bad_rows=found.append)
        scope.flush(60)
    assert [(rows.rows, rows.columns.value.to_pylist()) for rows in found] == [(None, [3])]  # type: ignore[union-attr]
    assert sorted(cluster.values() + cluster.values(partition=1)) == [0, 2]


def test_a_transaction_goes_on_behind_bad_rows(cluster: RecordingBroker) -> None:
    found = list[BadRows]()
    with scoped(cluster.bootstrap_servers, value_serializer=Evens()) as producer:
        with producer.transaction("x") as scope:
            scope.append(
                "t", RecordColumns(5, value=pa.array(range(5)), partition=np.zeros(5, np.int32)), on_bad_rows=found.append
            )
            scope.append_serialized("t", RecordColumns(1, value=pa.array([b"11"]), partition=np.zeros(1, np.int32)))
            handle = scope.prepare(20)
        assert handle is not None
        assert handle.records == 4
        with somebody_else(cluster) as other:
            other.end([handle], True, deadline())
    until_read(cluster, "t", [0, 2, 4, 11])


def test_what_is_serialized_passes_interceptors_and_serializers_by(cluster: RecordingBroker) -> None:
    seen = Recording()
    with (
        producer_on(cluster.bootstrap_servers, value_serializer=Evens(), interceptor_classes=[seen]) as producer,
        producer.scope() as scope,
    ):
        scope.append_serialized("t", RecordColumns(1, pa.array([b"5"]), pa.array(["k"])))
        scope.flush(60)
        assert scope.report().records == 1
        with pytest.raises(SchemaError):
            scope.append_serialized("t", RecordColumns(1, pa.array([5])))
    assert [(record.key, record.value) for record in read_topic(cluster.bootstrap_servers, "t")] == [(b"k", b"5")]
    assert seen.shared[1:] == [("", "close")]


def test_a_bad_row_among_what_is_serialized_ends_a_transaction(cluster: RecordingBroker) -> None:
    with scoped(cluster.bootstrap_servers, max_request_size=1000, batch_size=500) as producer, producer.transaction("y") as scope:
        with pytest.raises(RecordTooLargeError):
            scope.append_serialized("t", RecordColumns(1, pa.array([bytes(5000)])))
        with pytest.raises(TransactionAbortableError):
            scope.prepare(10)


def test_errors_of_bad_rows_are_of_this_package(cluster: RecordingBroker) -> None:
    found = list[BadRows]()
    with producer_on(cluster.bootstrap_servers, value_serializer=Evens()) as producer, producer.scope() as scope:
        scope.append("t", RecordColumns(200, value=pa.array([2] * 150 + [1] * 50)), on_bad_rows=found.append)
    assert all(isinstance(rows.error, KafkaSinkError) for rows in found)
    assert found[-1].error.message == "topic t: value: row 199: Evens failed: ValueError: odd"
