"""Topics go by name or by id, with their logs."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.delete_topics import handle_delete_topics
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.topics import DeleteTopicsRequest, DeleteTopicState
from spark_kafka_sink.protocol.wire_types import ZERO_UUID
from tests.broker.rig import Rig

SOME_ID = uuid.uuid4()


def deleted(rig: Rig, *asked: tuple[str | None, uuid.UUID]) -> list[tuple[str | None, uuid.UUID, int, str | None]]:
    body = DeleteTopicsRequest([DeleteTopicState(*state) for state in asked])
    results: Any = rig.ask(handle_delete_topics, body, ApiKey.DELETE_TOPICS, 6).answer.responses
    return [(result.name, result.topic_id, result.error_code, result.error_message) for result in results]


@pytest.mark.parametrize("version", range(1, 6))
def test_by_name_in_older_versions(version: int) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        body = DeleteTopicsRequest(topic_names=["t", "none"])
        results = rig.ask(handle_delete_topics, body, ApiKey.DELETE_TOPICS, version).answer.responses

        assert [(result.name, result.error_code) for result in results] == [
            ("t", ErrorCode.NONE),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert not rig.cluster.image.topics


def test_by_name_and_by_id_it_is_gone_with_its_logs() -> None:
    with Rig() as rig:
        first, second = rig.cluster.create_topic("first", 2), rig.cluster.create_topic("second")

        assert deleted(rig, ("first", ZERO_UUID), (None, second.topic_id)) == [
            ("first", first.topic_id, ErrorCode.NONE, None),
            ("second", second.topic_id, ErrorCode.NONE, None),
        ]
        assert not rig.cluster.image.topics
        assert rig.shared.logs.get("first", 1) is None


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("none", ZERO_UUID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        ((None, SOME_ID), ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        ((None, ZERO_UUID), ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        (("t", SOME_ID), ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
    ],
)
def test_what_cannot_be_deleted(asked: tuple[str | None, uuid.UUID], code: ErrorCode, words: str) -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")

        assert deleted(rig, asked) == [(*asked, code, words)]
        assert "t" in rig.cluster.image.topics


def test_what_is_named_twice_stays() -> None:
    with Rig() as rig:
        rig.cluster.create_topic("t")
        twice = [("t", ZERO_UUID)] * 3 + [(None, SOME_ID)] * 2

        assert deleted(rig, *twice) == [
            ("t", ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
            (None, SOME_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
        ]
        assert "t" in rig.cluster.image.topics


def test_what_is_named_by_name_and_by_id_stays() -> None:
    with Rig() as rig:
        topic_id = rig.cluster.create_topic("t").topic_id
        words = "The provided topic name maps to an ID that was already supplied."

        assert deleted(rig, ("t", ZERO_UUID), (None, topic_id)) == [("t", topic_id, ErrorCode.INVALID_REQUEST, words)]
        assert "t" in rig.cluster.image.topics


def test_a_coordinators_topic_can_be_deleted_as_in_kafka() -> None:
    with Rig() as rig:
        rig.cluster.internal_topic("__consumer_offsets")

        assert deleted(rig, ("__consumer_offsets", ZERO_UUID))[0][2] == ErrorCode.NONE
