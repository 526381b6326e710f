"""Rows become batches: each row in its partition's batches once and in order, within batch.size, whatever the memory."""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import BufferExhaustedError
from spark_kafka_sink.producer.accumulator import append_plan, appender
from spark_kafka_sink.producer.accumulator.appender import parts as parts_of
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import decode_batches
from tests.every import every
from tests.examples import examples
from tests.producer.parts import Parts, make_parts
from tests.waiting import HOUR_MS


def decoded(batch: OpenBatch) -> list[Record]:
    """What a broker would read: sealed as the sender does it, decoded by the decoder, CRC and all."""
    sealed = SealedBatch(batch, Codec.NONE, 0)
    sealed.number(NO_PRODUCER, 0)
    (fetched,) = decode_batches(b"".join(sealed.buffers()))
    assert sealed.size == sum(len(buffer) for buffer in sealed.buffers())
    return fetched.records()


def by_partition(batches: list[OpenBatch]) -> dict[int, list[bytes | None]]:
    values: dict[int, list[bytes | None]] = defaultdict(list)
    for batch in batches:
        values[batch.queue.partition] += [record.value for record in decoded(batch)]
    return dict(values)


def give_back(parts: Parts, batches: list[OpenBatch]) -> None:
    for batch in batches:
        batch.memory.give_back(parts.pool)


ROWS = st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.binary(max_size=700))), min_size=1, max_size=60)


@settings(max_examples=examples(300), deadline=None)
@given(appends=st.lists(ROWS, min_size=1, max_size=6), batch_size=st.sampled_from([1, 300, 1000, 5000]))
def test_each_row_stands_once_and_in_order_in_its_partition(
    appends: list[list[tuple[int, bytes | None]]], batch_size: int
) -> None:
    parts = make_parts(batch_size=batch_size, buffer_memory=1 << 20)
    scope = parts.tally()
    expected: dict[int, list[bytes | None]] = defaultdict(list)
    for rows in appends:
        parts.append(scope, [value for _, value in rows], [partition for partition, _ in rows])
        for partition, value in rows:
            expected[partition].append(value)
    batches = parts.drain_all()
    assert by_partition(batches) == dict(expected)
    assert all(batch.size <= batch_size or batch.record_count == 1 for batch in batches)
    give_back(parts, batches)
    assert parts.pool.available == 1 << 20


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**45)), min_size=1, max_size=40))
def test_each_record_keeps_its_own_timestamp(rows: list[tuple[int, int]]) -> None:
    parts = make_parts(batch_size=400)
    scope = parts.tally()
    timestamps = np.array([timestamp for _, timestamp in rows], dtype=np.int64)
    columns = RecordColumns(len(rows), value=pa.array([b"v"] * len(rows), pa.binary()), timestamp=timestamps)
    parts.append_columns(scope, columns, [partition for partition, _ in rows])
    got: dict[int, list[int]] = defaultdict(list)
    for batch in parts.drain_all():
        records = decoded(batch)
        assert batch.max_timestamp == max(record.timestamp for record in records)
        got[batch.queue.partition] += [record.timestamp for record in records]
    expected: dict[int, list[int]] = defaultdict(list)
    for partition, timestamp in rows:
        expected[partition].append(timestamp)
    assert got == expected


def test_rows_of_more_partitions_than_are_planned_at_once_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_plan, "MAX_RUNS", 3)
    parts = make_parts()
    scope = parts.tally()
    for append in (b"first", b"second"):
        parts.append(scope, [append] * 20, [row % 10 for row in range(20)])
    assert by_partition(parts.drain_all()) == {partition: [b"first"] * 2 + [b"second"] * 2 for partition in range(10)}


def test_records_without_a_timestamp_get_the_time_of_append() -> None:
    parts = make_parts()
    timestamps = np.array([5, NO_TIMESTAMP], dtype=np.int64)
    columns = RecordColumns(2, value=pa.array([b"a", b"b"]), timestamp=timestamps)
    parts.append_columns(parts.tally(), columns, [0, 0])
    given, now = [record.timestamp for record in decoded(parts.drain_all()[0])]
    assert given == 5
    assert now > 1_700_000_000_000


def test_more_rows_than_half_of_the_memory_go_in_rounds() -> None:
    parts = make_parts(chunk_size=256, buffer_memory=16 * 256, batch_size=600, max_block_ms=HOUR_MS)
    values: list[bytes | None] = [b"%03d" % i + b"x" * 100 for i in range(200)]
    taken: list[OpenBatch] = []
    stop = threading.Event()

    def send() -> None:  # the sender's part: take batches, read them, give the memory back
        while not stop.wait(0.001):
            for batch in parts.drain():
                assert isinstance(batch, OpenBatch)
                got.extend(record.value for record in decoded(batch))
                batch.memory.give_back(parts.pool)

    got: list[bytes | None] = []
    sender = threading.Thread(target=send)
    sender.start()
    parts.append(parts.tally(), values, [0] * len(values))
    stop.set()
    sender.join(60)
    for batch in parts.drain_all():
        got += [record.value for record in decoded(batch)]
        taken.append(batch)
    assert got == values


def test_nothing_is_sent_of_a_batch_into_which_an_append_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts(chunk_size=256, buffer_memory=8 * 256)
    scope = parts.tally()
    parts.append(scope, [b"first" * 20], [0])

    def out_of_memory(size: int) -> bytearray:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("spark_kafka_sink.producer.accumulator.buffer_pool.bytearray", out_of_memory, raising=False)
        with pytest.raises(MemoryError):
            parts.append(scope, [b"second" * 40], [0])
    assert parts.drain_all() == []


def test_long_runs_of_rows_are_sent_from_where_they_were_encoded_and_count_in_the_pool_until_the_last_is_done() -> None:
    parts = make_parts(chunk_size=256, buffer_memory=1024 * 256, batch_size=4096)
    parts.append(parts.tally(), [b"x" * 2000, b"y" * 3000], [0, 1])
    first, second = parts.drain_all()
    (piece,), (other,) = first.memory.pieces(), second.memory.pieces()
    assert piece.obj is other.obj
    in_use = parts.pool.total - parts.pool.available
    assert first.size + second.size <= in_use < first.size + second.size + 256
    first.memory.give_back(parts.pool)
    assert parts.pool.total - parts.pool.available == in_use
    second.memory.give_back(parts.pool)
    assert parts.pool.available == parts.pool.total


@pytest.mark.parametrize(("size", "shared"), [(20_000, True), (100_000, False)])
def test_only_large_rows_are_copied(size: int, shared: bool) -> None:
    parts = make_parts(chunk_size=4096)
    parts.append(parts.tally(), [b"x" * size, b"y" * size], [0, 1])
    first, second = parts.drain_all()
    blocks = [{id(piece.obj) for piece in batch.memory.pieces()} for batch in (first, second)]
    assert bool(blocks[0] & blocks[1]) == shared
    give_back(parts, [first, second])


def rounds_until_memory_is_out(parts: Parts, values: list[bytes | None], partitions: list[int], stuck: int) -> int:
    """Appends the rows again and again, at most 100 times; everything goes out at once but what is for the `stuck` partition."""
    scope = parts.tally()
    parts.append(scope, values, partitions)
    parts.accumulator.mute(parts.accumulator.queues("t")[stuck])
    for number in range(100):
        parts.accumulator.flush(scope)
        while batches := parts.drain():
            give_back(parts, [batch for batch in batches if isinstance(batch, OpenBatch)])
        try:
            parts.append(scope, values, partitions)
        except BufferExhaustedError:
            return number
    return 100


def test_a_partition_that_is_stuck_stops_the_others_only_when_its_own_rows_fill_most_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks that it shares with others would hold eight times as much as its rows."""
    monkeypatch.setattr(appender, "STUCK_MS", -1)
    parts = make_parts(chunk_size=256, buffer_memory=128 * 256, batch_size=4096, max_block_ms=1, linger_ms=0)
    assert rounds_until_memory_is_out(parts, [b"x" * 600] * 8, list(range(8)), stuck=0) < 100
    held = sum(batch.size for batch in parts.accumulator.queues("t")[0].batches)
    assert held > parts.pool.total / 2


def test_small_batches_that_linger_beside_a_large_partition_do_not_fill_the_memory_with_its_blocks() -> None:
    parts = make_parts(chunk_size=256, buffer_memory=512 * 256, batch_size=4096, max_block_ms=1)
    values: list[bytes | None] = [*[b"x" * 600] * 8, b"y"]
    assert rounds_until_memory_is_out(parts, values, [*[0] * 8, 1], stuck=1) == 100


@every(
    "rows, size, lengths",
    [
        (25_000, 100, [10_000, 10_000, 5_000]),
        (10, 1 << 20, [4, 4, 2]),
        (10_000, 2 << 10, [6144, 3856]),
        (3, 5 << 20, [1, 1, 1]),
        (10_000, 1, [10_000]),
    ],
)
def test_large_arrow_batches_are_cut_by_rows_and_by_bytes(rows: int, size: int, lengths: list[int]) -> None:
    cuts = list(parts_of(np.full(rows, size), 10_000))
    assert [stop - start for start, stop in cuts] == lengths
    assert [start for start, _ in cuts] == [0, *[stop for _, stop in cuts[:-1]]]


def test_a_failed_encoding_leaves_the_open_batch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts()
    scope = parts.tally()
    parts.append(scope, [b"kept"], [0])

    def broken(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("spark_kafka_sink.producer.accumulator.appender.encode_pieces", broken)
        with pytest.raises(MemoryError):
            parts.append(scope, [b"lost"], [0])
    parts.append(scope, [b"next"], [0])
    assert by_partition(parts.drain_all()) == {0: [b"kept", b"next"]}


def test_rows_without_a_timestamp_may_follow_rows_of_long_ago() -> None:
    parts = make_parts()
    scope = parts.tally()
    old = RecordColumns(1, value=pa.array([b"old"]), timestamp=np.array([0], dtype=np.int64))
    parts.append_columns(scope, old, [0])
    values: list[bytes | None] = [b"x" * 40] * 300
    parts.append(scope, values, [0] * 300)
    assert by_partition(parts.drain_all()) == {0: [b"old", *values]}


def test_a_batch_is_no_larger_than_a_request_may_be() -> None:
    parts = make_parts(max_request_size=1000, batch_size=100_000)
    parts.append(parts.tally(), [b"x" * 100] * 50, [0] * 50)
    assert all(batch.size + 61 <= 1000 for batch in parts.drain_all())
