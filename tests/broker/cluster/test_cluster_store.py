"""The file of a cluster's state: whole, read back as it was, and refused where it is not ours."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.cluster_store import FILE, StoredCluster, read, write
from spark_kafka_sink.broker.cluster.metadata_image import NO_LEADER, PartitionState, TopicState

CONFIGS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)


@st.composite
def stored_clusters(draw: st.DrawFn) -> StoredCluster:
    def partition(index: int) -> PartitionState:
        replicas = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True))
        return PartitionState(index, tuple(replicas), (), NO_LEADER, draw(st.integers(0, 99)))

    def topic(name: str) -> TopicState:
        count = draw(st.integers(1, 3))
        return TopicState(name, draw(st.uuids()), tuple(map(partition, range(count))), draw(CONFIGS))

    names = draw(st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=3))
    brokers = draw(st.dictionaries(st.integers(-1, 9), CONFIGS, max_size=3))
    return StoredCluster(draw(st.text(max_size=22)), tuple(map(topic, names)), brokers, draw(st.integers(0, 2**62)))


@given(stored_clusters())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_was_written_is_read_back(tmp_path: Path, stored: StoredCluster) -> None:
    write(tmp_path, stored)

    assert read(tmp_path) == stored


def test_there_is_none_yet(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_one_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"format": 99}))

    with pytest.raises(ValueError, match="has format 99, which is not supported; it must be 1"):
        read(tmp_path)


def test_a_draft_that_was_torn_is_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path, StoredCluster("kept", (TopicState("t", uuid.uuid4(), ()),)))
    (tmp_path / f"{FILE}.tmp").write_text('{"format": 1, "clus')
    found = read(tmp_path)

    assert found is not None
    assert found.cluster_id == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, f"{FILE}.tmp"]
