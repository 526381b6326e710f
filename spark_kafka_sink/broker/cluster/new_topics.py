"""Checks of new topics: names, counts and replicas (Kafka's ReplicationControlManager). All functions are pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage, TopicState
from spark_kafka_sink.protocol.error_codes import ErrorCode

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION with Kafka's text (`Topic.validate`)."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_collision(name: str, others: Iterable[str]) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for names such as `a.b` and `a_b`, which have the same metric names."""
    metric_name = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == metric_name:
            text = f"Topic '{name}' collides with existing topic: {other}"
            raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


MAX_PARTITIONS = 10_000  # in one request; Kafka has the same limit (MAX_PARTITIONS_PER_BATCH)
DEFAULT = -1

Replicas: TypeAlias = Sequence[int]
"""Broker ids, the preferred leader first."""
Assignments: TypeAlias = Sequence[tuple[int, Replicas]]
"""The partitions of a new topic with their replicas, as a client sent them."""


def check_amount(partitions: int) -> None:
    """Checks the number of partitions that one request would create. Raises POLICY_VIOLATION."""
    if partitions > MAX_PARTITIONS:
        raise ApiException(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def check_counts(partitions: int, replication_factor: int) -> None:
    """Checks the counts of a new topic, where -1 is the default."""
    if replication_factor == 0 or replication_factor < DEFAULT:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if partitions == 0 or partitions < DEFAULT:
        raise ApiException(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")


def check_given_counts(partitions: int, replication_factor: int) -> None:
    """Checks the counts of a new topic for a release that has no defaults for clients."""
    if partitions == DEFAULT:
        raise ApiException(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor == DEFAULT:
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")


def check_no_counts(partitions: int, replication_factor: int) -> None:
    """Checks that no counts are given together with assigned replicas."""
    for name, value in (("replication factor", replication_factor), ("numPartitions", partitions)):
        if value != DEFAULT:
            text = f"A manual partition assignment was specified, but {name} was not set to -1."
            raise ApiException(ErrorCode.INVALID_REQUEST, text)


def check_growth(topic: TopicState, count: int, assignments: Sequence[Replicas] | None) -> None:
    """Checks that a topic can have `count` partitions. `assignments`: the replicas of each new one."""
    there = len(topic.partitions)
    if count == there:
        raise ApiException(ErrorCode.INVALID_PARTITIONS, f"Topic already has {there} partition(s).")
    if count < there:
        text = f"The topic {topic.name} currently has {there} partition(s); {count} would not be an increase."
        raise ApiException(ErrorCode.INVALID_PARTITIONS, text)
    if assignments is not None and len(assignments) != count - there:
        given = f"only {len(assignments)} assignment(s) were specified."
        _refuse(f"Attempted to add {count - there} additional partition(s), but {given}")


def placed(brokers: tuple[int, ...], partitions: int, replicas: int, *, first: int = 0, begin: int = 0) -> list[tuple[int, ...]]:
    """Returns replicas for partitions `begin` to `partitions` - 1. Leaders rotate over the brokers."""
    count = len(brokers)
    return [tuple(brokers[(first + index + step) % count] for step in range(replicas)) for index in range(begin, partitions)]


def placed_replicas(
    image: MetadataImage, partitions: int, replicas: int, *, begin: int = 0, failure: str = ""
) -> list[tuple[int, ...]]:
    """Returns the replicas of partitions `begin` to `partitions` - 1. `failure`: the start of the error message."""
    check_amount(partitions - begin)
    up, registered = image.up(), len(image.brokers)
    if replicas > registered or not up:
        text = (
            f"The target replication factor of {replicas} cannot be reached because only {registered} broker(s) are registered."
        )
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, failure + text)
    # Each topic starts at another broker, so that topics with one partition are spread too. Brokers that are down get replicas
    # only if there are not enough running ones (StripedReplicaPlacer).
    running = placed(up, partitions, min(replicas, len(up)), first=len(image.topics), begin=begin)
    down = tuple(sorted(set(image.brokers) - set(up)))[: max(replicas - len(up), 0)]
    return [(*replicas_of_one, *down) for replicas_of_one in running]


def assigned_replicas(image: MetadataImage, assignments: Assignments) -> list[tuple[int, ...]]:
    """Returns the replicas of all partitions of a new topic, in order."""
    found: dict[int, tuple[int, ...]] = {}
    factor = None
    for partition, replicas in assignments:
        if partition in found:
            _refuse(f"Found multiple manual partition assignments for partition {partition}")
        found[partition] = checked(image, partition, replicas, factor)
        factor = len(replicas)
    if sorted(found) != list(range(len(found))):
        _refuse("partitions should be a consecutive 0-based integer sequence")
    return [found[partition] for partition in range(len(found))]


def checked(image: MetadataImage, partition: int, replicas: Replicas, factor: int | None) -> tuple[int, ...]:
    """Checks the replicas of one partition. `factor`: the number of replicas of the previous ones
    (`validateManualPartitionAssignment`).
    """
    if not replicas:
        _refuse("The manual partition assignment includes an empty replica list.")
    for before, node in zip([None, *sorted(replicas)], sorted(replicas), strict=False):
        if node not in image.brokers:
            _refuse(f"The manual partition assignment includes broker {node}, but no such broker is registered.")
        if node == before:
            _refuse(f"The manual partition assignment includes the broker {node} more than once.")
    if factor is not None and len(replicas) != factor:
        _refuse(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if not set(replicas) & set(image.up()):
        _refuse(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )
    return tuple(replicas)


def _refuse(text: str) -> NoReturn:
    raise ApiException(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
