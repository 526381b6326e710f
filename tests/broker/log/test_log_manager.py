"""Logs come and go with their topics, follow their configs, and are looked through from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from spark_kafka_sink.records.small_batch import NewRecord, small_batch
from tests.broker.rig import Rig, batch


def eventually(holds: Callable[[], bool]) -> None:
    """What the log manager's own thread brings about."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in 10 s"
        time.sleep(0.005)


def test_a_topic_s_logs_are_there_from_its_start_to_its_end(tmp_path: Path) -> None:
    with Rig(data_dir=tmp_path) as rig:
        rig.cluster.create_topic("t", 2)
        log = rig.log("t", 1)
        log.append_as_leader(batch(b"a"), 0)
        while_there = (tmp_path / "t-1").is_dir()

        rig.cluster.delete_topic("t")

        assert while_there
        assert rig.shared.logs.get("t", 1) is None
        assert not list(tmp_path.glob("t-*"))


def test_a_topic_that_is_made_anew_begins_anew() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        rig.log("t").append_as_leader(batch(b"a"), 0)

        rig.cluster.delete_topic("t")
        rig.cluster.create_topic("t")

        assert rig.log("t").log_end_offset == 0


def test_partitions_that_are_added_get_logs_and_the_others_keep_theirs() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        rig.log("t").append_as_leader(batch(b"a"), 0)

        rig.cluster.create_partitions("t", 3)

        assert [rig.log("t", index).log_end_offset for index in range(3)] == [1, 0, 0]


def test_a_config_holds_from_its_change_on() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"max.message.bytes": "1000"})
        before = rig.log("t").config.max_message_bytes

        rig.cluster.alter_topic_configs("t", lambda _: {"max.message.bytes": "2000"})

        assert (before, rig.log("t").config.max_message_bytes) == (1000, 2000)


def test_old_segments_are_dropped_in_time() -> None:
    with Rig(log_retention_check_interval_ms=10) as rig:
        rig.cluster.create_topic("t", configs={"retention.bytes": "1"})
        log = rig.log("t")
        for _ in range(3):
            log.append_as_leader(batch(b"a"), 0)
            log.roll()
        eventually(lambda: log.log_start_offset == 2)  # what is left has its byte


def test_a_compacted_topic_keeps_the_last_of_each_key() -> None:
    with Rig(log_retention_check_interval_ms=10) as rig:
        rig.cluster.create_topic("t", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        log = rig.log("t")
        now = rig.services().wall_ms()
        for value in (b"old" * 100, b"new"):
            log.append_as_leader(small_batch([NewRecord(b"k", value, now)]), 0)
            log.roll()
        whole = log.size
        eventually(lambda: log.size < whole)
        assert log.log_end_offset == 2
