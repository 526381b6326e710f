"""The records of golden/records-4.1.0.txt: the bytes that Java wrote, and the same records built here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_kafka_sink.protocol.internal_topics import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    TRANSACTION_LOG_KEY,
    TRANSACTION_LOG_VALUE,
    VersionedRecord,
)
from tests.protocol.filling import Filling

_LINES = Path(__file__).with_name("golden").joinpath("records-4.1.0.txt").read_text().splitlines()

RECORDS: dict[str, VersionedRecord[Any]] = {
    record.message.__name__: record
    for record in (
        OFFSET_COMMIT_KEY,
        OFFSET_COMMIT_VALUE,
        GROUP_METADATA_KEY,
        GROUP_METADATA_VALUE,
        TRANSACTION_LOG_KEY,
        TRANSACTION_LOG_VALUE,
    )
}


@dataclass(frozen=True)
class GoldenRecord:
    """One line of the file."""

    name: str
    version: int
    filling: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}-{self.filling}"

    @property
    def record(self) -> VersionedRecord[Any]:
        return RECORDS[self.name]

    def body(self) -> Any:
        return Filling(self.filling == "full").message(self.record.message, self.version)


def golden_records() -> list[GoldenRecord]:
    """The keys and values of the internal topics."""
    split = (line.split() for line in _LINES)
    return [
        GoldenRecord(name, int(version), filling, bytes.fromhex(data))
        for name, version, kind, filling, data in split
        if kind == "record"
    ]


def golden_markers() -> dict[tuple[str, str], bytes]:
    """(ABORT or COMMIT, key or value) to the bytes; the coordinator's epoch is 70,000."""
    split = (line.split() for line in _LINES)
    return {(name, part): bytes.fromhex(data) for name, _, kind, part, data in split if kind == "marker"}
