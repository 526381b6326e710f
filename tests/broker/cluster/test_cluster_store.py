"""The file of a cluster's state: whole, read back as it was, and refused where it is not ours."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from spark_kafka_sink.broker.cluster.cluster_store import FILE, StoredCluster, read, write
from spark_kafka_sink.broker.cluster.metadata_image import TopicState


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
