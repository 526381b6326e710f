"""Checks the keys of maps: each key at most once, because readers keep only one of its values."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.producer.partitioners.key_hash import murmur2
from spark_kafka_sink.producer.serializers.arrays import as_binary, is_text
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.records.arrow_arrays import filled_numbers

_MOST_COMPARED: Final = 64
_GOLDEN_RATIO: Final = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing


def check_keys(keys: pa.Array, starts: NDArray[np.int64]) -> None:
    """Raises BadRowError for the first map that has a key twice. Arrow has no maps with a null key.

    Hashes tell the keys of almost all columns apart, at 10 to 20 ns for each key: a tenth of the time of writing a map as JSON,
    up to a half of writing it as Avro. Keys with one hash are compared.

    Args:
        keys: the keys of all maps.
        starts: where the keys of each map begin, and where the last one's end.
    """
    lengths = np.diff(starts)
    most = int(lengths.max(initial=0))
    if most < 2:
        return
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint64) << np.uint64(32), lengths)
    if pa.types.is_dictionary(keys.type):  # its values may be there twice
        keys = keys.dictionary_decode()
    if pa.types.is_string_view(keys.type):
        keys = keys.cast(pa.string())
    hashes = _hashes(keys)
    if hashes is not None and _first_repeated(hashes | rows, most) is None:
        return
    codes = filled_numbers(keys.dictionary_encode().indices, np.int32, 0)
    twice = _first_repeated(codes.view(np.uint32) | rows, most)
    if twice is not None:
        raise BadRowError(twice, "a map has a key twice")


def _hashes(keys: pa.Array) -> NDArray[np.uint64] | None:
    """Returns a hash of 32 bits for each key; None: the type has none."""
    if is_text(keys.type):
        return murmur2(as_binary(keys)).view(np.uint32).astype(np.uint64)
    if pa.types.is_integer(keys.type):
        numbers = filled_numbers(keys, keys.type.to_pandas_dtype(), 0).astype(np.uint64)
        return numbers * _GOLDEN_RATIO >> np.uint64(32)
    return None


def _first_repeated(numbers: NDArray[np.uint64], most: int) -> int | None:
    """Returns the first row that has a number twice. numbers: the row in the upper half. most: the most that a row has."""
    if most <= _MOST_COMPARED:  # each number with those after it takes less time than sorting
        found = [numbers[step:][numbers[step:] == numbers[:-step]] for step in range(1, most)]
    else:
        numbers = np.sort(numbers)
        found = [numbers[1:][numbers[1:] == numbers[:-1]]]
    return min((int(one.min()) >> 32 for one in found if len(one)), default=None)
