"""What is checked of topics before they are created, and where their replicas are placed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.new_topics import (
    assigned_replicas,
    check_amount,
    check_collision,
    check_counts,
    check_growth,
    check_name,
    check_no_counts,
    check_topic_resource,
    checked,
    placed_replicas,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.cluster.clusters import cluster
from tests.every import every


@every("name", ["a", "A.b_c-9", "...", "-", "x" * 249])
def test_legal(name: str) -> None:
    check_name(name)


@every(
    "name, words",
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("٣", "'٣' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_illegal(name: str, words: str) -> None:
    with pytest.raises(ApiException) as refused:
        check_name(name)

    assert str(refused.value) == f"INVALID_TOPIC_EXCEPTION: Topic name is invalid: {words}"


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b", "a.b"), ("a._", "a_."), ("..x", "__x")])
def test_dots_and_underscores_collide(name: str, other: str) -> None:
    with pytest.raises(ApiException, match=f"Topic '{name}' collides with existing topic: {other}"):
        check_collision(name, ["else", other])


def test_others_do_not() -> None:
    check_collision("a.b", ["a-b", "a.c", "ab", "a.b"])


def test_configs_are_of_topics_with_a_name() -> None:
    with pytest.raises(ApiException, match=r"^INVALID_REQUEST: Default topic resources are not allowed\.$"):
        check_topic_resource("")
    with pytest.raises(ApiException, match="INVALID_TOPIC_EXCEPTION"):
        check_topic_resource("a b")


THREE = cluster(3).image


@every(
    "partitions, replicas, code",
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_that_are_none(partitions: int, replicas: int, code: ErrorCode) -> None:
    with pytest.raises(ApiException) as refused:
        check_counts(partitions, replicas)

    assert refused.value.code is code


@pytest.mark.parametrize(("partitions", "replicas"), [(1, 1), (-1, -1), (10_001, 4)])
def test_counts_that_are_some(partitions: int, replicas: int) -> None:
    check_counts(partitions, replicas)


@pytest.mark.parametrize(
    ("partitions", "replicas", "name"), [(1, -1, "numPartitions"), (-1, 1, "replication factor"), (2, 2, "replication factor")]
)
def test_who_assigns_does_not_count(partitions: int, replicas: int, name: str) -> None:
    with pytest.raises(ApiException, match=f"INVALID_REQUEST: .* {name} was not set to -1"):
        check_no_counts(partitions, replicas)


def test_no_more_than_kafka_makes_at_once() -> None:
    check_amount(10_000)
    with pytest.raises(ApiException, match="POLICY_VIOLATION: Excessively large number of partitions per request"):
        check_amount(10_001)


@every(
    "count, assignments, words",
    [
        (3, None, "INVALID_PARTITIONS: Topic already has 3 partition(s)."),
        (2, None, "INVALID_PARTITIONS: The topic t currently has 3 partition(s); 2 would not be an increase."),
        (-1, None, "INVALID_PARTITIONS: The topic t currently has 3 partition(s); -1 would not be an increase."),
        (
            5,
            [[1]],
            "INVALID_REPLICA_ASSIGNMENT: Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            4,
            [],
            "INVALID_REPLICA_ASSIGNMENT: Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
    ],
)
def test_growth_that_is_none(count: int, assignments: list[list[int]] | None, words: str) -> None:
    topic = cluster(3).create_topic("t", 3, 1)
    with pytest.raises(ApiException) as refused:
        check_growth(topic, count, assignments)

    assert str(refused.value) == words


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(ApiException) as refused:
        placed_replicas(THREE, 1, 4, failure="Unable to replicate the partition 4 time(s): ")

    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.value.message == (
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only "
        "3 broker(s) are registered."
    )


@every(
    "assignments, words",
    [
        ([(1, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(-1, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(0, [1]), (0, [2])], "Found multiple manual partition assignments for partition 0"),
        ([(0, [])], "The manual partition assignment includes an empty replica list."),
        ([(0, [9])], "The manual partition assignment includes broker 9, but no such broker is registered."),
        ([(0, [2, 1, 2])], "The manual partition assignment includes the broker 2 more than once."),
        (
            [(0, [1]), (1, [1, 2])],
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with previous "
            "partitions, which have 1 replica(s).",
        ),
    ],
)
def test_assignments_that_cannot_be(assignments: Sequence[tuple[int, Sequence[int]]], words: str) -> None:
    with pytest.raises(ApiException) as refused:
        assigned_replicas(THREE, assignments)

    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, words)


def test_replicas_on_brokers_that_are_all_down() -> None:
    known = cluster(2)
    known.broker_down(2)
    with pytest.raises(ApiException, match=r"All brokers .* partition 7 are fenced or in controlled shutdown"):
        checked(known.image, 7, [2], None)
