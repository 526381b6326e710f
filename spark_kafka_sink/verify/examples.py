"""Examples of what differs, for people: whole records, or the fields in which two records with one key differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from spark_kafka_sink.verify.canonical import WHOLE
from spark_kafka_sink.verify.compared_records import COLUMNS, UNDECODABLE, Side, record_hash


def examples_of(counted: DataFrame, sides: Sequence[Side], compared: Sequence[str], most: int) -> Iterator[str]:
    """Yields what differs, with the first record of each hash. Reads both sides again.

    A missing and an unexpected record with the same key are one example, which names the fields that differ.

    Args:
        counted: hash, key_hash, partition, e (times expected) and f (times found).
        sides: what was expected, and what was found.
        compared: the columns that were compared.
        most: maximum number of examples.
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
        if name in self.json_parts and value is not None and not value.startswith(UNDECODABLE):
            return _cut(json.dumps(_for_people(json.loads(value)[WHOLE]), ensure_ascii=False))
        if name in self.json_parts and value is not None:
            return _cut(value)
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
