"""What a log takes it gives back, at the offsets it said, from a folder as from memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.log.logs import UNCOMMITTED, batch, opened, stored, values

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture(params=["memory", "files"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "topic-0" if request.param == "files" else None


def test_offsets_go_on_from_batch_to_batch(folder: Path | None) -> None:
    with opened(folder) as log:
        infos = [log.append_as_leader(batch(b"a", b"b"), 3), log.append_as_leader(batch(b"c"), 3)]
        assert [(info.base_offset, info.last_offset) for info in infos] == [(0, 1), (2, 2)]
        assert [(one.base_offset, one.leader_epoch) for one in stored(log)] == [(0, 3), (2, 3)]
        assert values(stored(log)) == [b"a", b"b", b"c"]


def test_a_read_crosses_segments(folder: Path | None) -> None:
    with opened(folder, SMALL) as log:
        for i in range(40):
            log.append_as_leader(batch(b"%d" % i * 20), 0)
        assert values(stored(log)) == [b"%d" % i * 20 for i in range(40)]
        assert values(stored(log, start=17)) == [b"%d" % i * 20 for i in range(17, 40)]


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_that_is_not_there_is_out_of_range(folder: Path | None, offset: int) -> None:
    with opened(folder) as log:
        log.append_as_leader(batch(b"a", b"b"), 0)
        with pytest.raises(ApiException) as raised:
            log.read(offset, 1000, UNCOMMITTED)
        assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(2, 1000, UNCOMMITTED).records == []
