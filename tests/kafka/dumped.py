"""Batches and records as a log's file has them, whoever read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class DumpedRecord(NamedTuple):
    """`timestamp` in ms. `header_keys` with commas between."""

    offset: int
    timestamp: int
    sequence: int
    header_keys: str
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class DumpedBatch:
    """A batch's header fields, under Kafka's names. `size` in bytes with the header; `codec` by name."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    timestamp: int
    size: int
    magic: int
    codec: str
    valid: bool
    records: list[DumpedRecord] = field(default_factory=list)


def records_of(batches: list[DumpedBatch]) -> list[DumpedRecord]:
    """The records of the data batches, in the log's order."""
    return [record for batch in batches if not batch.control for record in batch.records]
