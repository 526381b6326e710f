"""A hash over a column gives what another implementation gives for each key alone."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.producer.partitioners.key_hash import _ROWS_PER_PASS, crc32, fnv1a, murmur2, to_positive
from tests.every import every
from tests.examples import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

# A busy machine is no failure.
unhurried = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


any_key = st.binary(max_size=300)
binary_types = st.sampled_from([pa.binary(), pa.large_binary()])
string_types = st.sampled_from([pa.string(), pa.large_string()])


def python_fnv1a(key: bytes) -> int:
    """Word for word as the authors of FNV write it."""
    value = 0x811C9DC5
    for octet in key:
        value = (value ^ octet) * 0x01000193 % 2**32
    return value


@dataclass(frozen=True)
class Hash:
    """Ours over a column, and a witness over one key."""

    ours: Callable[[pa.Array], NDArray[Any]]
    witness: Callable[[bytes], int]

    def of(self, keys: pa.Array) -> list[int]:
        hashes = self.ours(keys)
        assert hashes.shape == (len(keys),)
        values: list[int] = hashes.view(np.uint32).tolist()
        return values

    def witnessed(self, keys: list[bytes]) -> list[int]:
        return [self.witness(key) & 0xFFFFFFFF for key in keys]


HASHES = {
    "murmur2": Hash(murmur2, kafka_python_murmur2),
    "crc32": Hash(crc32, zlib.crc32),
    "fnv1a": Hash(fnv1a, python_fnv1a),
}
each_hash = pytest.mark.parametrize("hash_", HASHES.values(), ids=HASHES)


def column(lengths: NDArray[Any], seed: int = 0) -> pa.Array:
    """Random bytes of these lengths, in a data buffer that ends with the last key."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.random.default_rng(seed).integers(0, 256, int(offsets[-1]), np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@each_hash
@unhurried
@given(st.integers(0, 300), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_keys_of_one_length_hash_as_the_witness_says(hash_: Hash, length: int, rows: int, seed: int) -> None:
    keys = column(np.full(rows, length), seed)
    assert hash_.of(keys) == hash_.witnessed(keys.to_pylist())


@each_hash
@every("rows", [_ROWS_PER_PASS - 1, _ROWS_PER_PASS, _ROWS_PER_PASS + 1, 2 * _ROWS_PER_PASS + 5])
@every("shortest", [6, 7])
def test_more_rows_than_one_pass_takes(hash_: Hash, rows: int, shortest: int) -> None:
    keys = column(np.random.default_rng(rows).integers(shortest, 8, rows))
    assert hash_.of(keys) == hash_.witnessed(keys.to_pylist())


@each_hash
@unhurried
@given(st.lists(any_key, max_size=60), st.data(), binary_types)
def test_a_slice_hashes_its_own_rows(hash_: Hash, keys: list[bytes], data: st.DataObject, kind: pa.DataType) -> None:
    start = data.draw(st.integers(0, len(keys)))
    length = data.draw(st.integers(0, len(keys) - start))
    sliced = pa.array(keys, kind).slice(start, length)
    assert hash_.of(sliced) == hash_.witnessed(keys[start : start + length])


@each_hash
@unhurried
@given(st.lists(st.text(max_size=80)), string_types)
def test_strings_hash_as_their_utf8(hash_: Hash, keys: list[str], kind: pa.DataType) -> None:
    assert hash_.of(pa.array(keys, kind)) == hash_.witnessed([key.encode() for key in keys])


@each_hash
@unhurried
@given(st.lists(st.none() | any_key))
def test_nulls_do_not_disturb_their_neighbours(hash_: Hash, keys: list[bytes | None]) -> None:
    hashes = hash_.of(pa.array(keys, pa.binary()))
    present = [hash_value for hash_value, key in zip(hashes, keys, strict=True) if key is not None]
    assert present == hash_.witnessed([key for key in keys if key is not None])


@each_hash
def test_a_column_without_any_memory_hashes_as_empty_keys(hash_: Hash) -> None:
    assert hash_.of(pa.nulls(2, pa.binary()).fill_null(b"")) == hash_.witnessed([b""]) * 2
    assert len(hash_.of(pa.nulls(3, pa.large_string()))) == 3


@each_hash
def test_another_type_is_refused_by_the_columns_name(hash_: Hash) -> None:
    with pytest.raises(SchemaError, match=r"column key is int64.*cast it to binary"):
        hash_.of(pa.array([1]))


def test_to_positive_clears_the_sign_bit() -> None:
    assert to_positive(np.array([-1, -(2**31), 0, 5], np.int32)).tolist() == [2**31 - 1, 0, 0, 5]
