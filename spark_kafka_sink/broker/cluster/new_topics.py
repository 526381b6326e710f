"""Checks of what is to be created, before anything is (Kafka's ReplicationControlManager). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.leadership import placed
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.protocol.error_codes import ErrorCode

MAX_PARTITIONS = 10_000  # in one request; Kafka's limit as well (MAX_PARTITIONS_PER_BATCH)

Assignments = Mapping[int, Sequence[int]]


def replicas_of_new(
    image: MetadataImage, partitions: int, replication_factor: int, assignments: Assignments | None, *, begin: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of the partitions from `begin` on. `assignments` count from 0, whatever `begin` is."""
    if assignments:
        return _assigned(image, assignments, len(assignments))
    if partitions - begin > MAX_PARTITIONS:
        text = f"Excessively large number of partitions per request: {partitions}"
        raise ApiException(ErrorCode.POLICY_VIOLATION, text)
    return _placed(image, partitions, replication_factor, begin)


def check_counts(partitions: int, replication_factor: int) -> None:
    if partitions < 1:
        text = f"Number of partitions was set to an invalid non-positive value: {partitions}"
        raise ApiException(ErrorCode.INVALID_PARTITIONS, text)
    if replication_factor < 1:
        text = f"Replication factor must be larger than 0, or -1 to use the default value: {replication_factor}"
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _placed(image: MetadataImage, partitions: int, replicas: int, begin: int) -> list[tuple[int, ...]]:
    up = image.up()
    if replicas > len(up):
        text = (
            "Unable to replicate the partition "
            f"{replicas} time(s): The target replication factor of {replicas} cannot be reached because only {len(up)} "
            "broker(s) are registered."
        )
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    # Each topic begins at another broker, so that topics of one partition are spread too.
    return placed(up, partitions, replicas, first=len(image.topics), begin=begin)


def _assigned(image: MetadataImage, assignments: Assignments, count: int) -> list[tuple[int, ...]]:
    if sorted(assignments) != list(range(count)):
        _refuse("partitions should be a consecutive 0-based integer sequence")
    every = [tuple(assignments[index]) for index in range(count)]
    for replicas in every:
        if not replicas or len(set(replicas)) != len(replicas):
            _refuse(f"The manual partition assignment {list(replicas)} is empty or has a broker twice")
        unknown = [node for node in replicas if node not in image.brokers]
        if unknown:
            _refuse(f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered")
        if len(replicas) != len(every[0]):
            _refuse("The manual partition assignment includes partitions with different replication factors")
    return every


def _refuse(text: str) -> None:
    raise ApiException(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
