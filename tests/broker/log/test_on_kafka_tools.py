"""Kafka's own DumpLogSegments reads every file of a log and finds nothing wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_cleaner import compact
from spark_kafka_sink.broker.log.log_types import LogConfig, TimestampType
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.records.compression import Codec
from tests.broker.log.logs import NOW, batch, open_log, opened
from tests.kafka import java
from tests.kafka.dump_log import DumpedBatch, parse, records_of

pytestmark = pytest.mark.java

CODECS = [None, *Codec]


def fill(log: UnifiedLog, codec: Codec | None) -> None:
    """Twenty batches that are no transaction's, then a committed, an aborted and an open transaction."""
    log.update_config(LogConfig(segment_bytes=900, index_interval_bytes=120, compression_type=codec))
    for i in range(20):
        fields = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 3 * i} if i % 2 else {}
        if i % 2:
            fields["base_sequence"] = 3 * (i // 2)
        log.append_as_leader(batch(b"one %d" % i, b"two", b"three" * 20, timestamp=NOW + i, **fields), i // 8)
    for producer, commit in ((6, True), (7, False), (8, None)):
        data = batch(b"t", producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_as_leader(data, 3)
        if commit is not None:
            log.append_control(EndTransactionMarker(producer, 0, commit, 11), 3)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one log for each codec; one that was killed and recovered, one stamped by the broker, one compacted."""
    root = tmp_path_factory.mktemp("logs")
    for codec in CODECS:
        with opened(root / f"{codec.name if codec is not None else 'producer'}-0") as log:
            fill(log, codec)
    killed = open_log(root / "killed-0")
    fill(killed, Codec.LZ4)
    killed.release()
    torn = max((root / "killed-0").glob("*.log"))
    torn.write_bytes(torn.read_bytes()[:-5])
    open_log(root / "killed-0").close()
    with opened(root / "stamped-0", LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)) as log:
        log.append_as_leader(batch(b"a", b"b", timestamp=1), 0)
    config = LogConfig(compact=True, delete=False, compression_type=Codec.LZ4)
    with opened(root / "compacted-0", config) as log:
        for i in range(5):
            log.append_as_leader(batch(b"%d" % i, b"other" if i else None), 0)
        log.roll()
        compact(log, NOW)
    return root


@pytest.fixture(scope="module")
def dumped(root: Path) -> dict[str, str]:
    """What the tool printed of each file, all in one run; keys are `folder/file`."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(path for path in root.glob("*/*") if path.suffix in kinds and path.stat().st_size)
    printed = java.run(
        "kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--files",
        ",".join(map(str, files)),
        timeout_s=120,
    )
    parts = re.split(r"^Dumping (\S+)\n", printed, flags=re.MULTILINE)
    assert parts[0].strip() == ""
    return {"/".join(Path(name).parts[-2:]): text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def batches(dumped: dict[str, str], name: str) -> list[DumpedBatch]:
    texts = [text for file, text in dumped.items() if file.startswith(f"{name}-0/") and file.endswith(".log")]
    return [one for text in texts for one in parse(text.encode())]


def test_every_file_was_read_without_a_complaint(root: Path, dumped: dict[str, str]) -> None:
    kinds = {Path(name).suffix for name in dumped}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    for name, text in dumped.items():
        assert not re.search(r"mismatch|invalid bytes|Error|Exception|out of order|corrupt", text, re.IGNORECASE), (name, text)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_valid_and_hold_what_was_written(dumped: dict[str, str], codec: Codec | None) -> None:
    read = batches(dumped, codec.name if codec is not None else "producer")
    assert all(one.valid and one.magic == 2 for one in read)
    assert {one.codec for one in read if not one.control} == {(codec or Codec.NONE).name.lower()}
    rows = records_of(read)
    assert [row.value for row in rows[:6]] == [b"one 0", b"two", b"three" * 20, b"one 1", b"two", b"three" * 20]
    assert [row.offset for row in rows] == [*range(61), 62, 64]
    assert [one.control for one in read[-5:]] == [False, True, False, True, False]
    assert {one.leader_epoch for one in read} == {0, 1, 2, 3}


def test_an_aborted_transaction_is_in_the_index_and_the_open_one_in_the_snapshot(dumped: dict[str, str]) -> None:
    (aborted,) = [text for name, text in dumped.items() if name.startswith("producer-0/") and name.endswith(".txnindex")]
    assert "producerId: 7 firstOffset: 62 lastOffset: 63 lastStableOffset: 64" in aborted
    snapshots = {name: text for name, text in dumped.items() if name.startswith("producer-0/") and "snapshot" in name}
    last = snapshots[max(snapshots)]
    assert "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[64]" in last
    assert "producerId: 5 producerEpoch: 1" in last
    assert "coordinatorEpoch: 11" in last


def test_what_a_kill_left_is_valid(dumped: dict[str, str]) -> None:
    rows = records_of(batches(dumped, "killed"))
    assert [row.offset for row in rows] == [*range(61), 62]


def test_the_brokers_stamp_is_seen(dumped: dict[str, str]) -> None:
    assert {row.timestamp for row in records_of(batches(dumped, "stamped"))} == {NOW}


def test_a_compacted_log_is_valid(dumped: dict[str, str]) -> None:
    read = batches(dumped, "compacted")
    assert [(row.offset, row.value) for row in records_of(read)] == [(8, b"4"), (9, b"other")]
