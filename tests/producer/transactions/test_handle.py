"""A handle says which partitions a transaction wrote to, in few bytes."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.producer.transactions.handle import TransactionHandle, covers, partition_ranges


def test_neighbours_are_a_range() -> None:
    written = [("b", 3), ("a", 9), ("a", 1), ("a", 0), ("a", 2), ("b", 3)]
    assert partition_ranges(written) == (("a", "0-2,9"), ("b", "3"))


def test_nothing_is_nothing() -> None:
    assert partition_ranges([]) == ()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12))))
def test_ranges_name_exactly_what_was_written(written: list[tuple[str, int]]) -> None:
    named = set()
    for topic, ranges in partition_ranges(written):
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            named |= {(topic, number) for number in range(int(first), int(last or first) + 1)}
    assert named == set(written)


WRITTEN = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12)))


@given(WRITTEN, WRITTEN)
def test_what_was_written_covers_what_is_a_part_of_it(some: list[tuple[str, int]], others: list[tuple[str, int]]) -> None:
    assert covers(partition_ranges(some), partition_ranges(others)) == (set(others) <= set(some))


def test_a_handle_travels() -> None:
    handle = TransactionHandle("id", 7, 3, 2, 100, (("a", "0-2"),))
    assert pickle.loads(pickle.dumps(handle)) == handle
    assert str(handle) == "id (producer id 7, epoch 3)"
