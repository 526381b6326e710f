"""Walked records are those that are read one by one, however many, and whatever their sizes; what is not sound is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.records.record_iter import iter_records
from spark_kafka_sink.records.record_reader import read_record
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from spark_kafka_sink.records.varints import varint
from tests.every import every
from tests.examples import examples

_HEADER = 61
short_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), short_bytes), max_size=3).map(tuple)
records = st.builds(NewRecord, short_bytes, short_bytes, st.integers(0, 2**50), headers)


def payload(rows: Sequence[NewRecord]) -> bytes:
    return small_batch(rows)[_HEADER:]


def walked(data: bytes, count: int) -> list[tuple[int, int, int]]:
    return [
        row
        for part in iter_records(data, count)
        for row in zip(
            part.timestamp_deltas.tolist(), part.offset_deltas.tolist(), np.maximum(part.key_lengths, -1).tolist(), strict=True
        )
    ]


def read(data: bytes, count: int) -> list[tuple[int, int, int]]:
    """By the reader of single records."""
    rows, position = [], 0
    for _ in range(count):
        record, position = read_record(data, position, 0, 0, None)
        rows.append((record.timestamp, record.offset, -1 if record.key is None else len(record.key)))
    assert position == len(data)
    return rows


@settings(max_examples=examples(150))
@given(rows=st.lists(records, min_size=1, max_size=8), repeats=st.integers(1, 60))
def test_walked_and_read_are_the_same(rows: list[NewRecord], repeats: int) -> None:
    rows = rows * repeats
    data = payload(rows)

    assert walked(data, len(rows)) == read(data, len(rows))


@every("value", [b"", b"v" * 60, b"v" * 100, b"v" * 9000])
@every("count", [7, 33, 300, 9000])
def test_records_of_one_size_cross_the_widths_of_their_deltas(count: int, value: bytes) -> None:
    if len(value) * count > 3_000_000:
        count = 300
    data = payload([NewRecord(b"key", value, 3 * i) for i in range(count)])

    assert walked(data, count) == [(3 * i, i, 3) for i in range(count)]


def test_more_records_than_one_chunk() -> None:
    count = 70_000
    data = payload([NewRecord(None, b"v", 0) for _ in range(count)])

    parts = list(iter_records(data, count))

    assert [part.first for part in parts] == [0, 65_536]
    assert (np.concatenate([part.offset_deltas for part in parts]) == np.arange(count)).all()


def test_many_headers() -> None:
    rows = [NewRecord(b"k", b"v", 0, tuple((f"h{j}", None) for j in range(i))) for i in range(40)]

    assert walked(payload(rows), 40) == [(0, i, 1) for i in range(40)]


@settings(max_examples=examples(300))
@given(
    rows=st.lists(records, min_size=1, max_size=4),
    repeats=st.sampled_from([1, 20]),
    at=st.integers(0, 2000),
    byte=st.integers(0, 255),
)
@example(rows=[NewRecord(b"k", b"v" * 40, 0)], repeats=20, at=0, byte=1)
def test_any_other_byte_is_read_the_same_or_refused(rows: list[NewRecord], repeats: int, at: int, byte: int) -> None:
    rows = rows * repeats
    data = bytearray(payload(rows))
    data[at % len(data)] = byte

    by_reader = _outcome(read, bytes(data), len(rows))

    assert by_reader is NOT_TEXT or _outcome(walked, bytes(data), len(rows)) == by_reader


NOT_TEXT = object()
Way = Callable[[bytes, int], list[tuple[int, int, int]]]


def _outcome(way: Way, data: bytes, count: int) -> object:
    """None for refused. Keys of headers are the one thing that walking does not look into."""
    try:
        return way(data, count)
    except ProtocolError as error:
        return NOT_TEXT if "not valid UTF-8" in str(error) else None
    except AssertionError:
        return None


@every("count", [1, 40])
@every(
    "body, what",
    [
        (b"\0\0\0\1\1\0" + b"x", "size|long"),  # a byte behind the headers
        (b"\0\0\0\1\1\1", "headers"),  # -1 headers
        (b"\0\0\0\1\1\2\1\1", "null key"),
        (b"\0\0" + b"\xff" * 5 + b"\1\1\1\0", "more than 32 bits"),
        (b"\0" + b"\xff" * 10 + b"\1\0\1\1\0", "more than 64 bits"),
        (b"\0\0\0\1" + varint(2**31 - 1) + b"\0", "middle of a number"),
    ],
)
def test_unsound_records_are_refused(body: bytes, what: str, count: int) -> None:
    sound = b"\0\0\0\1\1\0"
    data = (varint(len(sound)) + sound) * (count - 1) + varint(len(body)) + body

    with pytest.raises(ProtocolError, match=what):
        walked(data, count)


@pytest.mark.parametrize("count", [2, 41, 70_000])
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int) -> None:
    data = payload([NewRecord(None, b"v", 0) for _ in range(count)])

    for wrong in (count - 1, count + 1):
        with pytest.raises(ProtocolError):
            walked(data, wrong)
