"""DescribeLogDirs: how large the partitions are of which this broker has a replica (Kafka's ReplicaManager.describeLogDirs)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import TopicState
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

IN_MEMORY: Final = ":memory:"
"""The folder of a broker that has none."""


def handle_describe_log_dirs(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DescribeLogDirsRequest)
    asked = None if body.topics is None else {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    described = (_topic(services, topic, asked) for topic in services.cluster.image.topics.values())
    folder = services.config.data_dir
    total, usable = _volume(folder)
    result = DescribeLogDirsResult(
        ErrorCode.NONE,
        IN_MEMORY if folder is None else str(folder.absolute()),
        tuple(topic for topic in described if topic.partitions),
        total,
        usable,
    )
    return DescribeLogDirsResponse(results=(result,))


def _topic(services: BrokerServices, topic: TopicState, asked: set[tuple[str, int]] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(topic.name, tuple(_partitions(services, topic, asked)))


def _partitions(
    services: BrokerServices, topic: TopicState, asked: set[tuple[str, int]] | None
) -> Iterator[DescribeLogDirsPartition]:
    for partition in topic.partitions:
        if services.node_id in partition.replicas and (asked is None or (topic.name, partition.index) in asked):
            size = services.replica_manager.log_size(topic.name, partition.index)
            if size is not None:
                yield DescribeLogDirsPartition(partition.index, size, offset_lag=0)


def _volume(folder: Path | None) -> tuple[int, int]:
    """The size of the folder's volume and what is left of it; -1 in memory."""
    if folder is None:
        return -1, -1
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free
