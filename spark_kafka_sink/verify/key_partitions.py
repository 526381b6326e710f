"""The partition that a key decides, by code that is not the sink's: it judges what the sink did."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

HASHED_DDL = "hash bigint, key_hash bigint, key binary, partition int"


def with_partitions(hashed: DataFrame, partitions: int) -> DataFrame:
    """Fills the partition in wherever there is a key and none was given."""

    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known: dict[bytes, int] = {}
        for batch in batches:
            given = batch.column("partition")
            by_key = _partitions(batch.column("key"), partitions, known)
            yield batch.set_column(batch.schema.get_field_index("partition"), "partition", pc.coalesce(given, by_key))

    return hashed.mapInArrow(fill, HASHED_DDL)


def _partitions(keys: pa.Array, partitions: int, known: dict[bytes, int]) -> pa.Array:
    """The partition of each key, null for none; each different key is hashed once a batch at most."""
    encoded = keys.dictionary_encode()
    different = encoded.dictionary.to_pylist()
    if len(known) > 200_000:
        known.clear()
    for key in different:
        if key not in known:
            known[key] = partition_of(key, partitions)
    return pa.array([known[key] for key in different], pa.int32()).take(encoded.indices)


_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key as an unsigned 32-bit number, word by word as `Utils.murmur2` has it.

    It is slow, and on purpose not the code that the sink uses.
    """
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
    """Returns the partition to which Java's default partitioner sends a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
