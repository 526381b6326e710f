"""Records that cannot be: each is an error that names it, before anything is sent, and the producer goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import RecordError, RecordTooLargeError, SchemaError
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns
from tests.every import every
from tests.faults.producing import buffered_bytes, failing_scope, numbers, producer_on, send
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOT_UTF8 = b"a\xff"


def text_of(*values: bytes) -> pa.Array:
    """A string column of any bytes, as Spark's CAST(binary AS STRING) makes it."""
    return pa.array(values, pa.binary()).view(pa.string())


def with_headers(*rows: list[tuple[str | None, bytes | None] | None] | None) -> RecordColumns:
    lists = [
        None if row is None else [None if pair is None else {"key": pair[0], "value": pair[1]} for pair in row] for row in rows
    ]
    return RecordColumns(len(rows), headers=pa.array(lists, HEADERS))


def with_header_keys(*keys: bytes) -> RecordColumns:
    """One header in each row."""
    pairs = pa.StructArray.from_arrays([text_of(*keys), pa.array([b"v"] * len(keys))], ["key", "value"])
    return RecordColumns(len(keys), headers=pa.ListArray.from_arrays(pa.array(range(len(keys) + 1), pa.int32()), pairs))


def at(*timestamps: int) -> RecordColumns:
    return RecordColumns(len(timestamps), timestamp=np.array(timestamps, np.int64))


@pytest.mark.fault("record", "null header, header without a key")
@pytest.mark.fault("record", "partition negative or out of range")
@pytest.mark.fault("record", "bad timestamp")
@every(
    "columns, text",
    [
        (at(5, -1, -2), "row 2 of 3: timestamp -2 ms is before 1970"),
        (at(-(2**63)), "row 0 of 1: timestamp -9223372036854775808 ms is before 1970"),
        (with_headers([], None, [("k", b""), None]), "row 2 of 3: a header is null"),
        (with_headers([("k", None)], [("k", b""), (None, b"")]), "row 1 of 2: a header has a null key"),
        (with_headers([None], [("k", b"")], [(None, b"")]).slice(1, 2), "row 1 of 2: a header has a null key"),
        (with_header_keys(b"a", NOT_UTF8, b"b"), "row 1 of 3: a header key is not valid UTF-8"),
        (with_header_keys(b"a", b"b", NOT_UTF8).slice(1, 2), "row 1 of 2: a header key is not valid UTF-8"),
        (numbers([1], partition=-2), "row 0 of 1: column partition is -2, but the only partition is 0"),
        (numbers([1, 2], partition=1), "row 0 of 2: column partition is 1, but the only partition is 0"),
    ],
)
def test_a_record_that_cannot_be_is_named_and_nothing_of_its_append_is_sent(
    cluster: RecordingBroker, columns: RecordColumns, text: str
) -> None:
    before = cluster.values()
    with producer_on(cluster.bootstrap_servers) as producer:
        with failing_scope(producer) as scope, pytest.raises(RecordError, match=f"^\\[RECORD\\] topic t: {text}"):
            scope.append("t", columns)
        assert send(producer, numbers([7])) == 1
    assert cluster.values() == [*before, 7]


@pytest.mark.fault("record", "null topic, illegal name")
@every(
    "topic, text",
    [
        (None, "^\\[RECORD\\] topic is null$"),
        ("", "'' is not a valid topic name"),
        (7, "7 is not a valid topic name"),
        (b"t", "b't' is not a valid topic name"),
        ("a b", "'a b' is not a valid topic name"),
        ("t\n", r"'t\\n' is not a valid topic name"),
        ("ü", "'ü' is not a valid topic name"),
        ("\ud800", r"'\\ud800' is not a valid topic name"),
        (["t"], r"\['t'\] is not a valid topic name"),
        ("x" * 250, "1 to 249 of the characters"),
        ("..", "'..' is not a valid topic name"),
    ],
)
def test_what_is_no_topics_name_is_an_error_at_once_and_the_producer_lives_on(
    cluster: RecordingBroker, topic: Any, text: str
) -> None:
    before = cluster.values()
    with producer_on(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
        for call in (lambda: scope.append(topic, numbers([1])), lambda: producer.partitions_for(topic)):
            with pytest.raises(RecordError, match=text):
                call()
            assert send(producer, numbers([7])) == 1
    assert cluster.values() == [*before, 7, 7]


TEXT = pa.array(["a", "b"])


@every("interceptors", [[], [ProducerInterceptor()]])
@every(
    "columns, text",
    [
        (pa.table({"value": TEXT}), "columns are Table, must be RecordColumns"),
        (
            RecordColumns(2, value=pa.chunked_array([TEXT])),
            r"value is ChunkedArray, must be an Arrow array: use combine_chunks\(\)",
        ),
        (RecordColumns(2, key=["a", "b"]), "key is list, must be an Arrow array"),
        (RecordColumns(3, value=TEXT), "value has 2 rows, but num_records is 3"),
        (RecordColumns(2, timestamp=np.array([1])), "timestamp has 1 row, but num_records is 2"),
        (RecordColumns(2, partition=np.zeros(3, np.int32)), "partition has 3 rows, but num_records is 2"),
        (RecordColumns(2, partition=[0, 0]), "partition must be a one-dimensional numpy array of integers"),  # type: ignore[arg-type]
        (RecordColumns(1, timestamp=np.array([0.5])), "timestamp must be a one-dimensional numpy array of integers"),
        (RecordColumns(1, fixed_headers=((b"k", b"v"),)), "fixed_headers has a key that is not text"),  # type: ignore[arg-type]
        (RecordColumns(1, fixed_headers=(("k", "v"),)), "fixed_headers has a value of type str, must be bytes or None"),  # type: ignore[arg-type]
        (RecordColumns(2, key=pa.array([1, 2])), "key is int64, must be binary or string: cast it, or set key.serializer"),
        (RecordColumns(2, value=TEXT.dictionary_encode()), "value is dictionary<.*>, must be binary or string: cast it"),
        (RecordColumns(2, headers=TEXT), r"headers is string, must be list<struct<key: string, value: binary>>"),
        (RecordColumns(1, headers=pa.array([[("k", b"")]], pa.map_(pa.string(), pa.binary()))), r"headers is map<.*>, must be"),
        (RecordColumns(1, headers=pa.array([[{"name": "k", "value": b""}]])), r"headers is list<.*>, must be list<struct<key"),
        (RecordColumns(1, headers=pa.array([[{"key": "k", "value": 5}]])), r"headers is list<.*>, must be list<struct<key"),
    ],
)
def test_columns_that_hold_no_records_are_named_and_nothing_of_them_is_sent(
    cluster: RecordingBroker, columns: RecordColumns, text: str, interceptors: list[ProducerInterceptor]
) -> None:
    before = cluster.values()
    with producer_on(cluster.bootstrap_servers, interceptor_classes=interceptors) as producer:
        with failing_scope(producer) as scope, pytest.raises(SchemaError, match=f"^\\[SCHEMA\\] topic t: (column )?{text}"):
            scope.append("t", columns)
        assert send(producer, numbers([7])) == 1
    assert cluster.values() == [*before, 7]


def test_what_an_interceptor_makes_of_columns_is_checked_too(cluster: RecordingBroker) -> None:
    class Halving(ProducerInterceptor):
        def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
            return replace(columns, num_records=1)

    with producer_on(cluster.bootstrap_servers, interceptor_classes=Halving) as producer:
        with failing_scope(producer) as scope, pytest.raises(SchemaError, match="value has 2 rows, but num_records is 1"):
            scope.append("t", numbers([1, 2]))
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 0


@pytest.mark.fault("record", "bad timestamp")
def test_a_row_without_a_timestamp_among_others_is_not_one_before_1970(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers) as producer:
        assert send(producer, at(5, NO_TIMESTAMP, 0)) == 3


@pytest.mark.fault("record", "no UTF-8")
def test_a_single_record_whose_header_key_is_no_text_harms_no_other(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, linger_ms=100_000) as producer:
        good = producer.send("t", b"1", headers=[("\u00fc", None)])
        with pytest.raises(RecordError, match=r"topic t: header key '\\ud800' cannot be encoded as UTF-8"):
            producer.send("t", b"2", headers=[("\ud800", b"")])
        producer.flush(10)
        assert good.result(10).offset == 0
    assert cluster.values() == [1]


@pytest.mark.fault("memory", "a record over buffer.memory or max.request.size")
def test_a_record_over_max_request_size_is_refused_before_anything_is_buffered(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, max_request_size=1000) as producer, producer.scope() as scope:
        with pytest.raises(
            RecordTooLargeError,
            match=r"row 1 of 3: .* 1\d{3} bytes before compression, more than max.request.size",
        ):
            scope.append("t", RecordColumns(3, value=pa.array([b"1", b"2" * 1000, b"3"])))
        assert buffered_bytes(producer) == 0
        scope.append("t", numbers([5]))
        scope.flush(10)
    assert cluster.values() == [5]


@pytest.mark.fault("record", "no UTF-8")
def test_text_that_is_no_utf8_arrives_byte_for_byte(kafka: Kafka, new_topic: NewTopic) -> None:
    """Keys and values are bytes to Kafka; what kind of text they are is the consumers' affair."""
    topic = new_topic(1)
    columns = RecordColumns(3, key=text_of(NOT_UTF8, b"", b"\xed\xa0\x80"), value=text_of(b"\xff\xfe", NOT_UTF8, b""))
    with producer_on(kafka.bootstrap_servers) as producer:
        assert send(producer, columns, topic) == 3
    read = {(record.key, record.value) for record in read_topic(kafka.direct_servers, topic)}
    assert read == {(NOT_UTF8, b"\xff\xfe"), (b"", NOT_UTF8), (b"\xed\xa0\x80", b"")}
