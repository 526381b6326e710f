"""golden/batches.txt: batches that Kafka's own Java encoder made, with the records it made them from (GoldenBatches.java)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record
from tests.kafka.jars import jars
from tests.kafka.java import java

PROGRAM = Path(__file__).parent / "golden" / "GoldenBatches.java"
BATCHES = Path(__file__).parent / "golden" / "batches.txt"


@dataclass
class GoldenCase:
    name: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    records: list[Record] = field(default_factory=list)
    batches: dict[Codec, bytes] = field(default_factory=dict)

    @property
    def offsets_are_consecutive(self) -> bool:
        return [record.offset for record in self.records] == list(range(len(self.records)))


def parse_cases(text: str) -> list[GoldenCase]:
    cases: list[GoldenCase] = []
    for line in text.splitlines():
        kind, *words = line.split(" ")
        if kind == "case":
            cases.append(GoldenCase(words[0], int(words[1]), int(words[2]), int(words[3]), words[4] == "true"))
        elif kind == "record":
            cases[-1].records.append(_record(words))
        else:
            cases[-1].batches[Codec[kind.upper()]] = bytes.fromhex(words[0])
    return cases


def golden_cases() -> list[GoldenCase]:
    return parse_cases(BATCHES.read_text())


def run_java(mode: str, lines: Iterable[str] = ()) -> str:
    """What GoldenBatches prints: about two seconds, as Java compiles it first."""
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(jars() / "*"), str(PROGRAM), mode]
    done = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_with_java(batches: Iterable[bytes]) -> list[list[Record]]:
    """Each batch's records as Java's decoder sees them; it checks the CRC first."""
    read: list[list[Record]] = []
    for line in run_java("read", (batch.hex() for batch in batches)).splitlines():
        kind, *words = line.split(" ")
        if kind == "batch":
            read.append([])
        else:
            read[-1].append(_record(words))
    return read


def _record(words: list[str]) -> Record:
    headers = () if words[4] == "." else tuple(_header(pair) for pair in words[4].split(","))
    return Record(int(words[0]), int(words[1]), _bytes(words[2]), _bytes(words[3]), headers)


def _header(pair: str) -> tuple[str, bytes | None]:
    key, value = pair.split(":")
    return bytes.fromhex(key[1:]).decode(), _bytes(value)


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text[1:])
