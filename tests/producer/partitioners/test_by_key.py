"""What becomes of rows without a key, under each partitioner that looks at keys."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.partitioners.interface import Partitioner
from spark_kafka_sink.producer.partitioners.partitioner_table import fnv1a_absolute, fnv1a_positive, partitioner_of
from tests.every import every
from tests.producer.partitioners.asking import ask, available, config

COUNT = 1000


def named(name: str) -> Partitioner:
    return partitioner_of(config(partitioner_class=name), rng=random.Random(1))


def partitions_of(name: str, key: bytes | None) -> set[int]:
    """Where 60 rows with this key go: 30 next to rows with another key, 30 by themselves."""
    by = named(name)
    among_others = ask(by, pa.array([b"other", key] * 30, pa.binary()), available(COUNT))[1::2]
    return {*among_others, *ask(by, pa.array([key] * 30, pa.binary()), available(COUNT))}


# Of 60 rows some two go to the same of 1000 partitions.
@every(
    "name, null, empty",
    [
        ("consistent", "one", "one"),
        ("consistent_random", "together", "together"),
        ("murmur2", "one", "one"),
        ("murmur2_random", "together", "one"),
        ("fnv1a", "one", "one"),
        ("fnv1a_random", "together", "one"),
        ("random", "together", "anywhere"),
        ("sarama", "anywhere", "one"),
        ("sarama_reference", "anywhere", "one"),
    ],
)
def test_rows_without_a_key(name: str, null: str, empty: str) -> None:
    for key, where in ((None, null), (b"", empty)):
        chosen = partitions_of(name, key)
        if where == "anywhere":
            assert len(chosen) > 40
        else:
            assert len(chosen) == 1
            again = {tuple(partitions_of_seed(name, key, seed)) for seed in range(4)}
            assert len(again) == (1 if where == "one" else 4)


def partitions_of_seed(name: str, key: bytes | None, seed: int) -> set[int]:
    by = partitioner_of(config(partitioner_class=name), rng=random.Random(seed))
    return set(ask(by, pa.array([key] * 3, pa.binary()), available(COUNT)))


@every("name", ["consistent", "murmur2", "fnv1a", "sarama"])
@every("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_the_type_of_the_column_makes_no_difference(name: str, kind: pa.DataType) -> None:
    keys = ["", "a", "ü", "a longer key of thirty-odd bytes", *map(str, range(100))]
    expected = ask(named(name), pa.array([key.encode() for key in keys]), available(7))
    assert ask(named(name), pa.array(["not", *keys, "these"], kind).slice(1, len(keys)), available(7)) == expected


@pytest.mark.parametrize("name", ["random", "sarama"])
def test_a_random_partition_has_a_leader(name: str) -> None:
    keys = pa.array([b"k" if name == "random" else None] * 200, pa.binary())
    assert set(ask(named(name), keys, available(5, 0, 3))) == {1, 2, 4}
    assert set(ask(named(name), keys, available(3, 0, 1, 2))) == {0, 1, 2}


def test_a_hash_stays_where_it_is_when_its_partition_has_no_leader() -> None:
    keys = pa.array([b"%d" % n for n in range(50)])
    assert ask(named("consistent"), keys, available(5, 1, 2)) == ask(named("consistent"), keys, available(5))


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_bytes_behind_a_null_do_not_count(name: str) -> None:
    keys = pa.array([b"a", b"hidden", b"c"])
    hidden = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(bytes([0b101])), *keys.buffers()[1:]])
    assert hidden.to_pylist() == [b"a", None, b"c"]
    expected = ask(named(name), pa.array([b"a", b"", b"c"]), available(COUNT))
    assert ask(named(name), hidden, available(COUNT)) == expected


def test_the_hash_that_has_no_absolute_value_is_2_to_the_31(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = np.array([0x80000000, 0xFFFFFFFF, 5], np.uint32)
    monkeypatch.setattr("spark_kafka_sink.producer.partitioners.partitioner_table.fnv1a", lambda keys, length: hashes)
    assert fnv1a_absolute(pa.array([])).tolist() == [2**31, 1, 5]
    assert fnv1a_positive(pa.array([])).tolist() == [0, 2**31 - 1, 5]
