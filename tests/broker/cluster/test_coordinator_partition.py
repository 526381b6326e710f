"""Keys go to the partition of the internal topic that Kafka would give them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.coordinator_partition import java_hash, partition_for


# Of `String.hashCode` in a JVM.
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("test-group", 627841412),
        ("polygenelubricants", -(2**31)),
        ("GydZG_", -(2**31)),
        ("ÄÖÜ", 195210),
        ("日本語", 25921943),
        ("\U0001f600", 1772899),  # a surrogate pair
        ("\x00", 0),
    ],
)
def test_a_hash_is_javas(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_a_group_is_where_kafka_has_it() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("test-group", 50) == 627841412 % 50


def test_the_one_number_that_has_no_positive_twin_is_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 100))
@settings(deadline=None)
def test_every_key_has_a_partition(key: str, partitions: int) -> None:
    assert 0 <= partition_for(key, partitions) < partitions
