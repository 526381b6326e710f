"""Java's `Utils.murmur2` for a whole column of keys: the hash that decides a keyed record's partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.producer.partitioners.key_hash import Hashes, KeyHash, hash_keys

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF
# What a hash is multiplied with after its tail, by length modulo 4 (1: there is no tail).
_TAIL_FACTORS = np.array([1, _M, _M, _M], np.uint32)


def murmur2(keys: pa.Array) -> NDArray[np.int32]:
    """Java's 32-bit hash of each key, shape (len(keys),). Keys and nulls: see `hash_keys`."""
    return hash_keys(keys, _MURMUR2).view(np.int32)


def to_positive(hashes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Java's `Utils.toPositive`: the sign bit cleared, which is not the absolute value."""
    return hashes & np.int32(0x7FFFFFFF)


def _begin(lengths: NDArray[Any], hashes: Hashes) -> None:
    np.bitwise_xor(lengths.astype(np.uint32), np.uint32(_SEED), out=hashes)


def _step(hashes: Hashes, words: NDArray[Any], word: Hashes, scratch: Hashes) -> None:
    np.multiply(words, np.uint32(_M), out=word)
    np.right_shift(word, np.uint32(_R), out=scratch)
    np.bitwise_xor(word, scratch, out=word)
    np.multiply(word, np.uint32(_M), out=word)
    np.multiply(hashes, np.uint32(_M), out=hashes)
    np.bitwise_xor(hashes, word, out=hashes)


def _finish(hashes: Hashes, tails: Any, remainders: Any) -> None:
    hashes ^= tails
    hashes *= _TAIL_FACTORS[remainders]
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_M)
    hashes ^= hashes >> np.uint32(15)


def _rest(words: bytes, value: int) -> int:
    mixed = np.frombuffer(words, "<u4") * np.uint32(_M)
    mixed = (mixed ^ (mixed >> np.uint32(_R))) * np.uint32(_M)
    for word in mixed.tolist():
        value = (value * _M & _MASK) ^ word
    return value


_MURMUR2 = KeyHash(_begin, _step, _finish, _rest)
