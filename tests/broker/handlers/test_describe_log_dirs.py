"""How much of which partitions lies where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_kafka_sink.broker.handlers.describe_log_dirs import handle_describe_log_dirs
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.rig import Rig, batch


def described(rig: Rig, topics: list[DescribableLogDirTopic] | None, broker: int = 1) -> Any:
    asked = rig.ask(handle_describe_log_dirs, DescribeLogDirsRequest(topics), ApiKey.DESCRIBE_LOG_DIRS, broker=broker)
    (result,) = asked.answer.results
    return result


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


def test_each_partition_has_the_size_of_its_log() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t", 2)
        rig.cluster.create_topic("other")
        data = batch(b"value")
        rig.log("t", 1).append_as_leader(data, 0)

        assert sizes(described(rig, None)) == {("t", 0): 0, ("t", 1): len(data), ("other", 0): 0}
        assert sizes(described(rig, [DescribableLogDirTopic("t", [1, 9])])) == {("t", 1): len(data)}
        assert sizes(described(rig, [])) == {}


def test_a_broker_tells_of_its_own_replicas() -> None:
    with Rig(2) as rig:
        rig.cluster.create_topic("single", assignments=[(0, [1]), (1, [2])])
        rig.cluster.create_topic("double", 1, 2)

        assert set(sizes(described(rig, None, broker=1))) == {("single", 0), ("double", 0)}
        assert set(sizes(described(rig, None, broker=2))) == {("single", 1), ("double", 0)}


def test_the_folder_is_named_with_the_room_that_is_left(tmp_path: Path) -> None:
    with Rig(data_dir=tmp_path) as rig:
        result = described(rig, None)

        assert result.log_dir == str(tmp_path)
        assert 0 < result.usable_bytes <= result.total_bytes


def test_in_memory_there_is_no_folder() -> None:
    with Rig() as rig:
        result = described(rig, None)

        assert (result.log_dir, result.total_bytes, result.usable_bytes) == (":memory:", -1, -1)
