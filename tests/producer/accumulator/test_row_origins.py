"""Rejected records have the numbers of their rows, however appends were grouped, encoded, and split into batches."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator import appender
from spark_kafka_sink.producer.accumulator.appender import Append
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.accumulator.rejected_batches import rebuild, rejected_records, split
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import Codec
from tests.examples import examples
from tests.producer.parts import Parts, make_parts

pytestmark = pytest.mark.slow

# The partitions of an append's rows; whether the caller numbers them; partitions in order have no order of their own.
appends = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.booleans(), st.booleans()), min_size=1, max_size=6
)


def numbers_of(values: list[int]) -> Callable[[NDArray[np.intp]], NDArray[np.int64]]:
    return lambda positions: np.array(values, np.int64)[positions]


def appended(parts: Parts, given_appends: list[tuple[list[int], bool, bool]]) -> tuple[list[SealedBatch], set[int]]:
    """Returns the batches of all appends, and the values that have numbers. The value of each record is its number."""
    tally, done, with_numbers = parts.tally(), 0, set[int]()
    for drawn, is_numbered, in_order in given_appends:
        partitions = sorted(drawn) if in_order else drawn
        values = list(range(done, done + len(partitions)))
        # One timestamp for all: otherwise the time of the append decides about the sizes.
        times = np.full(len(values), 1_700_000_000_000)
        columns = RecordColumns(len(values), value=pa.array([b"%d" % value for value in values]), timestamp=times)
        numbers = numbers_of(values) if is_numbered else None
        append = Append(tally, "t", columns, row_numbers=numbers)
        sizes = parts.appender.sizes(append)
        parts.appender.append(append, sizes, np.array(partitions, np.int32), 3)
        with_numbers.update(values if is_numbered else [])
        done += len(values)
    return [SealedBatch(opened, Codec.NONE, 1) for opened in parts.drain_all()], with_numbers


def given_back(batch: SealedBatch, indexes: list[int]) -> list[tuple[int, int | None]]:
    """Value and number of each of these records, as their scope gets them. Neighbours share their errors."""
    errors = {index: KafkaSinkError(f"{index // 5}") for index in indexes}
    found: list[tuple[int, int | None]] = []
    for rows in rejected_records(batch, errors).bad_rows():
        assert rows.columns.value is not None
        known = [None] * rows.columns.num_records if rows.rows is None else rows.rows.tolist()
        found += zip(map(int, rows.columns.value.to_pylist()), known, strict=True)
    return found


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(appends, st.integers(80, 2000), st.data())
def test_each_rejected_record_has_the_number_of_its_row(
    given_appends: list[tuple[list[int], bool, bool]], batch_size: int, data: st.DataObject
) -> None:
    parts = make_parts(batch_size=batch_size, buffer_memory=1 << 18)
    with patch.object(appender, "MAX_ROWS", 7), patch.object(appender, "ROWS_PER_PARTITION", 3):
        left, with_numbers = appended(parts, given_appends)
    count = sum(batch.record_count for batch in left)
    seen: list[int] = []
    while left:
        batch = left.pop()
        several = batch.record_count > 1
        what = data.draw(st.sampled_from(["split", "some", "all"] if several else ["all"]))
        if what == "split":
            left += split(batch, data.draw(st.integers(1, batch.raw_size - 1)), parts.pool)
            continue
        some = list(range(batch.record_count))
        if what == "some":
            some = sorted(data.draw(st.sets(st.sampled_from(some), min_size=1, max_size=len(some) - 1)))
        for value, number in given_back(batch, some):
            assert number == (value if value in with_numbers else None)
            seen.append(value)
        if what == "some":
            left += rebuild(batch, [np.setdiff1d(np.arange(batch.record_count), some)], parts.pool)
    assert sorted(seen) == list(range(count))
