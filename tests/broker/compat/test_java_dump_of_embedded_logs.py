"""Kafka's DumpLogSegments reads what clients have left in the folder of an embedded broker, committed offsets too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.compat import confluent
from tests.broker.compat.confluent import TIMEOUT_S
from tests.kafka import java

pytestmark = pytest.mark.java

TOPIC = "t"
GROUP = "g"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a broker that had an idempotent writer, a reader in a group, and transactions with and without an end."""
    folder = tmp_path_factory.mktemp("logs")
    with EmbeddedBroker(config=BrokerConfig(data_dir=folder, offsets_topic_num_partitions=1)) as broker:
        servers = broker.bootstrap_servers
        broker.create_topic(TOPIC, 2)
        confluent.write(servers, TOPIC, *map(str, range(100)), enable_idempotence=True, compression_type="zstd")
        reader = confluent.consumer(servers, group_id=GROUP)
        reader.subscribe([TOPIC])
        confluent.polled(reader, 100)
        reader.commit(asynchronous=False)
        _transactions(servers, reader.consumer_group_metadata())
        reader.close()
    return folder


def _transactions(servers: str, group: Any) -> None:
    writer = confluent.producer(servers, transactional_id="x")
    writer.init_transactions(TIMEOUT_S)
    for offset, end in ((7, writer.commit_transaction), (8, writer.abort_transaction), (9, None)):
        writer.begin_transaction()
        writer.produce(TOPIC, str(offset), partition=0)
        writer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], group, TIMEOUT_S)
        assert writer.flush(TIMEOUT_S) == 0
        if end is not None:
            end(TIMEOUT_S)


def dumped(*options: str, files: list[Path]) -> str:
    return java.run("kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)), timeout_s=60)


def test_committed_offsets_and_groups_are_decoded(folder: Path) -> None:
    printed = dumped("--deep-iteration", "--offsets-decoder", files=[folder / "__consumer_offsets-0" / f"{0:020}.log"])
    found = [
        (json.loads(key), json.loads(value))
        for key, value in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", printed, re.MULTILINE)
    ]
    offsets = [
        (key["data"]["partition"], value["data"]["offset"])
        for key, value in found
        if key["type"] == "1" and (key["data"]["group"], key["data"]["topic"]) == (GROUP, TOPIC)
    ]
    assert sorted(offsets[:2]) == [(0, 50), (1, 50)]
    assert offsets[2:] == [(0, 7), (0, 8), (0, 9)]  # and a marker behind each, but the last
    groups = [value["data"] for key, value in found if key == {"type": "2", "data": {"group": GROUP}}]
    (member,) = next(group["members"] for group in groups if group["members"])
    assert member["subscription"]["topics"] == [TOPIC]
    assert member["assignment"]["assignedPartitions"] == [{"topic": TOPIC, "partitions": [0, 1]}]
    assert groups[-1]["members"] == []
