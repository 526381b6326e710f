"""What a DataFrame should have become in Kafka against what a topic holds: both as multisets of rows, compared by Spark."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as t

from jobs.read_back import RETENTION, TopicRange, records

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
HEADERS_DDL = "array<struct<key:string,value:binary>>"
EXPECTED_DDL = f"partition int, timestamp bigint, key binary, value binary, headers {HEADERS_DDL}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts of records. missing: expected and not there often enough; duplicated: there more often than expected;
    unexpected: there and not expected at all. removed: gone from the topic before it was read, by retention or by request.
    left_out: column to why it was not compared. examples: rows that differ.
    """

    columns: tuple[str, ...]
    left_out: dict[str, str]
    expected: int
    found: int
    missing: int
    duplicated: int
    unexpected: int
    removed: int
    examples: tuple[str, ...]

    def same(self, *, allow_duplicates: bool = False) -> bool:
        return not (self.missing or self.unexpected or (self.duplicated and not allow_duplicates))

    def __str__(self) -> str:
        lines = [
            f"compared: {', '.join(self.columns)}",
            *(f"not compared: {column}, because {reason}" for column, reason in self.left_out.items()),
            f"{self.expected:,} records expected, {self.found:,} found: {self.missing:,} missing, {self.duplicated:,} duplicated,"
            f" {self.unexpected:,} unexpected",
            *([f"{self.removed:,} offsets are no longer there; {RETENTION}"] if self.removed else []),
            *self.examples,
        ]
        return "\n".join(lines)


def compare(expected: DataFrame, topic: TopicRange, *, columns: Sequence[str] = COLUMNS, examples: int = 5) -> Comparison:
    """Compare the records that `expected` stands for with all in `topic`.

    `expected` has the columns of the sink; its rows are those of this topic alone. Not compared is what cannot be foreseen: the
    timestamps when some are null, the partition of a record that has neither a key nor a partition.
    """
    left_out = _left_out(expected, columns)
    compared = tuple(column for column in COLUMNS if column in columns and column not in left_out)
    everywhere = _has_no_null(expected, "partition")
    sides = [
        _side(_expected_records(expected, topic.partitions), compared, 1, 0, everywhere),
        _side(records(expected.sparkSession, topic), compared, 0, 1, everywhere),
    ]
    counted = sides[0].unionAll(sides[1]).groupBy(*compared).agg(F.sum("e").alias("e"), F.sum("f").alias("f"))
    totals = counted.agg(*_totals()).first()
    assert totals is not None  # an aggregate without groups always has its one row
    counts = {name: int(totals[name] or 0) for name in ("expected", "found", "missing", "duplicated", "unexpected")}
    differ = counts["missing"] or counts["duplicated"] or counts["unexpected"]
    shown = counted.where("e != f").limit(examples).collect() if differ and examples else []
    return Comparison(
        compared, left_out, **counts, removed=topic.removed, examples=tuple(_example(row, compared) for row in shown)
    )


def _left_out(expected: DataFrame, columns: Sequence[str]) -> dict[str, str]:
    if "timestamp" not in columns:
        return {}
    if "timestamp" not in expected.columns:
        return {"timestamp": "the source has none, so each record has the time at which it was written"}
    if not _has_no_null(expected, "timestamp"):
        return {"timestamp": "some rows of the source have none, so their records have the time at which they were written"}
    return {}


def _has_no_null(frame: DataFrame, column: str) -> bool:
    return column in frame.columns and frame.where(F.col(column).isNull()).isEmpty()


def _totals() -> list[Column]:
    e, f = F.col("e"), F.col("f")
    none = F.lit(0)
    return [
        F.sum(e).alias("expected"),
        F.sum(f).alias("found"),
        F.sum(F.greatest(e - f, none)).alias("missing"),
        F.sum(F.when(e > 0, F.greatest(f - e, none)).otherwise(none)).alias("duplicated"),
        F.sum(F.when(e == 0, f).otherwise(none)).alias("unexpected"),
    ]


def _side(frame: DataFrame, compared: Sequence[str], e: int, f: int, partition_everywhere: bool) -> DataFrame:
    foreseen = frame
    if "partition" in compared and not partition_everywhere:
        foreseen = frame.withColumn("partition", F.when(F.col("key").isNotNull(), F.col("partition")))
    return foreseen.select(*compared, F.lit(e).alias("e"), F.lit(f).alias("f"))


def _expected_records(frame: DataFrame, partitions: int) -> DataFrame:
    """The rows as Kafka should have them: binary key and value, milliseconds, and a partition wherever there is a key."""
    there = set(frame.columns)
    given = {
        "partition": F.col("partition").cast("int") if "partition" in there else _null("int"),
        "timestamp": _milliseconds(frame) if "timestamp" in there else _null("bigint"),
        "key": F.col("key").cast("binary") if "key" in there else _null("binary"),
        "value": F.col("value").cast("binary"),
        "headers": _headers(F.col("headers").cast(HEADERS_DDL) if "headers" in there else _null(HEADERS_DDL)),
    }
    rows = frame.select(*(column.alias(name) for name, column in given.items()))
    return rows.mapInArrow(_with_partitions(partitions), EXPECTED_DDL)


def _null(kind: str) -> Column:
    return F.lit(None).cast(kind)


def _milliseconds(frame: DataFrame) -> Column:
    timestamp = F.col("timestamp")
    # unix_millis rounds down, as the sink does.
    return (
        F.unix_millis(timestamp) if isinstance(frame.schema["timestamp"].dataType, t.TimestampType) else timestamp.cast("bigint")
    )


def _headers(headers: Column) -> Column:
    return F.coalesce(headers, F.array().cast(HEADERS_DDL))


def _with_partitions(partitions: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known: dict[bytes, int] = {}
        for batch in batches:
            given = batch.column("partition")
            hashed = _partitions(batch.column("key"), partitions, known)
            yield batch.set_column(batch.schema.get_field_index("partition"), "partition", pc.coalesce(given, hashed))

    return fill


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


def _example(row: Row, compared: Sequence[str]) -> str:
    fields = ", ".join(f"{column}={_short(row[column])}" for column in compared)
    return f"expected {row['e']}, found {row['f']}: {fields}"


def _short(value: object) -> str:
    text = repr(bytes(value) if isinstance(value, bytearray) else value)
    return text if len(text) <= 100 else f"{text[:100]}... ({len(text)} characters)"


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
    """Where Java's default partitioner sends a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
