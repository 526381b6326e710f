"""Sealed batches in parts: no record is lost, changed or out of order, whatever the records, the codec and the limit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.accumulator.rejected_batches import rebuild, runs, split
from spark_kafka_sink.producer.accumulator.sequences import ProducerIdAndEpoch
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import FetchedBatch, decode_batches
from tests.examples import examples
from tests.producer.parts import Parts, make_parts
from tests.records.making import columns_of
from tests.records.tables import any_bytes, headers

pytestmark = pytest.mark.slow

timestamps = st.integers(0, 1000) | st.integers(0, 2**61)  # nobody reads a delta over 64 bits
LONGER_DELTA = 9  # bytes at most that another first timestamp adds to a record
any_records = st.lists(
    st.builds(Record, st.just(0), timestamps, st.none() | any_bytes, st.none() | any_bytes, headers), min_size=2, max_size=20
)


def sealed(parts: Parts, records: list[Record], codec: Codec = Codec.NONE) -> SealedBatch:
    """One batch of these records, as it goes out."""
    columns = columns_of(records)
    stamped = RecordColumns(
        columns.num_records,
        columns.value,
        columns.key,
        headers=columns.headers,
        timestamp=np.array([record.timestamp for record in records], np.int64),
    )
    parts.append_columns(parts.tally(), stamped, [0] * len(records))
    (opened,) = parts.drain_all()
    batch = SealedBatch(opened, codec, 1)
    batch.free_raw(parts.pool)
    batch.number(ProducerIdAndEpoch(7, 0), 0)
    return batch


def decoded(batch: SealedBatch) -> FetchedBatch:
    batch.number(ProducerIdAndEpoch(7, 0), 0)
    (found,) = decode_batches(b"".join(batch.buffers()))
    return found


def used(parts: Parts) -> int:
    return parts.pool.total - parts.pool.available


def assert_is_a_batch_of(part: SealedBatch, records: list[Record]) -> None:
    """Offsets from 0, and a header that says what is in it: a broker looks at all of that."""
    found = decoded(part)
    assert found.records() == [replace(record, offset=offset) for offset, record in enumerate(records)]
    assert found.record_count == part.record_count == found.last_offset_delta + 1 == len(records)
    assert found.first_timestamp == records[0].timestamp
    assert found.max_timestamp == max(record.timestamp for record in records)


@settings(max_examples=examples(100))
@given(any_records, st.sampled_from(Codec), st.data())
def test_a_split_keeps_every_record_and_their_order(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    parts = make_parts()
    batch = sealed(parts, records, codec)
    limit = data.draw(st.integers(1, batch.raw_size - 1))
    found = split(batch, limit, parts.pool)
    assert len(found) >= 2
    done = 0
    for part in found:
        assert part.raw_size <= limit + LONGER_DELTA * part.record_count or part.record_count == 1
        assert_is_a_batch_of(part, records[done : done + part.record_count])
        done += part.record_count
    assert done == len(records)


@settings(max_examples=examples(100))
@given(any_records, st.sampled_from(Codec), st.data())
def test_any_of_the_records_make_batches_of_their_own(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    rows = st.lists(st.integers(0, len(records) - 1), min_size=1, unique=True).map(sorted)
    chosen = data.draw(st.lists(rows, min_size=1, max_size=4))
    parts = make_parts()
    batch = sealed(parts, records, codec)
    found = rebuild(batch, [np.array(one) for one in chosen], parts.pool)
    for part, one in zip(found, chosen, strict=True):
        assert_is_a_batch_of(part, [records[row] for row in one])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_the_parts_have_memory_of_their_own_and_give_all_of_it_back(codec: Codec) -> None:
    parts = make_parts()
    batch = sealed(parts, [Record(0, 0, None, b"x" * 1000)] * 10, codec)
    found = split(batch, 5100, parts.pool)
    batch.free(parts.pool)
    for part in found:
        assert used(parts) >= sum(part.size - 61 for part in found if part.payload)
        part.free(parts.pool)
    assert used(parts) == 0


def test_a_split_may_overdraw_a_full_pool_and_settles_it() -> None:
    parts = make_parts(buffer_memory=32 * 1024)
    batch = sealed(parts, [Record(0, 0, None, b"x" * 1000)] * 10)
    rest = parts.pool.try_allocate(parts.pool.free_chunks)
    assert rest is not None
    found = split(batch, 5100, parts.pool)
    assert parts.pool.free_chunks < 0
    batch.free(parts.pool)
    assert parts.pool.free_chunks == 0
    for part in found:
        part.free(parts.pool)
    parts.pool.deallocate(rest)
    assert used(parts) == 0


def test_a_part_is_as_old_as_its_batch_and_was_never_sent() -> None:
    parts = make_parts()
    batch = sealed(parts, [Record(0, 0, None, b"x" * 100)] * 4)
    batch.created_ms, batch.attempts, batch.first_sent_ms, batch.sent_to = 17, 3, 21, 0
    for part in split(batch, 200, parts.pool):
        assert (part.created_ms, part.attempts, part.first_sent_ms, part.sent_to) == (17, 0, 21, None)
        assert (part.tally, part.queue, part.on_wire, part.known_not_stored) == (batch.tally, batch.queue, False, True)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 100))
def test_runs_are_as_long_as_the_limit_lets_them_be(sizes: list[int], limit: int) -> None:
    found = [run.tolist() for run in runs(np.array(sizes, np.int64), limit)]
    assert [row for run in found for row in run] == list(range(len(sizes)))
    for run, following in itertools.pairwise(found):
        assert sum(sizes[row] for row in run) + sizes[following[0]] > limit
    assert all(len(run) == 1 or sum(sizes[row] for row in run) <= limit for run in found)
