"""Logs come and go with their topics, follow their configs, and are looked through from time to time."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_files import CLEAN_SHUTDOWN
from tests.broker.rig import Rig, batch


def test_a_topic_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with Rig(data_dir=tmp_path) as rig:
        (tmp_path / "t-1").write_text("in the way of a folder")
        with pytest.raises(ApiException):
            rig.cluster.create_topic("t", 2)
        assert "t" not in rig.cluster.image.topics
        assert rig.shared.logs.get("t", 0) is None
        assert not list(tmp_path.glob("t-0*"))


def test_what_a_killed_broker_had_not_deleted_goes_at_the_next_start_and_nothing_else(tmp_path: Path) -> None:
    half = tmp_path / f"t-0.{'a' * 32}-delete"
    for folder in (half, tmp_path / "what-not-to-delete"):
        folder.mkdir()
        (folder / "file").touch()

    with Rig(data_dir=tmp_path):
        left = {path.name for path in tmp_path.iterdir() if path.is_dir()}

    assert left == {"what-not-to-delete"}


def test_a_log_that_cannot_be_closed_in_order_loses_nothing_and_keeps_no_other_from_it(tmp_path: Path) -> None:
    in_the_way = tmp_path / "t-0" / "recovery-point-offset-checkpoint.tmp"
    with Rig(data_dir=tmp_path) as rig:
        rig.cluster.create_topic("t", 2)
        rig.log("t").append_as_leader(batch(b"a"), 0)
        in_the_way.mkdir()
    assert not (tmp_path / "t-0" / CLEAN_SHUTDOWN).exists()
    assert (tmp_path / "t-1" / CLEAN_SHUTDOWN).exists()
    in_the_way.rmdir()
    with Rig(data_dir=tmp_path) as again:
        assert again.log("t").log_end_offset == 1
