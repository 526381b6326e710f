"""What a DataFrame should have become in Kafka against what a topic holds: both as multisets of rows, compared by Spark."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as t

from jobs.read_back import RETENTION, TopicRange, records

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
HEADERS_DDL = "array<struct<key:string,value:binary>>"
HASHED_DDL = "hash bigint, key binary, partition int"


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
    """Compares the records that `expected` stands for with all in `topic`, by a hash of 64 bits of each and its partition.

    `expected` has the columns of the sink; its rows are those of this topic alone. Not compared is what cannot be foreseen: the
    timestamps when some are null, the partition of a record that has neither a key nor a partition.
    """
    left_out = _left_out(expected, columns)
    compared = tuple(column for column in COLUMNS if column in columns and column not in left_out)
    everywhere = _has_no_null(expected, "partition")
    wanted = _expected_records(expected)
    sides = [
        _side(_with_partitions(_hashed(wanted, compared), topic.partitions), compared, 1, 0, everywhere),
        _side(_hashed(records(expected.sparkSession, topic), compared), compared, 0, 1, everywhere),
    ]
    counted = sides[0].unionAll(sides[1]).groupBy("hash", "partition").agg(F.sum("e").alias("e"), F.sum("f").alias("f"))
    totals = counted.agg(*_totals()).first()
    assert totals is not None  # an aggregate without groups always has its one row
    counts = {name: int(totals[name] or 0) for name in ("expected", "found", "missing", "duplicated", "unexpected")}
    differ = counts["missing"] or counts["duplicated"] or counts["unexpected"]
    shown = _examples(counted, [wanted, records(expected.sparkSession, topic)], compared, examples) if differ and examples else ()
    return Comparison(compared, left_out, **counts, removed=topic.removed, examples=tuple(shown))


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


# The columns that are compared by their hash. A null adds nothing to Spark's hash, so a flag marks each null.
_HASHED: Mapping[str, Callable[[], list[Column]]] = {
    "key": lambda: [F.col("key"), F.col("key").isNull()],
    "value": lambda: [F.col("value"), F.col("value").isNull()],
    "headers": lambda: [F.transform("headers", lambda h: F.struct(h.key, h.value, h.value.isNull())), F.size("headers")],
    "timestamp": lambda: [F.col("timestamp"), F.col("timestamp").isNull()],
}


def _hashed(frame: DataFrame, compared: Sequence[str]) -> DataFrame:
    """Returns hash, key and partition of each record: a few bytes for Python and for the shuffle, instead of all."""
    parts = [part for name, columns in _HASHED.items() if name in compared for part in columns()]
    return frame.select(F.xxhash64(F.lit(0), *parts).alias("hash"), "key", "partition")


def _side(frame: DataFrame, compared: Sequence[str], e: int, f: int, partition_everywhere: bool) -> DataFrame:
    partition = F.col("partition")
    if "partition" not in compared:
        partition = _null("int")
    elif not partition_everywhere:
        partition = F.when(F.col("key").isNotNull(), partition)
    return frame.select("hash", partition.alias("partition"), F.lit(e).alias("e"), F.lit(f).alias("f"))


def _examples(counted: DataFrame, sides: Sequence[DataFrame], compared: Sequence[str], most: int) -> Iterator[str]:
    """Yields what differs, with the first record of each hash. Reads both sides again."""
    differing = counted.where("e != f").limit(most).collect()
    hashes = F.xxhash64(F.lit(0), *(part for name, columns in _HASHED.items() if name in compared for part in columns()))
    names = [name for name in COLUMNS if name in compared and name != "partition"]
    whole: dict[int, Row] = {}
    for side in sides:
        records_of = side.select(hashes.alias("hash"), *names).where(F.col("hash").isin([row["hash"] for row in differing]))
        for row in records_of.dropDuplicates(["hash"]).collect():
            whole.setdefault(row["hash"], row)
    for row in differing:
        shown = whole[row["hash"]].asDict() | {"partition": row["partition"]}
        yield f"expected {row['e']}, found {row['f']}: {', '.join(f'{name}={_short(shown[name])}' for name in compared)}"


def _expected_records(frame: DataFrame) -> DataFrame:
    """Returns the rows as Kafka should have them: binary key and value, milliseconds. The partition is null unless given."""
    there = set(frame.columns)
    given = {
        "partition": F.col("partition").cast("int") if "partition" in there else _null("int"),
        "timestamp": _milliseconds(frame) if "timestamp" in there else _null("bigint"),
        "key": F.col("key").cast("binary") if "key" in there else _null("binary"),
        "value": F.col("value").cast("binary"),
        "headers": _headers(F.col("headers").cast(HEADERS_DDL) if "headers" in there else _null(HEADERS_DDL)),
    }
    return frame.select(*(column.alias(name) for name, column in given.items()))


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


def _with_partitions(hashed: DataFrame, partitions: int) -> DataFrame:
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
