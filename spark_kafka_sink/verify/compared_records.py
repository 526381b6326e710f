"""The records of one side of a comparison, and the hash that stands for a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
UNDECODABLE = "cannot be decoded: "
"""The start of the text that a key or a value has instead of its JSON if it cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Side:
    """Records with the columns partition, timestamp in ms, key, value and headers, and those of a topic with their offset.

    Keys and values are bytes, or texts of `canonical_json`.
    """

    records: DataFrame
    json_parts: frozenset[str] = frozenset()


# The columns that are compared by their hash. A null adds nothing to Spark's hash, so a flag marks each null.
_HASHED: Mapping[str, Callable[[], list[Column]]] = {
    "key": lambda: [F.col("key"), F.col("key").isNull()],
    "value": lambda: [F.col("value"), F.col("value").isNull()],
    "headers": lambda: [F.transform("headers", lambda h: F.struct(h.key, h.value, h.value.isNull())), F.size("headers")],
    "timestamp": lambda: [F.col("timestamp"), F.col("timestamp").isNull()],
}


def hashed_records(frame: DataFrame, compared: Sequence[str]) -> DataFrame:
    """Returns hashes, key and partition of each record: a few bytes for Python and for the shuffle, instead of all."""
    key_hash = F.when(F.col("key").isNotNull(), F.xxhash64(F.col("key"))) if "key" in compared else F.lit(None).cast("bigint")
    return frame.select(record_hash(compared).alias("hash"), key_hash.alias("key_hash"), F.col("key").cast("binary"), "partition")


def record_hash(compared: Sequence[str]) -> Column:
    """Returns the hash of 64 bits of a record's compared columns."""
    return F.xxhash64(F.lit(0), *(part for name, columns in _HASHED.items() if name in compared for part in columns()))
