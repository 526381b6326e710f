"""FNV-1a of 32 bits for a whole column of keys: Sarama's hash partitioners and librdkafka's `fnv1a`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.producer.partitioners.key_hash import Hashes, KeyHash, hash_keys

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193
_MASK = 0xFFFFFFFF


def fnv1a(keys: pa.Array) -> Hashes:
    """The FNV-1a of each key, shape (len(keys),). Keys and nulls: see `hash_keys`."""
    return hash_keys(keys, _FNV1A)


def _begin(lengths: NDArray[Any], hashes: Hashes) -> None:
    hashes.fill(_OFFSET)


def _step(hashes: Hashes, words: NDArray[Any], word: Hashes, scratch: Hashes) -> None:
    word[...] = words
    octets = word.view(np.uint8)
    for i in range(4):
        np.bitwise_xor(hashes, octets[i::4], out=hashes)
        np.multiply(hashes, np.uint32(_PRIME), out=hashes)


def _finish(hashes: Hashes, tails: Any, remainders: Any) -> None:
    for i in range(3):
        octet = (tails >> np.uint32(8 * i)) & np.uint32(0xFF)
        np.copyto(hashes, (hashes ^ octet) * np.uint32(_PRIME), where=remainders > i)


def _rest(words: bytes, value: int) -> int:
    for octet in words:
        value = (value ^ octet) * _PRIME & _MASK
    return value


_FNV1A = KeyHash(_begin, _step, _finish, _rest)
