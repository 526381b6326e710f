"""Kafka's hash of a key, word by word as `Utils.murmur2` has it: slow, and on purpose not the code that the sink uses."""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash as an unsigned 32-bit number."""
    words = len(key) // 4
    h = _SEED ^ len(key)
    for (word,) in struct.iter_unpack("<I", key[: 4 * words]):
        k = word * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    rest = key[4 * words :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's default partitioner sends a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
