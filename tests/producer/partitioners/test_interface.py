"""A row's partition: its own, else its key's as in Java, else the sticky one."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.errors import RecordError, UsageError
from spark_kafka_sink.producer.partitioners.interface import Partitioner
from spark_kafka_sink.producer.partitioners.key_hash import murmur2
from spark_kafka_sink.producer.partitioners.partitioner_table import NAMES, partitioner_of
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from tests.every import every
from tests.examples import examples
from tests.producer.clusters import cluster_of
from tests.producer.partitioners.asking import config

# A busy machine is no failure.
unhurried = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])

CLUSTER = cluster_of({"orders": 7})


def partitioner(**options: object) -> Partitioner:
    return partitioner_of(config(**options), rng=random.Random(1))


def choose(
    key: pa.Array | None = None, partition: list[int] | None = None, *, rows: int | None = None, by: Partitioner | None = None
) -> NDArray[np.int32]:
    count = rows if rows is not None else len(key) if key is not None else len(partition or ())
    columns = RecordColumns(count, key=key, partition=None if partition is None else np.array(partition, np.int32))
    chosen = (by or partitioner()).partition("orders", columns, np.full(count, 100, np.int64), CLUSTER)
    assert (chosen.dtype.name, chosen.shape) == ("int32", (count,))
    return chosen


def by_key(keys: list[bytes]) -> list[int]:
    return [(int(h) & 0x7FFFFFFF) % 7 for h in murmur2(pa.array(keys, pa.binary()))]


@pytest.mark.parametrize(
    ("partition", "text"),
    [
        (7, r"topic orders: row 2 of 3: column partition is 7, but there are 7 partitions, 0 to 6"),
        (-2, r"row 2 of 3: column partition is -2"),
    ],
)
def test_a_partition_that_does_not_exist_is_refused_with_its_row(partition: int, text: str) -> None:
    with pytest.raises(RecordError, match=text) as caught:
        choose(partition=[0, NO_PARTITION, partition])
    facts = pickle.loads(pickle.dumps(caught.value)).facts
    assert facts == {"topic": "orders", "row": 2, "partition": partition, "partition_count": 7}


def test_only_rows_without_a_key_count_for_the_sticky_partition() -> None:
    by = partitioner(batch_size=300)
    keys = pa.array([b"a", None] * 4)
    sticky = choose(keys, by=by)[1::2].tolist()
    assert sticky[0] == sticky[1] == sticky[2] != sticky[3]


@unhurried
@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.integers(0, 6))))
def test_every_row_gets_what_it_asks_for(rows: list[tuple[bytes | None, int | None]]) -> None:
    keys = [key for key, _ in rows]
    chosen = choose(pa.array(keys, pa.binary()), [NO_PARTITION if p is None else p for _, p in rows]).tolist()
    sticky = set()
    for (key, partition), got in zip(rows, chosen, strict=True):
        if partition is not None:
            assert got == partition
        elif key is not None:
            assert got == by_key([key])[0]
        else:
            sticky.add(got)
    assert len(sticky) <= 1


def test_the_partition_column_is_not_written_to() -> None:
    partition = np.array([NO_PARTITION, 3], np.int32)
    partition.flags.writeable = False
    columns = RecordColumns(2, partition=partition)
    partitioner().partition("orders", columns, np.full(2, 100, np.int64), CLUSTER)
    assert partition.tolist() == [NO_PARTITION, 3]


@every("name", NAMES)
def test_the_partition_column_comes_first_whatever_the_partitioner(name: str) -> None:
    keys = pa.array([b"a", None, b"c", b"", b"e"])
    for _ in range(5):
        assert choose(keys, [5, 0, 6, 1, 5], by=partitioner(partitioner_class=name)).tolist() == [5, 0, 6, 1, 5]
        mixed = choose(keys, [5, NO_PARTITION, 6, NO_PARTITION, 5], by=partitioner(partitioner_class=name)).tolist()
        assert mixed[::2] == [5, 6, 5]
        with pytest.raises(RecordError, match="row 1 of 5: column partition is 7"):
            choose(keys, [0, 7, 0, 0, 0], by=partitioner(partitioner_class=name))


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
def test_rows_that_name_no_partition_go_where_they_would_without_the_others(name: str) -> None:
    keys = [b"%d" % n for n in range(60)]
    alone = choose(pa.array(keys), by=partitioner(partitioner_class=name)).tolist()
    asked = [n % 7 if n % 3 else NO_PARTITION for n in range(60)]
    together = choose(pa.array(keys), asked, by=partitioner(partitioner_class=name)).tolist()
    assert together == [n % 7 if n % 3 else alone[n] for n in range(60)]


@every("name", [None, *NAMES])
def test_no_rows_have_no_partitions(name: str | None) -> None:
    by = partitioner() if name is None else partitioner(partitioner_class=name)
    assert choose(rows=0, by=by).tolist() == []
    assert choose(pa.array([], pa.binary()), [], rows=0, by=by).tolist() == []


@every("name", [None, *NAMES])
def test_a_topic_that_is_not_known_is_a_wrong_call(name: str | None) -> None:
    by = partitioner() if name is None else partitioner(partitioner_class=name)
    with pytest.raises(UsageError, match="topic other: wait for its metadata"):
        by.partition("other", RecordColumns(1), np.array([1], np.int64), CLUSTER)
