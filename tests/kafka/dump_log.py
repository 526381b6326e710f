"""Reads a partition's log from a broker's folder with another project's reader, to judge loss, duplicates and order."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.kafka import java
from tests.kafka.brokers import Brokers
from tests.kafka.embedded import EmbeddedKafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text
    from kafka.record.memory_records import MemoryRecords

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class DumpedRecord(NamedTuple):
    """A record of the log. timestamp: in ms. header_keys: separated by commas."""

    offset: int
    timestamp: int
    sequence: int
    header_keys: str
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class DumpedBatch:
    """Header fields of a batch, under Kafka's names. size: in bytes, with the header. codec: its name."""

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
    """Returns the records of the data batches, in log order."""
    return [record for batch in batches if not batch.control for record in batch.records]


def dump_log(cluster: Brokers, broker_id: int, topic: str, partition: int = 0, *, deadline_s: float = 120.0) -> list[DumpedBatch]:
    """Returns all batches of the broker's replica, control batches too, oldest first. The broker may be running or dead.

    kafka-python reads the files of embedded brokers, so their tests need no Java.
    """
    folder = cluster.log_dir(broker_id) / f"{topic}-{partition}"
    segments = sorted(folder.glob("*.log"))
    if not segments:
        raise FileNotFoundError(f"broker {broker_id} has no log of {topic}-{partition}: {folder}")
    if isinstance(cluster, EmbeddedKafka):
        return [batch for segment in segments for batch in read_file(segment)]
    return dump_files(segments, deadline_s=deadline_s)


def dump_files(segments: list[Path], *, deadline_s: float = 120.0) -> list[DumpedBatch]:
    """Reads files with Kafka's DumpLogSegments. It prints text, so keys and values must be UTF-8."""
    files = ",".join(map(str, segments))
    printed = java.run(
        "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files, timeout_s=deadline_s
    )
    return list(parse(printed.encode()))


# DumpLogSegments


_BATCH = re.compile(
    rb"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) producerId: (-?\d+) "
    rb"producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) isControl: (\w+) deleteHorizonMs: \S+ "
    rb"position: \d+ \w+: (-?\d+) size: (\d+) magic: (\d+) compresscodec: (\w+) crc: \d+ isvalid: (\w+)\n"
)
_RECORD = re.compile(
    rb"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) "
    rb"headerKeys: \[(.*?)\](?= key: | payload: | ?\n| endTxn)",
    re.DOTALL,
)
_OTHER_LINE = re.compile(rb"(?:Dumping |Log starting offset: |Found \d+ invalid bytes).*\n|\n")
_REST_OF_LINE = re.compile(rb".*\n")


def parse(printed: bytes) -> Iterator[DumpedBatch]:
    """Converts the output of DumpLogSegments to batches. Raises ValueError for an unknown line."""
    position = 0
    batch: DumpedBatch | None = None
    while position < len(printed):
        if (found := _BATCH.match(printed, position)) is not None:
            if batch is not None:
                yield batch
            batch, position = _batch(found), found.end()
        elif batch is not None and (found := _RECORD.match(printed, position)) is not None:
            record, position = _record(found, printed, batch.control)
            batch.records.append(record)
        elif (found := _OTHER_LINE.match(printed, position)) is not None:
            position = found.end()
        else:
            raise ValueError(f"DumpLogSegments printed what is not known here: {printed[position : position + 300]!r}")
    if batch is not None:
        yield batch


def _batch(found: re.Match[bytes]) -> DumpedBatch:
    return DumpedBatch(
        base_offset=int(found[1]),
        last_offset=int(found[2]),
        count=int(found[3]),
        base_sequence=int(found[4]),
        last_sequence=int(found[5]),
        producer_id=int(found[6]),
        producer_epoch=int(found[7]),
        leader_epoch=int(found[8]),
        transactional=found[9] == b"true",
        control=found[10] == b"true",
        timestamp=int(found[11]),
        size=int(found[12]),
        magic=int(found[13]),
        codec=found[14].decode().lower(),
        valid=found[15] == b"true",
    )


def _record(found: re.Match[bytes], printed: bytes, control: bool) -> tuple[DumpedRecord, int]:
    """Returns a record and the start of the next line. Keys and values are cut by size, because they may hold separators."""
    offset, timestamp, key_size, value_size, sequence = (int(found[group]) for group in range(1, 6))
    key = value = None
    position = found.end()
    if not control:
        key, position = _sized(b" key: ", key_size, printed, position)
        value, position = _sized(b" payload: ", value_size, printed, position)
    end = _REST_OF_LINE.match(printed, position)
    if end is None or (not control and printed[position : end.end()].strip()):
        raise ValueError(f"the record at offset {offset} has a key or value that is not UTF-8: DumpLogSegments cannot show it")
    return DumpedRecord(offset, timestamp, sequence, found[6].decode(), key, value), end.end()


def _sized(label: bytes, size: int, printed: bytes, position: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, position
    start = position + len(label)
    if printed[position:start] != label:
        raise ValueError(f"DumpLogSegments printed {printed[position : position + 100]!r} where{label.decode()}was due")
    return printed[start : start + size], start + size


# kafka-python


def read_file(segment: Path) -> Iterator[DumpedBatch]:
    """Reads a log file with kafka-python. Raises ValueError if the file does not end with a whole batch."""
    records = MemoryRecords(segment.read_bytes())
    while (batch := records.next_batch()) is not None:
        yield _read_batch(batch)
    if records.valid_bytes() != records.size_in_bytes():
        raise ValueError(f"{segment} has {records.size_in_bytes()} bytes, of which {records.valid_bytes()} are whole batches")


def _read_batch(batch: Any) -> DumpedBatch:
    valid = batch.validate_crc()
    return DumpedBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.records_count,
        base_sequence=batch.base_sequence,
        last_sequence=batch.last_sequence,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        leader_epoch=batch.leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control_batch,
        timestamp=batch.max_timestamp,
        size=batch.size_in_bytes,
        magic=batch.magic,
        codec=CODECS[batch.compression_type],
        valid=valid,
        records=[_read_record(batch, record) for record in batch],
    )


def _read_record(batch: Any, record: Any) -> DumpedRecord:
    sequence = batch.base_sequence if batch.base_sequence < 0 else batch.base_sequence + record.offset - batch.base_offset
    header_keys = ",".join(key for key, _ in record.headers)
    control = batch.is_control_batch  # whose key and value are the marker's type and version
    return DumpedRecord(
        record.offset,
        record.timestamp,
        sequence,
        header_keys,
        None if control else record.key,
        None if control else record.value,
    )
