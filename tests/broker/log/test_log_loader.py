"""What a crash leaves of a log is a log: every batch up to the first that is not whole, its producers and its indexes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from tests.broker.log.logs import NOW, batch, headers_in, open_log, opened, stored, values

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1)


def fill(log: UnifiedLog, count: int) -> None:
    """A batch with one value and one producer each, and every fifth a transaction's end."""
    for i in range(count):
        if i % 5 == 4:
            log.append_control(EndTransactionMarker(1 + i // 5 % 2, 0, i % 2 == 0, i), i // 7)
        else:
            fields = {"producer_id": 1 + i // 5 % 2, "producer_epoch": 0, "base_sequence": i // 10 * 4 + i % 5}
            log.append_as_leader(batch(b"%d" % i, timestamp=NOW + i, transactional=True, **fields), i // 7)


def state(log: UnifiedLog) -> object:
    producers = sorted(log.active_producers())
    epochs = [log.end_offset_for_epoch(epoch) for epoch in range(6)]
    aborted = log.cleanable(NOW).aborted
    return log.log_end_offset, log.last_stable_offset, producers, epochs, aborted, values(stored(log))


@pytest.fixture(scope="module")
def killed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a log with 30 batches in several segments, left without a clean shutdown."""
    folder = tmp_path_factory.mktemp("killed") / "topic-0"
    log = open_log(folder, CONFIG)
    fill(log, 30)
    log.release()
    return folder


def sound_state(batches: int) -> object:
    """Of a log that has just these."""
    log = open_log(None, CONFIG)
    fill(log, batches)
    return state(log)


@settings(max_examples=50, deadline=None)
@given(share=st.floats(0, 1), kind=st.sampled_from(["cut", "spoiled", "zeros", "garbage"]), data=st.data())
def test_damage_anywhere_ends_the_log_there(
    killed_folder: Path, tmp_path_factory: pytest.TempPathFactory, share: float, kind: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "topic-0"
    shutil.copytree(killed_folder, folder)
    segments = sorted(folder.glob("*.log"))
    segment = data.draw(st.sampled_from(segments))
    content = segment.read_bytes()
    at = min(int(len(content) * share), len(content) - 1)
    if kind == "spoiled":  # offset, length and leader epoch are not under the checksum
        at = max(at, max(position for position, _ in headers_in(content) if position <= at) + 16)
    spoiled = {
        "cut": content[:at],
        "spoiled": content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :],
        "zeros": content[:at] + bytes(len(content) - at),
        "garbage": content[:at] + b"\xab" * 50,
    }[kind]
    segment.write_bytes(spoiled)
    with opened(folder, CONFIG) as log:
        kept = log.log_end_offset
        whole, end = _whole(spoiled)
        if end == len(spoiled) and segment != segments[-1]:
            # Nothing in the segment tells that more was in it. As in Kafka the log goes on behind the gap.
            assert kept == 30
        else:
            assert kept == int(segment.name[:20]) + whole
        if kept < 30 or spoiled == content:
            assert state(log) == sound_state(kept)
        log.append_as_leader(batch(b"more"), 9)
        assert log.log_end_offset == kept + 1
    with opened(folder, CONFIG) as log:
        assert log.log_end_offset == kept + 1


def _whole(content: bytes) -> tuple[int, int]:
    """How many batches can be read, and where the last one ends."""
    count = end = 0
    for position, header in headers_in(content):
        if crc32c(content[position + 21 : position + header.size]) != header.crc:
            break
        count, end = count + 1, position + header.size
    return count, end


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "short"])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_or_spoiled_indexes_and_snapshots_are_made_again(on_disk: Path, suffix: str, damage: str, clean: bool) -> None:
    log = open_log(on_disk, CONFIG)
    fill(log, 30)
    before = state(log)
    log.close() if clean else log.release()
    for path in on_disk.glob(f"*{suffix}"):
        content = path.read_bytes()
        spoiled = {"empty": b"", "garbage": b"\xee" * len(content), "short": content[:-1]}
        path.unlink() if damage == "gone" else path.write_bytes(spoiled[damage])
    if suffix == ".txnindex" and clean and damage in ("gone", "empty"):
        # As in Kafka a missing file is an index without entries. Nothing can tell.
        return
    with opened(on_disk, CONFIG) as log:
        assert state(log) == before
        assert log.fetch_offset_by_timestamp(NOW + 17) == (NOW + 17, 17, 2)


def test_a_clean_shutdown_is_trusted_only_once(on_disk: Path) -> None:
    with opened(on_disk, CONFIG) as log:
        fill(log, 6)
    assert (on_disk / ".kafka_cleanshutdown").exists()
    log = open_log(on_disk, CONFIG)
    assert not (on_disk / ".kafka_cleanshutdown").exists()
    log.release()


def test_the_log_start_is_kept(on_disk: Path) -> None:
    log = open_log(on_disk, CONFIG)
    fill(log, 30)
    log.delete_records_before(17)
    log.release()
    with opened(on_disk, CONFIG) as log:
        assert log.log_start_offset == 17
        assert log.fetch_offset_by_timestamp(-2) == (-1, 17, 2)
    with opened(on_disk, CONFIG) as log:
        assert log.log_start_offset == 17
