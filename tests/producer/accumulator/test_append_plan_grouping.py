"""Rows are grouped by partition, stably, and left alone where they already are."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.accumulator.append_plan import Groups, group

# A busy machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
