"""Counts what two sides do not have in common, both as multisets of hashes, by Spark, and shows examples of what differs."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from spark_kafka_sink.verify.canonical import WHOLE
from spark_kafka_sink.verify.read_back import RETENTION, TopicRange

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


def compare_records(
    expected: Side,
    found: Side,
    topic: TopicRange,
    *,
    left_out: Mapping[str, str],
    columns: Sequence[str] = COLUMNS,
    examples: int = 5,
) -> Comparison:
    """Compares records, by a hash of 64 bits of each and its partition, which is null where the source does not name one.

    left_out: columns that are not compared, and why. columns: those to compare. examples: the most that are shown.
    """
    compared = tuple(column for column in COLUMNS if column in columns and column not in left_out)
    wanted = expected.records
    everywhere = "key" in expected.json_parts or has_no_null(wanted, "partition")
    hashed = hashed_records(wanted, compared)
    if "partition" in compared and "key" not in expected.json_parts:
        hashed = with_partitions(hashed, topic.partitions)
    there = hashed_records(found.records, compared)
    sides = [_side(hashed, compared, 1, 0, everywhere), _side(there, compared, 0, 1, everywhere)]
    counted = (
        sides[0].unionAll(sides[1]).groupBy("hash", "key_hash", "partition").agg(F.sum("e").alias("e"), F.sum("f").alias("f"))
    )
    totals = counted.agg(*_totals()).first()
    assert totals is not None  # an aggregate without groups always has its one row
    counts = {name: int(totals[name] or 0) for name in ("expected", "found", "missing", "duplicated", "unexpected")}
    differ = counts["missing"] or counts["duplicated"] or counts["unexpected"]
    shown = examples_of(counted, [expected, found], compared, examples) if differ and examples else ()
    return Comparison(compared, dict(left_out), **counts, removed=topic.removed, examples=tuple(shown))


def left_out_of(expected: DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Returns the columns that cannot be compared, with the reason."""
    if "timestamp" not in columns:
        return {}
    if "timestamp" not in expected.columns:
        return {"timestamp": "the source has none, so each record has the time at which it was written"}
    if not has_no_null(expected, "timestamp"):
        return {"timestamp": "some rows of the source have none, so their records have the time at which they were written"}
    return {}


def has_no_null(frame: DataFrame, column: str) -> bool:
    """Returns whether a frame has a column, and a value in each row of it."""
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
    partition = F.col("partition")
    if "partition" not in compared:
        partition = F.lit(None).cast("int")
    elif not partition_everywhere:
        partition = F.when(F.col("key").isNotNull(), partition)
    return frame.select("hash", "key_hash", partition.alias("partition"), F.lit(e).alias("e"), F.lit(f).alias("f"))


# Examples, for people: whole records, or the fields in which two records with one key differ


def examples_of(counted: DataFrame, sides: Sequence[Side], compared: Sequence[str], most: int) -> Iterator[str]:
    """Yields at most `most` records that differ, with the first record of each hash. Reads both sides again.

    A missing and an unexpected record with the same key are one example, which names the fields that differ. counted: has hash,
    key_hash, partition, e (times expected) and f (times found).
    """
    rows = counted.where("e > f").limit(most).collect()
    keys = sorted({row["key_hash"] for row in rows if row["key_hash"] is not None})
    if keys:
        rows += counted.where("f > e").where(F.col("key_hash").isin(keys)).limit(10 * most).collect()
    if len(rows) < most:
        rows += counted.where("f > e").limit(most).collect()
    differing = list({(row["hash"], row["partition"]): row for row in rows}.values())
    whole, places = _whole_records(sides, differing, compared)
    json_parts = sides[0].json_parts
    records_of = [
        _Example(
            row,
            whole[row["hash"]] | {"partition": row["partition"]},
            json_parts,
            compared,
            places.get((row["hash"], row["partition"]), "") if row["f"] else "",
        )
        for row in differing
    ]
    yield from islice(_described(records_of), most)


def _whole_records(
    sides: Sequence[Side], rows: Sequence[Row], compared: Sequence[str]
) -> tuple[dict[int, dict[str, Any]], dict[tuple[int, int | None], str]]:
    """Returns records by their hash, and where the topic has them, by hash and partition and by hash alone."""
    names = [name for name in COLUMNS if name in compared or name == "partition"]
    whole: dict[int, dict[str, Any]] = {}
    places: dict[tuple[int, int | None], str] = {}
    for side in sides:
        with_offset = [*names, "offset"] if "offset" in side.records.columns else names
        hashed = side.records.select(record_hash(compared).alias("hash"), *with_offset).where(
            F.col("hash").isin([row["hash"] for row in rows])
        )
        for row in hashed.dropDuplicates(["hash", "partition"]).collect():
            whole.setdefault(row["hash"], row.asDict())
            if "offset" in with_offset:
                place = f"partition {row['partition']}, offset {row['offset']}: "
                places.setdefault((row["hash"], row["partition"]), place)
                places.setdefault((row["hash"], None), place)
    return whole, places


@dataclass(frozen=True, slots=True)
class _Example:
    """A record that is expected and found a different number of times."""

    counts: Row
    record: Mapping[str, Any]
    json_parts: frozenset[str]
    compared: Sequence[str]
    place: str

    def __str__(self) -> str:
        parts = ", ".join(f"{name}={self.shown(name)}" for name in self.compared)
        return f"{self.place}expected {self.counts['e']}, found {self.counts['f']}: {parts}"

    def shown(self, name: str) -> str:
        """Returns a part of the record as text."""
        value = self.record[name]
        if name in self.json_parts and value is not None:
            return _cut(json.dumps(_for_people(json.loads(value)[WHOLE]), ensure_ascii=False) if _is_json(value) else value)
        return _cut(repr(bytes(value) if isinstance(value, bytearray) else value))

    def differences(self, other: _Example) -> list[str]:
        """Returns what differs in another record, field by field."""
        texts = []
        for name in self.compared:
            mine, others = self.record[name], other.record[name]
            if mine == others:
                continue
            if name in self.json_parts and _is_json(mine) and _is_json(others):
                fields = list(_differing("", json.loads(mine)[WHOLE], json.loads(others)[WHOLE]))
                texts += [
                    f"{name}{'.' if path else ''}{path}: expected {_cut(one)}, found {_cut(two)}" for path, one, two in fields
                ]
            else:
                texts.append(f"{name}: expected {self.shown(name)}, found {other.shown(name)}")
        return texts


def _is_json(text: str | None) -> bool:
    return text is not None and not text.startswith(UNDECODABLE)


def _described(examples: Sequence[_Example]) -> Iterator[str]:
    missing = [one for one in examples if (one.counts["e"], one.counts["f"]) == (1, 0) and one.counts["key_hash"] is not None]
    unexpected = [one for one in examples if (one.counts["e"], one.counts["f"]) == (0, 1)]
    alone = [one for one in examples if one not in missing and one not in unexpected]
    for one in missing:
        same_key = [other for other in unexpected if other.counts["key_hash"] == one.counts["key_hash"]]
        if not same_key:
            alone.append(one)
            continue
        other = min(same_key, key=lambda each: len(one.differences(each)))
        unexpected.remove(other)
        yield f"{other.place}key={one.shown('key')} differs: {'; '.join(one.differences(other))}"
    yield from map(str, [*alone, *unexpected])


def _cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}... ({len(text)} characters)"


# Fields of JSON


def _differing(path: str, expected: Any, found: Any) -> Iterator[tuple[str, str, str]]:
    expected, found = _for_people(expected), _for_people(found)
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in [*expected, *(name for name in found if name not in expected)]:
            if name not in expected or name not in found:
                yield f"{path}.{name}".lstrip("."), _value(expected, name), _value(found, name)
            else:
                yield from _differing(f"{path}.{name}", expected[name], found[name])
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differing(f"{path}[{place}]", one, other)
    elif expected != found:
        yield path.lstrip("."), json.dumps(expected, ensure_ascii=False), json.dumps(found, ensure_ascii=False)


def _value(values: Mapping[str, Any], name: str) -> str:
    return json.dumps(values[name], ensure_ascii=False) if name in values else "nothing"


def _for_people(value: Any) -> Any:
    """Returns a map's entries as an object again."""
    if isinstance(value, dict):
        return {name: _for_people(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(one, dict) and list(one) == ["key", "value"] for one in value):
        return {str(one["key"]): _for_people(one["value"]) for one in value}
    return [_for_people(one) for one in value]


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
