"""Counts what two sides do not have in common, both as multisets of hashes, by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_kafka_sink.verify.compared_records import COLUMNS, Side, hashed_records
from spark_kafka_sink.verify.examples import examples_of
from spark_kafka_sink.verify.key_partitions import with_partitions
from spark_kafka_sink.verify.read_back import RETENTION, TopicRange


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
    """Compares records, by a hash of 64 bits of each and its partition.

    Args:
        expected: the records that there should be. The partition is null where the source does not name one.
        found: the records in the topic.
        topic: the topic and what was read of it.
        left_out: columns that are not compared, and why.
        columns: the columns to compare.
        examples: maximum number of examples of what differs.
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
