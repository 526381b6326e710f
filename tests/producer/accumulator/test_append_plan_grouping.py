"""Rows are grouped by partition, stably, and left alone where they already are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.accumulator.append_plan import Groups, group

# A busy machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def int32(*partitions: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(partitions, np.int32)


def rows_of(groups: Groups, n: int) -> dict[int, list[int]]:
    order = np.arange(n) if groups.order is None else groups.order
    bounds = zip(groups.starts, groups.starts[1:], strict=False)
    return {p: order[a:b].tolist() for p, (a, b) in zip(groups.partition_ids, bounds, strict=True)}


@unhurried
@given(st.data(), st.sampled_from([1, 2, 8, 256, 257, 65_536, 65_537, 1_000_000]))
def test_each_partition_gets_its_rows_in_their_order(data: st.DataObject, n_partitions: int) -> None:
    partitions = data.draw(st.lists(st.integers(0, n_partitions - 1) | st.sampled_from([0, n_partitions - 1]), max_size=100))
    groups = group(np.array(partitions, np.int32), n_partitions)
    expected: dict[int, list[int]] = {}
    for row, partition in enumerate(partitions):
        expected.setdefault(partition, []).append(row)
    assert rows_of(groups, len(partitions)) == expected
    assert groups.starts[-1] == len(partitions)
    assert len(set(groups.partition_ids)) == len(groups.partition_ids)


def test_no_rows_make_no_groups() -> None:
    assert group(int32(), 3) == Groups(None, [], [0])


@pytest.mark.parametrize(
    ("partitions", "ids", "starts"),
    [
        (int32(2), [2], [0, 1]),
        (int32(1, 1, 1), [1], [0, 3]),
        (int32(0, 0, 2), [0, 2], [0, 2, 3]),
        (int32(2, 0, 0, 1), [2, 0, 1], [0, 1, 3, 4]),
    ],
)
def test_rows_that_stand_together_keep_their_order(partitions: np.ndarray, ids: list[int], starts: list[int]) -> None:
    assert group(partitions, 3) == Groups(None, ids, starts)


@pytest.mark.parametrize("n_partitions", [2, 300, 70_000])
def test_a_partition_that_comes_back_is_joined(n_partitions: int) -> None:
    groups = group(int32(1, 0, 1, 1), n_partitions)
    assert groups.order is not None
    assert groups.order.tolist() == [1, 0, 2, 3]
    assert (groups.partition_ids, groups.starts) == ([0, 1], [0, 1, 4])


def test_ids_and_starts_are_plain_python_numbers() -> None:
    for groups in (group(int32(1, 0, 1), 2), group(int32(0, 1), 2)):
        assert {type(x) for x in groups.partition_ids + groups.starts} == {int}
