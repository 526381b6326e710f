"""The jobs' own murmur2 agrees with another client's."""

from __future__ import annotations

import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.verify.comparison import partition_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text
    from kafka.partitioner.default import murmur2 as other_murmur2


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=70), st.integers(1, 5_000))
def test_the_partition_is_that_of_javas_default_partitioner(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == (other_murmur2(key) & 0x7FFFFFFF) % partitions
