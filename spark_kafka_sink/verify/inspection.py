"""Reads a topic without a source: whether each record can be decoded, and with which schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.verify.decoding import SchemaDecoder
from spark_kafka_sink.verify.read_back import RETENTION, TopicRange, read
from spark_kafka_sink.verify.record_errors import UndecodableError
from spark_kafka_sink.verify.schema_ids import SchemaKey, found_schema


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A key or a value that cannot be decoded."""

    partition: int
    offset: int
    part: str
    problem: str

    def __str__(self) -> str:
        return f"partition {self.partition}, offset {self.offset}: the {self.part} cannot be decoded: {self.problem}"


@dataclass(slots=True)
class Inspection:
    """Counts of a topic's records.

    Attributes:
        records: how many records there are.
        nulls: how many have no key or no value, by part.
        schemas: how many records have each schema, by part and id.
        bad: how many keys and values cannot be decoded.
        examples: the first of these.
        removed: how many offsets there were before the first that is left.
    """

    records: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    schemas: dict[str, Counter[SchemaKey]] = field(default_factory=dict)
    kinds: dict[SchemaKey, str] = field(default_factory=dict)
    bad: int = 0
    examples: list[BadRecord] = field(default_factory=list)
    removed: int = 0

    def __str__(self) -> str:
        lines = [f"{self.records:,} records"]
        for part, counts in self.schemas.items():
            lines += [
                f"{part}: {count:,} with schema {key} ({self.kinds[key]})" for key, count in sorted(counts.items(), key=str)
            ]
            lines += [f"{part}: {self.nulls[part]:,} null"] if self.nulls[part] else []
        lines += [f"{self.removed:,} offsets are no longer there; {RETENTION}"] if self.removed else []
        lines += [f"{self.bad:,} cannot be decoded"] if self.bad else []
        return "\n".join([*lines, *map(str, self.examples)])

    def as_json(self) -> dict[str, Any]:
        """Returns the same for programs."""
        return {
            "records": self.records,
            "removed": self.removed,
            "nulls": {part: self.nulls[part] for part in self.schemas},
            "schemas": {part: {str(key): count for key, count in counts.items()} for part, counts in self.schemas.items()},
            "bad": self.bad,
            "examples": [asdict(one) for one in self.examples],
        }


def inspected(
    topic: TopicRange,
    formats: Mapping[str, str | None],
    client: RegistryClient,
    examples: int,
    advance: Callable[[int], object],
) -> Inspection:
    """Decodes each record of a topic in this process. Raises RegistryError and ReadBackError.

    Args:
        topic: the topic.
        formats: the parts to decode, key or value, and the kind that their schemas must have; None for any.
        client: the registry's client.
        examples: maximum number of bad records to name.
        advance: called with the number of records that were decoded since the call before.
    """
    found = Inspection(schemas={part: Counter() for part in formats}, removed=topic.removed)
    decoders = {
        part: SchemaDecoder(topic.topic, part, lambda key: found_schema(key, client), kind) for part, kind in formats.items()
    }
    for batch in read(topic):
        found.records += batch.num_rows
        headers = batch.column("headers").to_pylist()
        for part, decoder in decoders.items():
            for row, data in enumerate(batch.column(part).to_pylist()):
                if data is None:
                    found.nulls[part] += 1
                    continue
                pairs = [(one["key"], one["value"]) for one in headers[row]]
                try:
                    decoder(data, pairs)
                    schema = decoder.schema(data, pairs)
                except UndecodableError as error:
                    found.bad += 1
                    if len(found.examples) < examples:
                        place = batch.column("partition")[row].as_py(), batch.column("offset")[row].as_py()
                        found.examples.append(BadRecord(*place, part, str(error)))
                    continue
                found.schemas[part][schema.key] += 1
                found.kinds[schema.key] = "" if schema.schema is None else schema.schema.kind
        advance(batch.num_rows)
    return found
